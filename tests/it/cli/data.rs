//! `tradewind data`: samples of HDF5 files become packed ones, and what is wrong with them is named.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tradewind_tests::cluster::root;

fn data(folder: &Path, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(root().join("target/debug/tradewind"));
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .arg("data")
        .args(words)
        .current_dir(folder)
        .output()
        .unwrap();
    let told = [stdout, stderr].concat();
    (status.code(), String::from_utf8(told).unwrap())
}

/// Three files of five samples each, as those of high-energy physics are: sample `n` is an image of `n`, and of
/// class `n % 2`.
fn files(folder: &Path) {
    fs::create_dir(folder.join("raw")).unwrap();
    for file in 0..3 {
        let path = folder.join(format!("raw/events-{file}.h5"));
        let written = hdf5_metno::File::create(path).unwrap();
        let number = |row: usize| 5 * file + row;
        let images = ndarray::Array3::from_shape_fn((5, 2, 2), |(row, ..)| number(row) as f32);
        let labels = ndarray::Array1::from_shape_fn(5, |row| number(row) as i32 % 2);
        let sets = written.new_dataset_builder();
        sets.with_data(&images).create("data").unwrap();
        let sets = written.new_dataset_builder();
        sets.with_data(&labels).create("label").unwrap();
    }
}

#[test]
fn samples_are_listed_packed_counted_and_verified() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    let check = |words: &[&str], status: i32, wanted: &[&str]| {
        let (code, told) = data(folder.path(), words);
        assert_eq!(code, Some(status), "{words:?}: {told}");
        for text in wanted {
            assert!(told.contains(text), "{text:?} is not in {told}");
        }
    };
    let layout = "--layout=image=data[samples]:f32,label=label[samples]:u8<2";
    check(
        &["manifest", "raw", layout],
        0,
        &["15 samples", "samples.manifest"],
    );
    check(
        &["manifest", "raw", layout],
        2,
        &["is there already; delete it"],
    );
    let fields = [
        "15 samples",
        "image f32 [2, 2]",
        "label u8 []",
        "classes 0..2",
    ];
    check(&["inspect", "raw"], 0, &fields);
    check(
        &["pack", "raw", "packed", "--files=2"],
        0,
        &["15 samples", "2 files"],
    );
    check(
        &["pack", "raw", "packed"],
        1,
        &["packed: it is there already"],
    );
    check(&["verify", "packed"], 0, &["all 15 samples are whole"]);
    check(
        &["stats", "packed", "--out=stats.json"],
        0,
        &["class 0", "53.333%"],
    );
    let stats = fs::read_to_string(folder.path().join("stats.json")).unwrap();
    let stats: Value = serde_json::from_str(&stats).unwrap();
    assert_eq!(stats[0]["channels"][0]["mean"], 7.0);
    assert_eq!(stats[1]["classes"], serde_json::json!([8, 7]));

    // The first record begins at byte 64.
    let path = folder.path().join("packed/00001.pack");
    let mut bytes = fs::read(&path).unwrap();
    bytes[70] ^= 1;
    fs::write(&path, bytes).unwrap();
    let bad = "bad: sample 7, packed/00001.pack at byte 64 (";
    check(&["verify", "packed"], 1, &[bad, "1 of 15 samples"]);
    check(
        &["pack", "packed", "others"],
        1,
        &["sample 7, ", "checksum"],
    );
    assert!(!folder.path().join("others").exists());
    check(
        &["pack", "packed", "others", "--leave-out"],
        0,
        &["left out: sample 7", "14 samples"],
    );
    check(&["inspect", "none"], 2, &["none: No such file"]);
    check(
        &["inspect", "raw", "--layout=image"],
        2,
        &["--layout image: "],
    );
}
