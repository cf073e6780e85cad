//! Samples in files of one's own, read by the task `replay` in real processes.

use std::path::Path;

use tradewind_data::packed::{Settings, Writer};
use tradewind_data::{Field, Kind, hdf5};
use tradewind_tests::cluster::run::Run;

const SAMPLES: u8 = 40;

/// Sample `n`: an image of `n`s, and `n % 3` rows of numbers.
fn fields() -> [Field; 2] {
    [
        Field::new("image", Kind::U8, &[3, 20, 20]),
        Field::varying("rows", Kind::F32, &[2], 2),
    ]
}

fn values(n: u8) -> Vec<Vec<u8>> {
    let row = [f32::from(n), 1.0].map(f32::to_le_bytes).concat();
    vec![vec![n; 1200], row.repeat(usize::from(n % 3))]
}

fn pack(folder: &Path) {
    for (file, numbers) in [(0, 0..SAMPLES / 2), (1, SAMPLES / 2..SAMPLES)] {
        let path = folder.join(format!("{file}.pack"));
        let mut writer = Writer::create(&path, &fields(), Settings::default()).unwrap();
        for n in numbers {
            let values = values(n);
            let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
            writer.push(&n.to_string(), &values).unwrap();
        }
        writer.finish().unwrap();
    }
}

fn run(folder: &Path) -> Run {
    Run::new()
        .key("model.name", "\"replay\"")
        .key("data.folder", format!("{:?}", folder.display().to_string()))
        .key("data.validation_samples", "4")
        .key("data.held_out_samples", "6")
        .key("cluster.groups", "[2, 1]")
        .key("train.consistency", "\"sync\"")
        .key("train.batch", "5")
        .key("train.samples", "3000")
        .key("optimizer.learning_rate", "0.2")
}

#[test]
fn samples_that_are_packed_are_read_and_the_pace_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    pack(folder.path());
    let paced = run(folder.path())
        .key("pace.step_seconds", "0.01")
        .key("model.parameters", "5000")
        .key("loader.readers", "2");
    let ended = paced.complete();
    assert!(ended.status.success(), "{}", ended.stderr);
    let summary = ended.summary();
    let loss = |key: &str| summary["loss"][key].as_f64().unwrap();
    assert!(loss("final") < 0.2 * loss("first"), "{summary}");
    assert_eq!(summary["metric"]["name"], "held-out error");
    assert_eq!(summary["metric"]["validation"]["name"], "validation error");
    for group in summary["groups"].as_array().unwrap() {
        let number = |key: &str| group[key].as_f64().unwrap();
        let step = number("compute_seconds") / number("clocks");
        assert!(step >= 0.01, "{step}");
        let utilization = number("utilization");
        assert!(0.0 < utilization && utilization <= 1.0, "{utilization}");
    }
    // A block's worth of values from servers of so many parameters.
    let blocks = summary["shards"][0]["bytes"].as_u64().unwrap();
    assert!(blocks >= 4 * 5000, "{summary}");
}

/// The processes that read HDF5 files are found beside the worker.
#[test]
fn samples_of_hdf5_files_are_read_by_processes() {
    let folder = tempfile::tempdir().unwrap();
    for n in 0..SAMPLES {
        let path = folder.path().join(format!("{n:03}.h5"));
        hdf5::write_sample(&path, &fields(), &values(n)).unwrap();
    }
    let layout = "\"image=image,rows=rows[rows<=2]\"";
    let ended = run(folder.path())
        .key("data.layout", layout)
        .key("train.samples", "300")
        .key("loader.readers", "2")
        .complete();
    assert!(ended.status.success(), "{}", ended.stderr);
    let samples = &ended.summary()["samples"]["applied"];
    assert_eq!(*samples, 300);
}

#[test]
fn samples_that_cannot_be_used_are_told_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    pack(folder.path());
    let check = |run: Run, wanted: &[&str]| {
        let ended = run.complete();
        assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
        for text in wanted {
            assert!(ended.stderr.contains(text), "{text:?}: {}", ended.stderr);
        }
        assert!(
            !ended.out().exists(),
            "a run that never began has no folder"
        );
    };
    check(run(&folder.path().join("none")), &["none: No such file"]);
    let unknown = run(folder.path()).key("data.layout", "\"cosmo\"");
    check(
        unknown,
        &["data.layout = \"cosmo\"", "there is no layout", "cosmoflow"],
    );
    let few = run(folder.path()).key("data.held_out_samples", "36");
    check(few, &["has 40 samples", "none is left for training"]);
    let large = run(folder.path()).key("train.batch", "20");
    check(large, &["30 samples, fewer than one batch of 20"]);
}
