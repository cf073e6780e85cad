//! Ranks that are a script: a shell script stands for a person's Python.

use std::fs;

use tradewind_common::environment;
use tradewind_programs::worker::{WorkerArguments, WorkerVerb};
use tradewind_tests::cluster::programs;
use tradewind_tests::cluster::run::{Ended, Run};

/// A run of a script of the shell, which names no model and no data.
fn run(script: &str) -> Run {
    let run = Run::script();
    fs::write(run.folder().join("train.sh"), script).unwrap();
    let path = run.folder().join("train.sh").display().to_string();
    run.argument("--").argument("sh").argument(path)
}

/// It writes its environment down and ends in a way that nothing can mend.
const TELLS: &str = r#"
env > "$0.$$"
echo "said by the script"
exit 4
"#;

#[test]
fn a_script_is_told_who_it_is_and_nothing_of_another_launcher() {
    let run = run(TELLS)
        .key("script.width", "64")
        .variable("PMI_RANK", "1")
        .variable("SLURM_PROCID", "2")
        .variable("WORLD_SIZE", "3")
        .variable("OMP_NUM_THREADS", "5");
    let folder = run.folder().to_owned();
    let ended = run.complete();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let want = "the run failed: rank 0 of group 0 ended with status 4";
    assert!(ended.stderr.contains(want), "{}", ended.stderr);
    let log = fs::read_to_string(ended.out().join("logs/group-0-rank-0.log")).unwrap();
    assert_eq!(log, "said by the script\n");

    let names = fs::read_dir(&folder).unwrap().flatten();
    let told = names.map(|entry| entry.path());
    let told = told.filter(|path| path.display().to_string().contains("train.sh."));
    let told: Vec<String> = told.map(|path| fs::read_to_string(path).unwrap()).collect();
    let [told] = &told[..] else {
        panic!("one life: {told:?}")
    };
    let value = |name: &str| {
        let mut lines = told.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
    };
    let arguments = value(environment::WORKER).expect("the worker's arguments");
    let WorkerVerb::Train(train) = WorkerArguments::from_variable(arguments).unwrap().verb else {
        panic!("it trains: {arguments}")
    };
    assert_eq!((train.group, train.rank, train.local_rank), (0, 0, 0));
    assert_eq!(
        train.config,
        ended.out().canonicalize().unwrap().join("config.toml")
    );
    let config = fs::read_to_string(train.config).unwrap();
    assert!(config.contains("\n[script]\nwidth = 64\n"), "{config}");
    assert!(value(environment::TOKEN).is_some());
    assert_eq!(value("OMP_NUM_THREADS"), Some("5"), "a person has chosen");
    for hidden in ["PMI_RANK", "SLURM_PROCID", "WORLD_SIZE"] {
        assert_eq!(value(hidden), None, "{hidden}");
    }
}

/// It trains and evaluates as a worker does, by a configuration that names a model; EVALUATES has words of the
/// shell that come before the evaluation.
const TRAINS: &str = r#"
case "$TRADEWIND_WORKER" in *'"evaluate"'*) eval "$EVALUATES" ;; esac
words=$(echo "$TRADEWIND_WORKER" | tr -d '[]"' | tr , ' ' | sed "s|--config=[^ ]*|--config=$0.toml|")
"$TRAINER" $words
"#;

fn trains(evaluates: &str) -> Ended {
    let run = run(TRAINS)
        .variable("TRAINER", programs().join("tradewind-worker"))
        .variable("EVALUATES", evaluates);
    fs::write(run.folder().join("train.sh.toml"), Run::new().text()).unwrap();
    run.complete()
}

#[test]
fn a_script_is_started_once_more_to_evaluate() {
    let ended = trains("");
    assert!(ended.status.success(), "{}", ended.stderr);
    let summary = ended.summary();
    assert_eq!(summary["status"], "completed");
    assert_eq!(summary["samples"]["applied"], 64);
    assert!(summary["metric"]["value"].is_f64(), "{summary}");
    assert!(!ended.out().join("logs/check.log").exists());
}

#[test]
fn a_script_that_evaluates_nothing_completes_without_a_metric() {
    let ended = trains("exit 0");
    assert!(ended.status.success(), "{}", ended.stderr);
    let told = "the script has registered no function with @rank.evaluate";
    assert!(ended.stdout.contains(told), "{}", ended.stdout);
    let summary = ended.summary();
    assert_eq!(summary["status"], "completed");
    assert_eq!(summary["metric"], serde_json::Value::Null);
    assert!(!ended.out().join("evaluation.json").exists());
}

#[test]
fn a_script_that_fails_to_evaluate_fails_the_run() {
    let ended = trains("echo 'no held-out data'; exit 3");
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    for want in [
        "the evaluation ended with status 3",
        "evaluate.log",
        "no held-out data",
    ] {
        assert!(ended.stderr.contains(want), "{}", ended.stderr);
    }
    assert_eq!(ended.summary()["status"], "failed");
}

#[test]
fn a_script_that_never_trains_has_not_done_its_part() {
    let ended = run("exit 0").complete();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let want = "rank 0 of group 0 ended with status 0 before its group had left the run (a script calls tradewind.join(), and trains until rank.done), 6 times without progress";
    assert!(ended.stderr.contains(want), "{}", ended.stderr);
    let summary = ended.summary();
    assert_eq!(summary["status"], "failed");
    assert_eq!(summary["metric"], serde_json::Value::Null);
}

#[test]
fn a_command_that_is_not_there_is_named_before_anything_is_started() {
    let check = |command: &[&str], want: &str| {
        let run = Run::script().argument("--");
        let run = command.iter().fold(run, |run, word| run.argument(*word));
        let ended = run.complete();
        assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(want), "{}", ended.stderr);
        assert!(!ended.out().exists());
    };
    check(
        &["pyhton", "train.py"],
        "model.command: there is no program \"pyhton\" in PATH, which is ",
    );
    check(
        &["./nowhere.sh"],
        "model.command: ./nowhere.sh is no program that can be run",
    );
}

#[test]
fn the_configuration_of_a_script_is_printed_with_its_command() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.toml");
    let text = "[run]\nname = \"own\"\n[train]\nsamples = 100\nbatch = 4\n[optimizer]\nname = \"sgd\"\nlearning_rate = 0.1\n";
    fs::write(&path, text).unwrap();
    let print = |words: &[&str]| {
        let mut command = std::process::Command::new(programs().join("tradewind"));
        command
            .arg("config")
            .arg(&path)
            .args(words)
            .output()
            .unwrap()
    };
    let printed = print(&["--", "sh", "train.sh"]);
    let stderr = String::from_utf8(printed.stderr).unwrap();
    assert!(printed.status.success(), "{stderr}");
    let resolved = String::from_utf8(printed.stdout).unwrap();
    assert!(
        resolved.contains(r#"command = ["sh", "train.sh"]"#),
        "{resolved}"
    );
    // Without it the model is a built-in one, which needs data.
    let refused = print(&[]);
    assert_eq!(refused.status.code(), Some(2));
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(stderr.contains("data.files is missing"), "{stderr}");
}
