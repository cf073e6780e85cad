//! Runs of a person's own script.

use std::path::Path;

use serde_json::json;

use super::{GOOD, parse};
use crate::{Config, Mnist, command_override};

const SCRIPT: &str = r#"
[run]
name = "r"

[model]
command = ["python", "train.py", "--name=a \"b\""]

[script]
width = 64
rate = 1e-3
since = 2026-01-02
layers = ["wide", { size = 3, "a key" = true }]
text = "two\nlines"

[script.data]
files = ["a.csv"]

[train]
samples = 100

[optimizer]
learning_rate = 1
"#;

#[test]
fn its_command_and_settings_are_read_and_written_down() {
    let set = ["script.width=32", "script.data.part=0.5", "script.kind=big"];
    let config = parse(SCRIPT, &set).unwrap();
    assert_eq!(config.command, ["python", "train.py", "--name=a \"b\""]);
    assert!(config.is_script());
    let want = json!({
        "width": 32,
        "rate": 0.001,
        "since": "2026-01-02",
        "layers": ["wide", { "size": 3, "a key": true }],
        "text": "two\nlines",
        "data": { "files": ["a.csv"], "part": 0.5 },
        "kind": "big",
    });
    assert_eq!(config.script, *want.as_object().unwrap());
    assert_eq!(config.task.settings::<Mnist>(), None);
    assert!(config.idle().is_empty(), "{:?}", config.idle());

    let resolved = config.resolved();
    assert!(!resolved.contains("name = \"forecast\""), "{resolved}");
    assert!(!resolved.contains("[data]"), "{resolved}");
    let again = Config::parse(resolved, "c.toml", Path::new("/x"), &[]).unwrap();
    assert_eq!(again, config);

    let identity = config.identity();
    assert!(identity.contains("script.width = 32\n"), "{identity}");
    let narrow = parse(SCRIPT, &["script.width=16"]).unwrap();
    assert_ne!(narrow.identity(), identity);
}

#[test]
fn its_command_may_come_from_the_command_line() {
    let words = ["python", "my train.py", "--rate=1e-3"].map(str::to_owned);
    let text = SCRIPT.replace("[model]\ncommand", "[model]\n#");
    let config = parse(&text, &[&command_override(&words)]).unwrap();
    assert_eq!(config.command, words);
    let config = parse(GOOD, &[&command_override(&words)]).unwrap();
    let idle = config.idle().join("\n");
    assert!(
        idle.starts_with("data.files has no effect while model.command is set"),
        "{idle}"
    );
}

#[test]
fn of_its_loader_the_run_decides_what_is_read_and_not_how_far_ahead() {
    let overrides = [
        "loader.sets=2",
        "train.consistency=async",
        "loader.cache=/tmp/a",
        "loader.cache_bytes=9",
        "loader.damaged=replace",
        "loader.bytes_ahead=8192",
        "loader.readers=2",
    ];
    let config = parse(SCRIPT, &overrides).unwrap();
    let idle = config.idle();
    let keys: Vec<_> = idle.iter().map(|line| line.split(' ').next()).collect();
    let want = ["loader.readers", "loader.bytes_ahead"];
    assert_eq!(keys, want.map(Some));
    assert!(idle[0].contains("num_workers"), "{idle:?}");
}

#[test]
fn what_does_not_fit_a_script_is_refused() {
    let check = |overrides: &[&str], want: &str| {
        let error = parse(SCRIPT, overrides).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    };
    check(
        &["model.name=mnist"],
        "--set: model.name = \"mnist\" has no place beside model.command",
    );
    check(
        &["model.program=own"],
        "--set: model.program = \"own\" has no place beside model.command",
    );
    check(&["model.command=['']"], "names no program");
    check(
        &["script.rate=nan"],
        "--set: script.rate is no finite number",
    );
    check(
        &["script.width.x=1"],
        "script.width.x is in width, which is no table",
    );
    let local = ["local.algorithm=diloco", "local.learning_rate=0.02"];
    let of_script = "local.learning_rate = 0.02 is the script's to decide";
    check(&local, of_script);
    let local = ["local.algorithm=diloco", "schedule.warmup_samples=5"];
    check(
        &local,
        "schedule.warmup_samples = 5 is the script's to decide",
    );
    let scatter = "exchange.reduce=scatter";
    let excludes = |other: &[&str], want: &str| {
        let overrides = [&[scatter], other].concat();
        check(
            &overrides,
            &format!("exchange.reduce = \"scatter\" excludes {want}"),
        );
    };
    excludes(&["exchange.per_bucket=true"], "exchange.per_bucket: ");
    excludes(
        &["local.algorithm=diloco", "local.steps=2"],
        "local.algorithm: ",
    );
    excludes(&["optimizer.name=lars"], "optimizer.name = \"lars\": ");
    let error = parse(GOOD, &[scatter]).unwrap_err().to_string();
    assert!(
        error.contains("exchange.reduce = \"scatter\" is for scripts"),
        "{error}"
    );
    let orphaned =
        "c.toml, line 9: section \"script\" is for a script of your own, and there is none";
    check(&["model.command=[]"], orphaned);
}

#[test]
fn the_data_of_a_clock_are_those_of_all_batches_of_its_steps() {
    let check = |overrides: &[&str], want: u32| {
        let set = [&["train.batches_per_step=3"], overrides].concat();
        let config = parse(SCRIPT, &set).unwrap();
        assert_eq!(config.spec(Vec::new(), 100).local_steps, want);
    };
    check(&["train.consistency=sync"], 3);
    let local = ["local.algorithm=diloco", "local.steps=4"];
    check(&[&["train.consistency=sync"], &local[..]].concat(), 12);
    check(&["train.consistency=async"], 1);
    let error = parse(GOOD, &["train.batches_per_step=3"]).unwrap_err();
    let want = "train.batches_per_step = 3 needs a script of your own";
    assert!(error.to_string().contains(want), "{error}");
}
