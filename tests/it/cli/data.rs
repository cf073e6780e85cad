//! `tradewind data`: samples of HDF5 files become packed ones, and what is wrong with them is named.

use std::fs;
use std::os::unix::fs::PermissionsExt;
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
        2,
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

#[test]
fn data_are_not_made_in_a_folder_of_other_ones() {
    let folder = tempfile::tempdir().unwrap();
    let make = |more: &[&str]| {
        let words = ["make", "cosmology", "--samples=17", "--out=made"];
        data(folder.path(), &[&words, more].concat())
    };
    let (code, told) = make(&[]);
    assert_eq!(code, Some(0), "{told}");
    let (code, told) = make(&["--seed=2"]);
    assert_eq!(code, Some(2), "{told}");
    assert!(
        told.contains("made: it was begun for something else: its seed is 1"),
        "{told}"
    );
    // Damage to what was made is no wrong request.
    let train = folder.path().join("made/train");
    let file = fs::read_dir(train).unwrap().next().unwrap().unwrap();
    fs::write(file.path(), "not whole").unwrap();
    let (code, told) = make(&[]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("delete it, and it is made again"), "{told}");
}

#[test]
fn packing_that_is_interrupted_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    // 3000 samples of 16 kB: version 1.0 of NumPy's form has 128 bytes before them.
    let head = "{'descr': '<f4', 'fortran_order': False, 'shape': (3000, 4096)}";
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend(format!("{head:117}\n").as_bytes());
    bytes.extend((0..3000 * 4096u32).flat_map(|n| (n as f32).to_le_bytes()));
    fs::write(folder.path().join("x.npy"), bytes).unwrap();
    let packing = Command::new(root().join("target/debug/tradewind"))
        .args(["data", "pack", "x.npy", "packed", "--compress=lz4"])
        .current_dir(folder.path())
        .stderr(std::process::Stdio::piped())
        .spawn();
    let packing = packing.unwrap();
    // A file is begun when signals are heard.
    let part = folder.path().join("packed.part");
    while fs::read_dir(&part).map_or(0, Iterator::count) == 0 {
        std::thread::yield_now();
    }
    let signal = Command::new("kill")
        .args(["-INT", &packing.id().to_string()])
        .status();
    assert!(signal.unwrap().success());
    let ended = packing.wait_with_output().unwrap();
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("interrupted: nothing is kept"), "{stderr}");
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 1, "the samples are all that is there");
}

#[test]
fn generators_end_with_the_command_that_asks_them() {
    let folder = tempfile::tempdir().unwrap();
    let python = folder.path().join("python");
    // Each says who it is, and then writes little for ever.
    let script = "#!/bin/sh\n\
                  if test \"$4\" = versions; then echo Pythia 1.0; exit; fi\n\
                  echo $$ > pid.part.$$ && mv pid.part.$$ pid.$$\n\
                  while echo half; do sleep 0.1; done\n";
    fs::write(&python, script).unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    let words = "data make hep --samples=600 --threads=2 --out=made --python=./python";
    let mut making = Command::new(root().join("target/debug/tradewind"))
        .args(words.split(' '))
        .current_dir(folder.path())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let started = || {
        let names = fs::read_dir(folder.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let started = names.filter_map(|name| name.strip_prefix("pid.")?.parse::<u32>().ok());
        started.collect::<Vec<_>>()
    };
    while started().len() < 2 {
        std::thread::yield_now();
    }
    making.kill().unwrap();
    making.wait().unwrap();
    // Who is dead and has not been waited for by its new parent yet has no memory any more.
    let is_alive = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status"));
        status.is_ok_and(|status| status.contains("VmSize"))
    };
    for pid in started() {
        while is_alive(pid) {
            std::thread::yield_now();
        }
    }
    let (code, told) = data(
        folder.path(),
        &["make", "cosmology", "--python=./python", "--out=other"],
    );
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("cosmology needs no Python"), "{told}");
}
