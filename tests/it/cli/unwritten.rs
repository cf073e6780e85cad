//! What a person has started goes on when nothing can be written where it prints.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tradewind_tests::cluster::programs;
use tradewind_tests::cluster::run::Run;

/// A disk that is full.
fn full() -> Stdio {
    let full = OpenOptions::new().write(true).open("/dev/full");
    full.unwrap().into()
}

/// A pipe that nobody reads any more.
fn closed() -> Stdio {
    let (_, pipe) = std::io::pipe().unwrap();
    pipe.into()
}

fn tradewind(arguments: &[&str], output: Stdio, errors: Stdio) -> (Option<i32>, String) {
    let mut command = Command::new(programs().join("tradewind"));
    command.args(arguments).env_remove("LD_LIBRARY_PATH");
    let child = command.stdin(Stdio::null()).stdout(output).stderr(errors);
    let ended = child.spawn().unwrap().wait_with_output().unwrap();
    let errors = String::from_utf8(ended.stderr).unwrap();
    (ended.status.code(), errors)
}

fn written(run: &Run) -> String {
    let path = run.folder().join("config.toml");
    fs::write(&path, run.text()).unwrap();
    path.display().to_string()
}

#[test]
fn a_command_ends_as_it_would() {
    let run = Run::new();
    let good = written(&run);
    for errors in [full, closed] {
        let (status, _) = tradewind(&["config", "no-such.toml"], Stdio::null(), errors());
        assert_eq!(status, Some(2), "what is wrong cannot be said");
    }
    let (status, _) = tradewind(&["config", &good], closed(), Stdio::piped());
    assert_eq!(status, Some(0), "whoever reads has had enough");
    let (status, errors) = tradewind(&["config", &good], full(), Stdio::piped());
    assert_eq!(status, Some(1), "what was asked for is not there");
    assert!(errors.contains("cannot be printed"), "{errors}");
}

#[test]
fn a_run_comes_to_its_end() {
    let run = Run::new();
    let good = written(&run);
    for (way, output) in [full as fn() -> Stdio, closed].into_iter().enumerate() {
        let out = run.folder().join(format!("out-{way}"));
        let arguments = ["run", &good, "--out", out.to_str().unwrap()];
        let (status, _) = tradewind(&arguments, output(), output());
        assert_eq!(status, Some(0), "{}", logs(&out));
        let summary = fs::read_to_string(out.join("summary.json")).unwrap();
        let summary: Value = serde_json::from_str(&summary).unwrap();
        assert_eq!(summary["status"], "completed");
    }
}

fn logs(out: &Path) -> String {
    let logs = fs::read_dir(out.join("logs")).into_iter().flatten();
    let text = logs.filter_map(|log| fs::read_to_string(log.ok()?.path()).ok());
    text.collect()
}
