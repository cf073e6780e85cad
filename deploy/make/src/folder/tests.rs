use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use tradewind_data::Kind;

use super::*;

/// Units of two samples with their numbers; made units are noted.
fn make(
    folder: &Path,
    seed: u64,
    form: Form,
    notes: &Mutex<Vec<usize>>,
) -> Result<Made, DataError> {
    let order = Order {
        folder,
        samples: 14,
        seed,
        form,
        threads: 2,
        python: None,
    };
    let folder = Folder {
        order: &order,
        name: "numbers",
        version: 1,
        tools: "a tool 1.0",
        fields: &[Field::new("number", Kind::F32, &[2])],
        datasets: &["made/n"],
        units: 7,
        unit_samples: 2,
        file_units: 2,
        split: &|unit| match unit {
            0..=4 => Split::Train,
            5 => Split::Validation,
            _ => Split::HeldOut,
        },
    };
    let unit = |(): &mut (), number: usize, told: Told<'_>| -> Result<Vec<Sample>, DataError> {
        notes.lock().unwrap().push(number);
        // The first of two is told of early, and not again.
        told(1);
        let sample = |at: usize| Sample {
            name: format!("{number} {at}"),
            values: vec![[number as f32, at as f32].map(f32::to_le_bytes).concat()],
        };
        Ok((0..2).map(sample).collect())
    };
    let card = || {
        Ok(Card {
            text: "# Numbers\n".into(),
            picture: Picture::new(4, 4),
        })
    };
    let mut before = 0;
    let mut progress = |done: usize, all: usize| {
        assert!(
            before <= done && done <= all && all == 14,
            "{done} of {all}"
        );
        before = done;
    };
    folder.make(|| (), unit, &mut progress, &card)
}

fn noted(notes: &Mutex<Vec<usize>>) -> Vec<usize> {
    let mut notes = std::mem::take(&mut *notes.lock().unwrap());
    notes.sort_unstable();
    notes
}

#[test]
fn what_is_there_is_not_made_again() {
    let notes = Mutex::default();
    let files = [
        (Form::Packed, "train/00001.pack", vec![2, 3]),
        (Form::Hdf5, "train/00003-1.hdf5", vec![2, 3]),
    ];
    for (form, file, units) in files {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("numbers");
        let made = make(&folder, 1, form, &notes).unwrap();
        assert_eq!((made.samples, made.found), (14, 0));
        assert_eq!(noted(&notes), [0, 1, 2, 3, 4, 5, 6]);
        let whole = fs::read(folder.join(MADE)).unwrap();
        let card = fs::read_to_string(folder.join(CARD)).unwrap();
        assert!(card.contains("10 samples, of simulations 0 to 4"), "{card}");

        // As an interruption leaves it.
        fs::remove_file(folder.join(CARD)).unwrap();
        fs::remove_file(folder.join(file)).unwrap();
        fs::write(folder.join("train/00001.pack.part"), "half").unwrap();
        // HDF5 would note the second in which a file was made.
        thread::sleep(Duration::from_millis(1100));
        let again = make(&folder, 1, form, &notes).unwrap();
        assert_eq!((again.samples, again.found), (14, 10));
        assert_eq!(noted(&notes), units);
        assert_eq!(fs::read(folder.join(MADE)).unwrap(), whole);
        assert_eq!(fs::read_to_string(folder.join(CARD)).unwrap(), card);

        let source = tradewind_data::open(&folder.join("train"), None, 1, None).unwrap();
        assert_eq!(source.len(), 10);
        assert_eq!(source.fields()[0].name, "number");
    }
}

#[test]
fn another_order_and_damage_are_told() {
    let notes = Mutex::default();
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("numbers");
    make(&folder, 1, Form::Packed, &notes).unwrap();
    let told = |seed, form| make(&folder, seed, form, &notes).unwrap_err().to_string();
    let other = told(2, Form::Hdf5);
    assert!(
        other.contains("its seed is 1, its form is packed"),
        "{other}"
    );
    fs::write(folder.join("train/00000.pack"), "not whole").unwrap();
    let damaged = told(1, Form::Packed);
    assert!(
        damaged.contains("00000.pack") && damaged.contains("delete it"),
        "{damaged}"
    );

    let lock = File::open(&folder).unwrap();
    lock.lock().unwrap();
    let locked = told(1, Form::Packed);
    assert!(locked.contains("another process"), "{locked}");

    let foreign = make(root.path(), 1, Form::Packed, &notes)
        .unwrap_err()
        .to_string();
    assert!(foreign.contains("something else"), "{foreign}");
}
