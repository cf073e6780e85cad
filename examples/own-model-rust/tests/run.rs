//! The example as a person uses it. Its programs and Tradewind's are built into one folder
//! (`make example`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const OWN: &str = env!("CARGO_BIN_EXE_own-model-rust");

/// The example's folder.
fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder for this test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// `tradewind run` of a configuration, with the example's program.
fn run(config: &Path, out: &Path, set: &[&str]) -> Output {
    let tradewind = Path::new(OWN).with_file_name("tradewind");
    let mut command = Command::new(&tradewind);
    command.arg("run").arg(config).arg("--out").arg(out);
    command.arg("--set").arg(format!("model.program={OWN}"));
    for set in set {
        command.arg("--set").arg(set);
    }
    let output = command.output();
    output.unwrap_or_else(|error| panic!("{}: {error}; cargo build --bins", tradewind.display()))
}

fn complaints(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn it_trains_and_its_run_can_be_looked_at_without_its_program() {
    let out = folder("trains").join("run");
    let output = run(&here().join("run.toml"), &out, &[]);
    assert!(output.status.success(), "{}", complaints(&output));
    let evaluation = fs::read_to_string(out.join("evaluation.json")).unwrap();
    assert!(evaluation.contains("validation error"), "{evaluation}");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains("error"), "{told}");
    // As on a machine that does not have the program.
    let config = fs::read_to_string(out.join("config.toml")).unwrap();
    assert!(config.contains("[rings]\nwidth = 32\n"), "{config}");
    fs::write(out.join("config.toml"), config.replace(OWN, "/gone")).unwrap();
    let status = Command::new(Path::new(OWN).with_file_name("tradewind"))
        .arg("status")
        .arg(&out)
        .output()
        .unwrap();
    assert!(status.status.success(), "{}", complaints(&status));
}

#[test]
fn wrong_keys_are_told_with_file_and_line_before_anything_starts() {
    let folder = folder("wrong");
    let text = fs::read_to_string(here().join("run.toml")).unwrap();
    let check = |change: &[(&str, &str)], set: &[&str], want: &[&str]| {
        let changed = change.iter();
        let text = changed.fold(text.clone(), |text, (old, new)| text.replace(old, new));
        let config = folder.join("run.toml");
        fs::write(&config, &text).unwrap();
        let out = folder.join("out");
        let output = run(&config, &out, set);
        assert_eq!(output.status.code(), Some(2), "{}", complaints(&output));
        assert!(!out.exists(), "it has begun");
        let told = complaints(&output);
        let lines: Vec<&str> = told.lines().collect();
        let file = config.display();
        let line_of = |key: &str| text.lines().position(|line| line.starts_with(key)).unwrap() + 1;
        let want = want.iter().map(|want| match want.split_once(" @ ") {
            Some((key, want)) => format!("{file}, line {}: {want}", line_of(key)),
            None => (*want).to_owned(),
        });
        assert_eq!(lines, want.collect::<Vec<String>>());
    };
    check(
        &[
            ("width = 32", "widht = 32"),
            ("noise = 0.2", "noise = -1"),
            ("batch = 16", "bacth = 16"),
        ],
        &[],
        &[
            "widht @ rings.widht is no key; did you mean \"rings.width\"?",
            "noise @ rings.noise = -1; it takes a number from 0 to 10",
            "bacth @ train.bacth is no key; did you mean \"train.batch\"?",
            "see docs/configuration.md#train",
        ],
    );
    check(
        &[],
        &["rings.width=\"wide\"", "model.name=ring"],
        &[
            "--set: rings.width = \"wide\"; it takes an integer from 1 to 4096",
            "--set: model.name = \"ring\"; it takes one of \"forecast\", \"mnist\", \"resnet50\", \"replay\", \"cosmoflow\", \"hep\", \"deepcam\", \"climate-boxes\", \"rings\"; did you mean \"rings\"?",
            "see docs/configuration.md#model",
        ],
    );
    check(
        &[("noise = 0.2", "noise = 0.7")],
        &["servers.replication=2"],
        &[
            "noise @ rings.noise = 0.7 makes the rings one; give 0 to 0.5",
            "--set: servers.replication = 2 is more than cluster.servers: copies of a shard are on different servers",
            "see docs/configuration.md#servers",
        ],
    );
    check(
        &[],
        &["model.program=/nowhere/own", "train.bacth=1"],
        &[
            "--set: train.bacth is no key; did you mean \"train.batch\"?",
            "--set: model.program = \"/nowhere/own\" cannot be asked for its tasks: it cannot be run: No such file or directory (os error 2); build it, or correct the path",
            "see docs/configuration.md#model",
            "see docs/configuration.md#train",
        ],
    );
}
