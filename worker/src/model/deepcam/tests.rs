use std::path::Path;

use tradewind_data::packed::{Settings, Writer};
use tradewind_data::{Field, Kind as Number};

use super::super::trained::{count, descend};
use super::*;
use crate::data::Asked;

const SIZE: usize = 16;

fn settings(folder: &Path) -> tradewind_config::Deepcam {
    tradewind_config::Deepcam {
        folder: folder.into(),
        augment: true,
        stride: 2,
        first: vec![4, 6],
        entry: vec![8, 10],
        middle: 1,
        exit: vec![12, 14],
        rates: vec![1, 2],
        context: 8,
        detail: 4,
        balance: 0.125,
    }
}

/// Maps of two channels, of which the second is high where there is an event: a square of one class and one of the
/// other, in as many places as there are samples.
fn write(folder: &Path, part: &str, samples: usize) {
    let fields = [
        Field::new("image", Number::F32, &[2, SIZE, SIZE]),
        Field::new("mask", Number::U8, &[SIZE, SIZE]).classes(3),
    ];
    std::fs::create_dir_all(folder.join(part)).unwrap();
    let path = folder.join(part).join("0.pack");
    let mut writer = Writer::create(&path, &fields, Settings::default()).unwrap();
    for n in 0..samples {
        let mut image = vec![1000f32; 2 * SIZE * SIZE];
        let mut mask = vec![0u8; SIZE * SIZE];
        for (class, corner) in [(1u8, n % 4), (2, 8 + n % 4)] {
            for cell in 0..16 {
                let at = (corner + cell / 4) * SIZE + (n * 3 % 12) + cell % 4;
                mask[at] = class;
                image[SIZE * SIZE + at] = 1000.0 + 10.0 * f32::from(class);
            }
        }
        let image: Vec<u8> = image
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        writer.push(&n.to_string(), &[&image, &mask]).unwrap();
    }
    writer.finish().unwrap();
}

fn task() -> Deepcam {
    let folder = tempfile::tempdir().unwrap();
    for (part, samples) in [("train", 12), ("validation", 4), ("held_out", 4)] {
        write(folder.path(), part, samples);
    }
    Deepcam::new(&settings(folder.path()), 1, &Reading::default()).unwrap()
}

#[test]
fn the_papers_network_has_the_known_number_of_parameters() {
    let paper = tradewind_config::Deepcam {
        first: vec![32, 64],
        entry: vec![128, 256, 728],
        middle: 16,
        exit: vec![1024, 1536, 1536, 2048],
        rates: vec![6, 12, 18],
        context: 256,
        detail: 48,
        ..settings(Path::new(""))
    };
    let network = Network::new(&paper, 16, 3);
    assert_eq!(count(&network.tensors()), 56_454_720);
    assert_eq!(network.smaller(), 16);
}

#[test]
fn the_small_network_has_a_known_number_of_parameters_and_looks_at_every_cell() {
    let small = tradewind_config::Deepcam {
        stride: 1,
        first: vec![16, 24],
        entry: vec![24, 40],
        middle: 1,
        exit: vec![56],
        rates: vec![2, 4],
        context: 28,
        detail: 16,
        ..settings(Path::new(""))
    };
    let network = Network::new(&small, 16, 3);
    assert_eq!(count(&network.tensors()), 94_224);
    assert_eq!(network.smaller(), 4);
    let image = Tensor::zeros([2, 16, 8, 12], (Kind::Float, Device::Cpu));
    let told = tch::no_grad(|| network.forward(&image, false));
    assert_eq!(told.size(), [2, 3, 8, 12]);
}

#[test]
fn every_cell_is_told_a_class_and_statistics_are_of_training_alone() {
    let task = task();
    let batch = task
        .maps
        .samples
        .batch(Asked::of(Split::HeldOut, &[0, 1, 2]));
    let image = &batch.unwrap()["image"];
    let told = |train| tch::no_grad(|| task.network.forward(image, train));
    let before = told(false);
    assert_eq!(before.size(), [3, 3, SIZE as i64, SIZE as i64]);
    let one = |at| tch::no_grad(|| task.network.forward(&image.narrow(0, at, 1), false));
    let alone = Tensor::cat(&[one(0), one(1), one(2)], 0);
    assert!((&before - alone).abs().max().double_value(&[]) < 1e-5);
    drop(told(true));
    assert_ne!(before, told(false));
}

#[test]
fn channels_are_scaled_and_classes_weighed_by_what_samples_are_like() {
    let task = task();
    let all: Vec<usize> = (0..12).collect();
    let batch = task
        .maps
        .samples
        .batch(Asked::of(Split::Train, &all))
        .unwrap();
    let scaled = task.network.input.scaled(&batch["image"]).select(1, 1);
    let (mean, deviation) = (scaled.mean(Kind::Double), scaled.std(false));
    assert!(mean.double_value(&[]).abs() < 1e-3, "{mean:?}");
    assert!((deviation.double_value(&[]) - 1.0).abs() < 1e-3);
    // The first channel is the same everywhere.
    let first = task
        .network
        .input
        .scaled(&batch["image"])
        .select(1, 0)
        .abs()
        .max();
    assert_eq!(first.double_value(&[]), 0.0);
    let weights = Vec::<f32>::try_from(&task.weights).unwrap();
    let want = [224.0f32, 16.0, 16.0].map(|cells| (cells / 256.0).powf(-0.125));
    for (weight, want) in weights.iter().zip(want) {
        assert!((weight - want).abs() < 1e-5, "{weights:?}");
    }
}

#[test]
fn unions_are_counted_over_all_maps_together() {
    let mut confusion = Confusion::default();
    let cells = |numbers: &[i64]| Tensor::from_slice(numbers);
    confusion.add(&cells(&[0, 0, 1, 2]), &cells(&[0, 1, 1, 0]));
    confusion.add(&cells(&[0, 0, 0, 1]), &cells(&[0, 0, 0, 2]));
    // Background: 4 of 5 + 1; cyclones: 1 of 2 + 1; rivers: none of 1 + 1.
    assert_eq!(confusion.iou(), [4.0 / 6.0, 1.0 / 3.0, 0.0]);
    assert_eq!(Confusion::default().iou(), [1.0; 3]);
}

#[test]
fn it_learns_where_events_are_and_tells_each_class() {
    let task = task();
    let all: Vec<usize> = (0..12).collect();
    let batch = task
        .maps
        .samples
        .batch(Asked::of(Split::Train, &all))
        .unwrap();
    let losses = descend(&task, &batch, 100, 0.3);
    assert!(losses[99] < 0.5 * losses[0], "{losses:?}");
    let report = task.evaluate().unwrap();
    let names: Vec<&str> = report.parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(names, CLASSES);
    assert_eq!(report.baselines.len(), 2);
    // 224 of 256 cells are background.
    assert!((report.baselines[0].value - 0.875 / 3.0).abs() < 1e-6);
    let picture = report.picture.unwrap();
    assert_eq!(
        picture.truth.iter().filter(|class| **class == 2.0).count(),
        16
    );
    assert_eq!(picture.forecast.len(), SIZE * SIZE);
}

#[test]
fn samples_that_do_not_fit_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for part in ["train", "validation", "held_out"] {
        write(folder.path(), part, 3);
    }
    let deep = tradewind_config::Deepcam {
        entry: vec![8, 8, 8, 8],
        ..settings(folder.path())
    };
    let text = Deepcam::new(&deep, 1, &Reading::default())
        .err()
        .unwrap()
        .to_string();
    assert!(
        text.contains("multiples of 32") && text.contains("16 × 16"),
        "{text}"
    );
}

#[test]
fn channels_may_be_the_last_extent_as_in_the_public_files() {
    let folder = tempfile::tempdir().unwrap();
    let fields = [
        Field::new("image", Number::F32, &[8, 16, 2]),
        Field::new("mask", Number::U8, &[8, 16]).classes(3),
    ];
    for part in ["train", "validation", "held_out"] {
        std::fs::create_dir_all(folder.path().join(part)).unwrap();
        let path = folder.path().join(part).join("0.pack");
        let mut writer = Writer::create(&path, &fields, Settings::default()).unwrap();
        let image: Vec<u8> = (0..256u16)
            .flat_map(|at| f32::from(at % 2 * 100 + at / 2).to_le_bytes())
            .collect();
        writer.push("only", &[&image, &[0; 128]]).unwrap();
        writer.finish().unwrap();
    }
    let plain = tradewind_config::Deepcam {
        augment: false,
        ..settings(folder.path())
    };
    let task = Deepcam::new(&plain, 1, &Reading::default()).unwrap();
    let batch = task
        .maps
        .samples
        .batch(Asked::of(Split::Train, &[0]))
        .unwrap();
    let image = task.maps.image(&batch);
    assert_eq!(image.size(), [1, 2, 8, 16]);
    assert_eq!(image.double_value(&[0, 1, 2, 3]), 135.0);
    assert_eq!(task.told(&image).size(), [1, 8, 16]);
    let turned = Deepcam::new(&settings(folder.path()), 1, &Reading::default());
    let text = turned.err().unwrap().to_string();
    assert!(text.contains("data.augment"), "{text}");
}
