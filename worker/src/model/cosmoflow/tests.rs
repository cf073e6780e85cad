use tradewind_data::packed::{Settings, Writer};

use super::super::trained::{count, descend};
use super::*;
use crate::data::Asked;

fn settings(folder: &Path) -> tradewind_config::Cosmoflow {
    tradewind_config::Cosmoflow {
        folder: folder.into(),
        parameters: vec!["omega_m".into(), "sigma_8".into()],
        augment: true,
        convolutions: vec![4, 6],
        pooling: "max".into(),
        hidden: vec![8],
        stem: true,
        norm: true,
        dropout: 0.5,
    }
}

/// Cubes of 8³ with so many counts in each cell as the first parameter says; the second one cannot be told.
fn make(folder: &Path) {
    let fields = [
        Field::new("volume", Number::I16, &[2, 8, 8, 8]),
        Field::new("target", Number::F32, &[2]),
    ];
    for (part, samples) in [("train", 24u8), ("validation", 8), ("held_out", 8)] {
        std::fs::create_dir(folder.join(part)).unwrap();
        let path = folder.join(part).join("0.pack");
        let mut writer = Writer::create(&path, &fields, Settings::default()).unwrap();
        for n in 0..samples {
            let counts = i16::from(n % 8) * 4;
            let volume = counts.to_le_bytes().repeat(2 * 512);
            let second = if n / 8 % 2 == 0 { -0.5 } else { 0.5 };
            let target = [f32::from(n % 8) / 4.0 - 0.875, second].map(f32::to_le_bytes);
            let values: [&[u8]; 2] = [&volume, &target.concat()];
            writer.push(&n.to_string(), &values).unwrap();
        }
        writer.finish().unwrap();
    }
}

fn task() -> Cosmoflow {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path());
    Cosmoflow::new(&settings(folder.path()), 1, &Reading::default()).unwrap()
}

fn named() -> Vec<String> {
    ["omega_m", "sigma_8", "n_s", "h"].map(String::from).into()
}

#[test]
fn the_papers_network_has_the_known_number_of_parameters() {
    let paper = tradewind_config::Cosmoflow {
        parameters: named(),
        convolutions: vec![32, 64, 128, 256, 512],
        hidden: vec![128, 64],
        stem: false,
        norm: false,
        ..settings(Path::new(""))
    };
    assert_eq!(
        count(&Network::new(&paper, 4, 128).unwrap().tensors()),
        8_907_556
    );
}

#[test]
fn shapes_follow_from_the_settings() {
    for (stem, norm, pooling) in [
        (false, false, "max"),
        (true, false, "mean"),
        (false, true, "mean"),
        (true, true, "max"),
    ] {
        let settings = tradewind_config::Cosmoflow {
            stem,
            norm,
            pooling: pooling.into(),
            ..settings(Path::new(""))
        };
        let network = Network::new(&settings, 3, 8).unwrap();
        let bias = if norm { 2 } else { 1 };
        let cells = if pooling == "mean" { 1 } else { 8 };
        let want = 27 * 3 * 4 + 27 * 4 * 6 + bias * 10 + 6 * cells * 8 + 8 + 8 * 2 + 2;
        assert_eq!(
            count(&network.tensors()),
            want,
            "stem {stem}, norm {norm}, {pooling}"
        );
        let volume = Tensor::zeros([5, 3, 8, 8, 8], (Kind::Int16, Device::Cpu));
        let told = network.forward(&volume, true);
        assert_eq!(
            (told.size(), told.kind()),
            (vec![5, 2], Kind::Float),
            "stem {stem}, norm {norm}"
        );
    }
    let few = Network::new(&settings(Path::new("")), 3, 3).err().unwrap();
    let few = few.to_string();
    assert!(few.contains("model.convolutions"), "{few}");
}

#[test]
fn dropped_units_and_statistics_are_of_training_alone() {
    let task = task();
    let batch = task.samples.batch(Asked::of(Split::HeldOut, &[0, 1, 2]));
    let volume = &batch.unwrap()["volume"];
    let told = |train| tch::no_grad(|| task.network.forward(volume, train));
    assert_eq!(told(false), told(false));
    let one = |at| tch::no_grad(|| task.network.forward(&volume.narrow(0, at, 1), false));
    let alone = Tensor::cat(&[one(0), one(1), one(2)], 0);
    assert!((told(false) - alone).abs().max().double_value(&[]) < 1e-6);
    assert_ne!(told(true), told(true));
}

#[test]
fn it_learns_what_there_is_and_tells_each_parameter() {
    let task = task();
    let samples: Vec<usize> = (0..24).collect();
    let batch = task.samples.batch(Asked::of(Split::Train, &samples));
    let batch = batch.unwrap();
    descend(&task, &batch, 150, 0.05);
    let report = task.evaluate().unwrap();
    let parts = &report.parts;
    assert_eq!([&parts[0].name, &parts[1].name], ["omega_m", "sigma_8"]);
    // Of -0.875 to 0.875 in equal steps the middle is 0.5 away in the mean.
    assert!((parts[0].baselines[0] - 0.5).abs() < 1e-6, "{parts:?}");
    assert!(parts[0].value < 0.35, "{parts:?}");
    // The second one is -0.5 in all held-out samples, and -1/6 in the mean of training.
    assert!(
        (parts[1].baselines[0] - 1.0 / 3.0).abs() < 1e-6,
        "{parts:?}"
    );
    let baselines: Vec<f64> = report.baselines.iter().map(|is| is.value).collect();
    assert!((baselines[0] - (0.5 + 1.0 / 3.0) / 2.0).abs() < 1e-6);
    // Counts tell the first parameter.
    assert!(parts[0].baselines[1] < 0.2, "{parts:?}");
    let mean = (parts[0].value + parts[1].value) / 2.0;
    assert!((report.metric.value - mean).abs() < 1e-9);
    for (scatter, part) in report.scatters.iter().zip(parts) {
        let errors = scatter.points.iter().map(|(is, told)| (is - told).abs());
        let error = errors.sum::<f64>() / scatter.points.len() as f64;
        assert_eq!((&scatter.name, scatter.points.len()), (&part.name, 8));
        assert!((error - part.value).abs() < 1e-9, "{}", part.name);
    }
    assert_eq!(report.scatters.len(), 2);
}

#[test]
fn samples_that_do_not_fit_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path());
    let three = tradewind_config::Cosmoflow {
        parameters: named(),
        ..settings(folder.path())
    };
    let refused = Cosmoflow::new(&three, 1, &Reading::default()).err();
    let refused = refused.unwrap().to_string();
    assert!(refused.contains("target f32 [4]"), "{refused}");
    std::fs::remove_dir_all(folder.path().join("held_out")).unwrap();
    let gone = Cosmoflow::new(&settings(folder.path()), 1, &Reading::default()).err();
    let gone = gone.unwrap().to_string();
    assert!(gone.contains("held_out"), "{gone}");
}
