//! Samples in files of one's own, read by the task `replay` in real processes.

use std::path::Path;

use tradewind_data::packed::{Settings, Writer};
use tradewind_data::{Field, Kind, hdf5};
use tradewind_tests::cluster::run::{Ended, Run};

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

/// A group holds four chunks at most: what is read ahead ends there.
#[test]
fn no_more_is_read_ahead_than_a_group_may_hold() {
    let folder = tempfile::tempdir().unwrap();
    pack(folder.path());
    let ended = run(folder.path())
        .key("cluster.groups", "[2, 1]")
        .key("train.consistency", "\"async\"")
        .key("train.batch", "2")
        .key("train.chunk_samples", "4")
        .key("loader.readers", "4")
        .key("loader.batches_ahead", "16")
        .key("train.samples", "300")
        .complete();
    assert!(ended.status.success(), "{}", ended.stderr);
    assert!(!ended.stderr.contains("is lost"), "{}", ended.stderr);
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

/// Two groups of one rank, each of which has a set of the files first.
fn staged(folder: &Path, cache: &Path, bytes: u64) -> Run {
    run(folder)
        .key("cluster.groups", "[1, 1]")
        .key("train.consistency", "\"async\"")
        .key("train.samples", "300")
        .key("loader.sets", "2")
        .key("loader.deal_epochs", "3")
        .key("loader.cache", format!("{:?}", cache.display().to_string()))
        .key("loader.cache_bytes", bytes.to_string())
}

/// What the ranks' logs say.
fn logs(ended: &Ended) -> String {
    let entries = std::fs::read_dir(ended.out().join("logs")).unwrap();
    let logs = entries.map(|entry| entry.unwrap().path());
    let of_ranks = logs.filter(|log| log.to_string_lossy().contains("-rank-"));
    of_ranks
        .map(|log| std::fs::read_to_string(log).unwrap())
        .collect()
}

/// A sum over the groups of the summary.
fn counted(ended: &Ended, key: &str) -> f64 {
    let summary = ended.summary();
    let groups = summary["groups"].as_array().unwrap().iter();
    groups.map(|group| group[key].as_f64().unwrap()).sum()
}

fn bytes_of(folder: &Path, ending: &str) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(ending));
    files.map(|entry| entry.metadata().unwrap().len()).sum()
}

#[test]
fn files_of_sets_are_copied_once_and_kept_for_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    pack(folder.path());
    let cache = tempfile::tempdir().unwrap();
    let first = staged(folder.path(), cache.path(), 1 << 20).complete();
    assert!(first.status.success(), "{}", first.stderr);
    assert!(first.summary()["samples"]["applied"].as_u64().unwrap() >= 300);
    assert_eq!(
        bytes_of(cache.path(), ".copy"),
        bytes_of(folder.path(), ".pack"),
        "each file once, though both groups have read it"
    );
    assert!(logs(&first).contains("files are on this node's disk"));
    assert_eq!(
        counted(&first, "staged_bytes"),
        bytes_of(folder.path(), ".pack") as f64
    );
    assert!(counted(&first, "staged_seconds") > 0.0);
    let kept = || -> Vec<_> {
        let entries = std::fs::read_dir(cache.path()).unwrap().map(Result::unwrap);
        let copies = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".copy"));
        let mut copies: Vec<_> = copies
            .map(|copy| copy.metadata().unwrap().created().unwrap())
            .collect();
        copies.sort_unstable();
        copies
    };
    let before = kept();
    let second = staged(folder.path(), cache.path(), 1 << 20).complete();
    assert!(second.status.success(), "{}", second.stderr);
    assert_eq!(kept(), before, "nothing was copied again");
    assert_eq!(counted(&second, "staged_bytes"), 0.0);
}

#[test]
fn files_that_have_no_room_are_read_where_they_are_and_that_is_told() {
    let folder = tempfile::tempdir().unwrap();
    pack(folder.path());
    let cache = tempfile::tempdir().unwrap();
    let ended = staged(folder.path(), cache.path(), 4096).complete();
    assert!(ended.status.success(), "{}", ended.stderr);
    assert!(ended.summary()["samples"]["applied"].as_u64().unwrap() >= 300);
    assert_eq!(bytes_of(cache.path(), ".copy"), 0);
    let told = logs(&ended);
    assert!(told.contains("0.pack") && told.contains("4096"), "{told}");
}

#[test]
fn a_damaged_sample_ends_the_run_or_is_replaced_as_the_configuration_says() {
    let folder = tempfile::tempdir().unwrap();
    pack(folder.path());
    let path = folder.path().join("0.pack");
    let mut bytes = std::fs::read(&path).unwrap();
    // In the image of sample 10, which has 1200 bytes of its number.
    let at = bytes.windows(600).position(|window| window == [10; 600]);
    bytes[at.unwrap() + 300] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let ended = run(folder.path()).key("train.samples", "300").complete();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("sample 10, "), "{}", ended.stderr);
    let replaced = run(folder.path())
        .key("train.samples", "300")
        .key("loader.damaged", "\"replace\"")
        .complete();
    assert!(replaced.status.success(), "{}", replaced.stderr);
    assert_eq!(replaced.summary()["samples"]["applied"], 300);
    let told = logs(&replaced);
    assert!(
        told.contains("sample 10, ") && told.contains("0.pack"),
        "{told}"
    );
}
