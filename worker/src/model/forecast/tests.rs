use tch::Kind;

use super::*;
use crate::data::{Asked, fixture};

fn climate() -> ForecastSpec {
    let series = fixture::climate();
    ForecastSpec {
        series,
        step_name: "year".into(),
        channels: 4,
        depth: 1,
        anomalies: true,
    }
}

fn small(folder: &tempfile::TempDir) -> ForecastSpec {
    let series = fixture::spec(folder.path());
    ForecastSpec {
        series,
        step_name: "step".into(),
        channels: 4,
        depth: 1,
        anomalies: true,
    }
}

#[test]
fn the_known_errors_of_the_simple_forecasts() {
    let report = Forecast::new(&climate(), 1).unwrap().evaluate().unwrap();
    let names: Vec<_> = report.baselines.iter().map(|b| b.name.as_str()).collect();
    assert_eq!(names, ["persistence", "8-year mean", "30-year trend"]);
    let known = [
        ("A1B", [0.813, 0.686, 0.682]),
        ("E1", [0.934, 0.763, 0.768]),
    ];
    for (part, (name, want)) in report.parts.iter().zip(known) {
        assert_eq!(part.name, name);
        for (got, want) in part.baselines.iter().zip(want) {
            assert!(
                (got - want).abs() < 0.0006,
                "{name}: {got} instead of {want}"
            );
        }
        assert!(
            (part.value - part.baselines[1]).abs() < 1e-4,
            "untrained, it tells the mean"
        );
    }
    let picture = report.picture.unwrap();
    assert_eq!(
        (report.metric.unit.as_str(), picture.label.as_str()),
        ("K", "A1B 2099")
    );
    assert_eq!((picture.latitude[0], picture.latitude[36]), (15.0, 60.0));
    assert_eq!(
        (picture.longitude[0], picture.longitude[48]),
        (225.0, 315.0)
    );
    assert!(
        picture
            .truth
            .iter()
            .all(|kelvin| (220.0..320.0).contains(kelvin))
    );
    assert_eq!(picture.forecast.len(), 37 * 49);
}

#[test]
fn of_whole_fields_the_first_forecast_is_one_number_and_the_loss_is_one() {
    let spec = ForecastSpec {
        anomalies: false,
        ..climate()
    };
    let task = Forecast::new(&spec, 1).unwrap();
    let data = task.dataset();
    let all: Vec<usize> = (0..task.samples()).collect();
    let targets = data.batch(Asked::of(Split::Train, &all)).unwrap()["after"].shallow_clone();
    let level = targets.to_kind(Kind::Double).mean(Kind::Double);
    let deviation = (targets.to_kind(Kind::Double) - &level).square();
    let deviation = deviation.mean(Kind::Double).sqrt().double_value(&[]);

    let batch = data.batch(Asked::of(Split::Train, &all[..3])).unwrap();
    let forecast = task.forward(&batch["before"]);
    assert_eq!(forecast.size(), [3, 1, 37, 49]);
    let off = (&forecast - &level).abs().max().double_value(&[]);
    assert!(off < 1e-3, "{off} K from {level}");
    assert!((task.scale - deviation).abs() < 1e-6 * deviation);
    let loss = task.loss(&data.batch(Asked::of(Split::Train, &all)).unwrap());
    assert!((loss.double_value(&[]) - 1.0).abs() < 1e-3, "{loss}");
    let notes = task.notes();
    let told = (notes["forward"].strip_prefix("m = ")).and_then(|rest| rest.split_once(';'));
    let told: f64 = told.expect("a level comes first").0.parse().unwrap();
    assert!((told - level.double_value(&[])).abs() < 1e-6, "{told}");
}

#[test]
fn tensors_are_handles_in_order_of_creation() {
    let folder = tempfile::tempdir().unwrap();
    let task = Forecast::new(&small(&folder), 1).unwrap();
    let tensors = task.tensors();
    let names: Vec<_> = tensors.iter().map(|t| t.0.as_str()).collect();
    let want = [
        "stem.weight",
        "stem.bias",
        "trunk.0.weight",
        "trunk.0.bias",
        "head.weight",
        "head.bias",
    ];
    assert_eq!(names, want);
    let before = task.measure(Split::Validation).unwrap();
    tensors[5]
        .1
        .shallow_clone()
        .set_data(&Tensor::from_slice(&[1f32]));
    assert_ne!(task.measure(Split::Validation).unwrap(), before);
}

#[test]
fn the_seed_alone_decides_the_initial_values() {
    let folder = tempfile::tempdir().unwrap();
    let values = |seed| Forecast::new(&small(&folder), seed).unwrap().tensors();
    let (a, b, c) = (values(1), values(1), values(2));
    assert!(a.iter().zip(&b).all(|(a, b)| a.1 == b.1));
    assert!(a[0].1 != c[0].1);
}

#[test]
fn a_few_steps_lower_the_loss_and_reach_every_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let task = Forecast::new(&small(&folder), 1).unwrap();
    let all: Vec<usize> = (0..task.samples()).collect();
    let batch = task.dataset().batch(Asked::of(Split::Train, &all)).unwrap();
    let first = task.loss(&batch);
    assert_eq!(first.size(), [0i64; 0]);
    assert!(
        (first.double_value(&[]) - 1.0).abs() < 1e-3,
        "the mean has error 1: {first}"
    );
    let tensors = task.tensors();
    for _ in 0..20 {
        task.loss(&batch).backward();
        for (_, tensor, _) in &tensors {
            let step = tensor.grad() * 0.01;
            let _ = tch::no_grad(|| tensor.shallow_clone().f_sub_(&step).unwrap());
            tensor.shallow_clone().zero_grad();
        }
    }
    assert!(task.loss(&batch).double_value(&[]) < 0.9);
    task.loss(&batch).backward();
    for (name, tensor, _) in &tensors {
        assert!(tensor.grad().abs().max().double_value(&[]) > 0.0, "{name}");
    }
}

#[test]
fn settings_out_of_range() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |change: &dyn Fn(&mut ForecastSpec)| {
        let mut spec = small(&folder);
        change(&mut spec);
        Forecast::new(&spec, 1).err().unwrap().to_string()
    };
    assert!(refused(&|s| s.channels = 0).contains("channels = 0: must be 1 to 1024"));
    assert!(refused(&|s| s.depth = 65).contains("depth = 65"));
    assert!(refused(&|s| s.series.variable = "t2n".into()).contains("perhaps \"t2m\""));
}
