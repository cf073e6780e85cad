use tradewind_data::Kind as Number;
use tradewind_data::packed::{Settings, Writer};

use super::super::trained::{count, descend};
use super::*;
use crate::data::Asked;

const SIZE: usize = 16;

fn settings(folder: &Path) -> tradewind_config::Hep {
    tradewind_config::Hep {
        folder: folder.into(),
        augment: true,
        width: 4,
        layers: 3,
        norm: true,
        dropout: 0.2,
    }
}

/// Images with some energy in one cell; of signal, every second sample, half of it is three cells farther. The first
/// feature of jets tells them apart in all samples but the first of each kind, the last in all.
fn write(folder: &Path, part: &str, samples: usize, name: &str, jets: bool) {
    let mut fields = vec![
        Field::new(name, Number::F32, &[3, SIZE, SIZE]),
        Field::new("label", Number::U8, &[]).classes(2),
    ];
    if jets {
        fields.push(Field::new("jets", Number::F32, &[5]));
    }
    std::fs::create_dir_all(folder.join(part)).unwrap();
    let path = folder.join(part).join("0.pack");
    let mut writer = Writer::create(&path, &fields, Settings::default()).unwrap();
    for n in 0..samples {
        let is_signal = n % 2 == 1;
        let mut image = vec![0f32; 3 * SIZE * SIZE];
        let at = (n * 5 % 13) * SIZE + n * 3 % 13;
        let energy = 40.0 * (1 + n / 2 % 4) as f32;
        let cells = if is_signal { &[0, 3][..] } else { &[0] };
        for cell in cells {
            image[at + cell] = energy / cells.len() as f32;
            image[2 * SIZE * SIZE + at + cell] = 4.0 / cells.len() as f32;
        }
        let few = if is_signal == (n > 1) { 1.0 } else { 0.0 };
        let features = [few, 0.0, 0.0, 0.0, f32::from(u8::from(is_signal))];
        let bytes = |numbers: &[f32]| -> Vec<u8> {
            numbers
                .iter()
                .flat_map(|number| number.to_le_bytes())
                .collect()
        };
        let (image, label, features) = (bytes(&image), [u8::from(is_signal)], bytes(&features));
        let values: [&[u8]; 3] = [&image, &label, &features];
        writer
            .push(&n.to_string(), &values[..fields.len()])
            .unwrap();
    }
    writer.finish().unwrap();
}

fn make(folder: &Path, name: &str, jets: bool) {
    for (part, samples) in [("train", 64), ("validation", 16), ("held_out", 16)] {
        write(folder, part, samples, name, jets);
    }
}

fn opened(folder: &Path) -> Result<Hep, TaskError> {
    Hep::new(&settings(folder), 1, &Reading::default())
}

fn task(jets: bool) -> Hep {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path(), "data", jets);
    opened(folder.path()).unwrap()
}

#[test]
fn the_papers_network_has_the_known_number_of_parameters() {
    let of_width = |width| tradewind_config::Hep {
        width,
        layers: 5,
        norm: false,
        ..settings(Path::new(""))
    };
    assert_eq!(
        count(&Network::new(&of_width(128), 224).unwrap().tensors()),
        594_178
    );
    assert_eq!(
        count(&Network::new(&of_width(24), 64).unwrap().tensors()),
        21_554
    );
}

#[test]
fn shapes_follow_from_the_settings() {
    for norm in [false, true] {
        let settings = tradewind_config::Hep {
            norm,
            ..settings(Path::new(""))
        };
        let network = Network::new(&settings, 4).unwrap();
        let bias = if norm { 2 } else { 1 };
        let want = 9 * 3 * 4 + 2 * 9 * 4 * 4 + bias * 12 + 4 * 2 + 2;
        assert_eq!(count(&network.tensors()), want, "norm {norm}");
        let images = Tensor::zeros([5, 3, 4, 7], (Kind::Half, Device::Cpu));
        let told = network.forward(&images, true);
        assert_eq!((told.size(), told.kind()), (vec![5, 2], Kind::Float));
    }
    let small = Network::new(&settings(Path::new("")), 3).err().unwrap();
    assert!(small.to_string().contains("model.layers = 3"), "{small}");
}

#[test]
fn dropped_numbers_and_statistics_are_of_training_alone() {
    let task = task(false);
    let batch = task.samples.batch(Asked::of(Split::HeldOut, &[0, 1, 2]));
    let images = &batch.unwrap()["data"];
    let told = |train| tch::no_grad(|| task.network.forward(images, train));
    assert_eq!(told(false), told(false));
    let one = |at| tch::no_grad(|| task.network.forward(&images.narrow(0, at, 1), false));
    let alone = Tensor::cat(&[one(0), one(1), one(2)], 0);
    assert!((told(false) - alone).abs().max().double_value(&[]) < 1e-6);
    assert_ne!(told(true), told(true));
}

/// The sum over columns of each row, and the sums over rows: the first set is kept by turning around the beam.
#[test]
fn training_images_are_turned_around_the_beam_and_no_others() {
    let task = task(false);
    let image = |split, epoch| {
        let asked = Asked {
            epoch,
            ..Asked::of(split, &[3])
        };
        task.samples.batch(asked).unwrap()["data"].shallow_clone()
    };
    let of_rows = |image: &Tensor| {
        let rows = image
            .select(1, 0)
            .sum_dim_intlist([2i64].as_slice(), false, Kind::Float);
        Vec::<f32>::try_from(rows.squeeze_dim(0)).unwrap()
    };
    let still = image(Split::Train, None);
    let mut moved = 0;
    for epoch in 0..8 {
        let turned = image(Split::Train, Some(epoch));
        let (want, mut got) = (of_rows(&still), of_rows(&turned));
        if got != want {
            got.reverse();
        }
        assert_eq!(got, want, "epoch {epoch}");
        moved += u32::from(turned != still);
    }
    assert!(moved > 4, "{moved} of 8");
}

#[test]
fn it_learns_what_no_total_tells_and_is_measured_beside_simple_ways() {
    let task = task(true);
    let samples: Vec<usize> = (0..64).collect();
    let batch = task.samples.batch(Asked::of(Split::Train, &samples));
    let batch = batch.unwrap();
    descend(&task, &batch, 300, 0.2);
    let report = task.evaluate().unwrap();
    assert_eq!(report.better, Better::Higher);
    assert!(report.metric.value > 0.95, "{report:?}");
    let names: Vec<&str> = report.baselines.iter().map(|is| &*is.name).collect();
    let want = [
        "totals of the image",
        "4 features of jets",
        "5 features of jets",
    ];
    assert_eq!(names, want);
    let of: Vec<f64> = report.baselines.iter().map(|is| is.value).collect();
    // Both kinds have the same totals.
    assert!((of[0] - 0.5).abs() < 0.1, "{of:?}");
    // Of eight and eight seven are right: they are above seven and equal to one. The wrong one is equal to seven.
    assert_eq!(of[1..], [(7.0 * 7.5 + 3.5) / 64.0, 1.0]);
    let [part] = &report.parts[..] else {
        panic!("{:?}", report.parts);
    };
    assert_eq!((&*part.name, part.baselines[2]), ("TPR at 1 % FPR", 1.0));
    assert_eq!(part.baselines[1], 0.0);
    let curves: Vec<&str> = report.curves.iter().map(|curve| &*curve.name).collect();
    assert_eq!(curves, [&["network"], &want[..]].concat());
    assert_eq!(report.curves[3].rates[0], (0.0, 1.0));
    let held_out = task.measure(Split::HeldOut).unwrap().value;
    assert_eq!(held_out, 1.0 - report.metric.value);
    assert_eq!(report.validation, task.measure(Split::Validation).unwrap());
}

#[test]
fn the_field_of_images_has_two_names_and_jets_may_be_missing() {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path(), "image", false);
    let task = opened(folder.path()).unwrap();
    let baselines = task.evaluate().unwrap().baselines;
    assert_eq!(baselines.len(), 1, "{baselines:?}");
}

#[test]
fn what_cannot_be_used_is_told_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let check = |want: &str| {
        let error = opened(folder.path()).map(|task| task.evaluate().unwrap_err());
        let error = error.unwrap_or_else(|error| error).to_string();
        assert!(error.contains(want), "{want:?} is not in {error}");
    };
    make(folder.path(), "picture", false);
    check("samples need a field data or image of shape [3, y, x]");
    make(folder.path(), "data", true);
    // A single sample, of background.
    write(folder.path(), "held_out", 1, "data", true);
    check("held_out: there is no AUC");
    std::fs::remove_dir_all(folder.path().join("held_out")).unwrap();
    check("held_out");
}
