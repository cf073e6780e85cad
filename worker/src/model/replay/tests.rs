use std::path::Path;

use tradewind_data::Kind as Number;
use tradewind_data::packed::{Settings, Writer};

use super::*;

/// Sample `n` is an image of `n`s, `n % 3` rows of `10 * n`, and a label.
fn pack(folder: &Path, samples: u8) -> PathBuf {
    let path = folder.join(format!("{samples}.pack"));
    let fields = [
        Field::new("image", Number::I16, &[40, 50]),
        Field::varying("rows", Number::F32, &[2], 9),
        Field::new("label", Number::U8, &[]),
    ];
    let any_numbers = true;
    let settings = Settings {
        any_numbers,
        ..Settings::default()
    };
    let mut writer = Writer::create(&path, &fields, settings).unwrap();
    for n in 0..samples {
        let image: Vec<u8> = i16::from(n).to_le_bytes().repeat(40 * 50);
        let row = [10.0 * f32::from(n), f32::NAN].map(f32::to_le_bytes);
        let rows: Vec<u8> = match n {
            4 => row.concat(),
            _ => row[0].repeat(2 * usize::from(n % 3)),
        };
        let label = [n % 2];
        let values: [&[u8]; 3] = [&image, &rows, &label];
        writer.push(&n.to_string(), &values).unwrap();
    }
    writer.finish().unwrap();
    path
}

fn spec(folder: PathBuf) -> ReplaySpec {
    ReplaySpec {
        folder,
        layout: String::new(),
        validation: 3,
        held_out: 2,
        parameters: 0,
    }
}

fn task(samples: u8, parameters: u64) -> Replay {
    let folder = tempfile::tempdir().unwrap();
    let spec = ReplaySpec {
        parameters,
        ..spec(pack(folder.path(), samples))
    };
    Replay::new(&spec, 7, &Reading::default()).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f32> {
    Vec::<f32>::try_from(tensor).unwrap()
}

#[test]
fn means_are_those_of_each_sample() {
    let task = task(20, 0);
    let batch = task.samples.batch(Asked::of(Split::Train, &[5, 0, 2, 4]));
    let batch = batch.unwrap();
    let got = |at: usize| values(&mean(&task.fields[at].field, &batch));
    assert_eq!(got(0), [5.0, 0.0, 2.0, 4.0]);
    // Without rows, and with a value that is no number: 0.
    assert_eq!(got(1), [50.0, 0.0, 20.0, 0.0]);
    assert_eq!(got(2), [1.0, 0.0, 0.0, 0.0]);
}

#[test]
fn the_last_samples_are_held_out_and_those_before_for_validation() {
    let task = task(20, 0);
    let data = task.dataset();
    let splits = [Split::Train, Split::Validation, Split::HeldOut];
    assert_eq!(splits.map(|split| data.len(split)), [15, 3, 2]);
    let first = |split| {
        let batch = data.batch(Asked::of(split, &[0])).unwrap();
        values(&batch["image"].to_kind(Kind::Float).flatten(0, -1))[0]
    };
    assert_eq!(splits.map(first), [0.0, 15.0, 18.0]);
}

#[test]
fn steps_lower_the_loss_and_what_is_told_follows_from_the_values() {
    let task = task(20, 0);
    let all: Vec<usize> = (0..15).collect();
    let batch = task.samples.batch(Asked::of(Split::Train, &all)).unwrap();
    let loss = || task.loss(&batch).double_value(&[]);
    let (before, measured) = (loss(), task.measure(Split::Validation).unwrap().value);
    for _ in 0..400 {
        task.loss(&batch).backward();
        for (_, mut tensor, _) in task.tensors() {
            let less = tensor.grad() * 0.1;
            let _ = tch::no_grad(|| tensor.f_sub_(&less).unwrap());
            tensor.zero_grad();
        }
    }
    assert!(loss() < 0.01 * before, "{} after {before}", loss());
    let trained = task.measure(Split::Validation).unwrap().value;
    assert!(trained < 0.2 * measured, "{trained} after {measured}");
}

#[test]
fn parameters_fill_up_what_is_asked_for_with_gradients_of_0() {
    let wanted = 12 + (1 << 20) + 5;
    let task = task(20, wanted);
    let tensors = task.tensors();
    let named: Vec<(&str, usize)> = tensors.iter().map(|t| (&*t.0, t.1.numel())).collect();
    let want = [
        ("weight", 9),
        ("bias", 3),
        ("idle.0", 1 << 20),
        ("idle.1", 5),
    ];
    assert_eq!(named, want);
    let batch = task
        .samples
        .batch(Asked::of(Split::Train, &[1, 2]))
        .unwrap();
    task.loss(&batch).backward();
    let of = |number: usize| tensors[number].1.grad().abs().sum(Kind::Float);
    assert!(of(0).double_value(&[]) > 0.0);
    assert_eq!(of(2).double_value(&[]) + of(3).double_value(&[]), 0.0);
}

#[test]
fn what_cannot_be_used_is_told_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let check = |spec: ReplaySpec, want: &str| {
        let error = Replay::new(&spec, 7, &Reading::default())
            .err()
            .expect(want)
            .to_string();
        assert!(error.contains(want), "{want:?} is not in {error}");
    };
    let missing = folder.path().join("none");
    check(spec(missing), "none: No such file");
    let few = "has 5 samples, of which 3 are for validation and 2 for the final metric";
    check(spec(pack(folder.path(), 5)), few);
    let layout = |layout: &str| ReplaySpec {
        layout: layout.into(),
        ..spec(pack(folder.path(), 9))
    };
    check(
        layout("cosmo"),
        "data.layout = \"cosmo\": there is no layout",
    );
    check(layout("cosmoflow"), "leave the layout away");
}
