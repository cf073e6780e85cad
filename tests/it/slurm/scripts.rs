//! Ranks that are a script in Python, as `make python` has made the package.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tradewind_tests::cluster::root;
use tradewind_tests::cluster::run::Run;
use tradewind_tests::cluster::slurm::Slurm;

use super::on_nodes;
use super::tls::strangers_are_refused;

/// A run of one of the scripts that the Python package's own tests have in `file`. It writes into `told`.
fn script(file: &str, name: &str, told: &Path) -> Run {
    let torch = root().join(".deps/torch-without-nvidia");
    let package = root().join("worker/python");
    let variables = [
        format!("TOLD={}", told.display()),
        format!("LD_LIBRARY_PATH={}", torch.display()),
        format!("PYTHONPATH={}:{}", torch.display(), package.display()),
    ];
    let python = root().join(".deps/venv/bin/python");
    let words = [python, package.join("tests").join(file)];
    let words = words.map(|path| path.display().to_string());
    let command = [
        &["env".to_owned()][..],
        &variables,
        &words,
        &[name.to_owned()],
    ]
    .concat();
    on_nodes(Run::script()).key("model.command", format!("{command:?}"))
}

fn lines(told: &Path, name: &str) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(told.join(name)).unwrap_or_default();
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().expect("whole lines")
}

/// Numbers of the samples of each batch that a rank has used.
fn batches(told: &Path, rank: &str) -> Vec<Vec<u64>> {
    let lines = lines(told, &format!("batches-{rank}")).into_iter();
    let batches = lines.map(serde_json::from_value);
    batches.collect::<Result<_, _>>().expect("numbers")
}

#[test]
#[ignore = "needs a Slurm cluster: make slurm-test"]
fn a_script_is_the_ranks_of_a_job() {
    let slurm = Slurm::take();
    let told = tempfile::tempdir().unwrap();
    let run = script("scripts.py", "train", told.path())
        .key("cluster.servers", "2")
        .key("cluster.groups", "[2, 1]")
        .key("slurm.ranks_per_node", "1")
        .key("train.consistency", "\"sync\"")
        .key("train.batch", "8")
        .key("train.samples", "2400");
    let (submitted, shown) = slurm.watch(&run);
    let summary = submitted.summary();
    assert_eq!(summary["status"], "completed", "{shown}{}", submitted.log());
    let ranks = ["0-0", "0-1", "1-0"];
    let used = ranks.map(|rank| batches(told.path(), rank));
    assert_eq!(used.each_ref().map(Vec::len), [100; 3]);
    for step in 0..100 {
        let samples = used.iter().flat_map(|batches| &batches[step]);
        assert_eq!(samples.collect::<BTreeSet<_>>().len(), 24, "of step {step}");
    }
    // Under `sync` all of them have the same values, to the bit.
    let values = ranks.map(|rank| lines(told.path(), &format!("values-{rank}")));
    assert_eq!(values[0].len(), 1);
    assert_eq!(values[0], values[1]);
    assert_eq!(values[0], values[2]);
}

#[test]
#[ignore = "needs a Slurm cluster: make slurm-test"]
fn a_script_survives_the_loss_of_a_node() {
    let slurm = Slurm::take();
    let told = tempfile::tempdir().unwrap();
    let run = script("scripts.py", "train", told.path())
        .key("cluster.servers", "2")
        .key("servers.replication", "2")
        .key("cluster.groups", "[2, 2]")
        .key("slurm.ranks_per_node", "1")
        .key("train.consistency", "\"async\"")
        .key("train.batch", "8")
        .key("pace.step_seconds", "0.1")
        .key("train.samples", "6400");
    let submitted = slurm.submit(&run);
    submitted.goes_on(0, 20);
    submitted.goes_on(1, 20);
    strangers_are_refused(&slurm, &submitted);
    slurm.node("off", "n8");
    submitted.goes_on(0, 50);
    submitted.goes_on(1, 20);
    let summary = submitted.summary();
    slurm.node("on", "n8");
    assert_eq!(summary["status"], "completed", "{}", submitted.log());
    assert_eq!(summary["faults"]["lost"]["updates"], 0, "{summary}");
}

#[test]
#[ignore = "needs a Slurm cluster: make slurm-test"]
fn an_island_evaluates_in_its_job_and_no_rank_has_the_whole_model() {
    let slurm = Slurm::take();
    let told = tempfile::tempdir().unwrap();
    let run = script("island_scripts.py", "train", told.path())
        .key("cluster.servers", "1")
        .key("cluster.groups", "[1, 2]")
        .key("slurm.ranks_per_node", "1")
        .key("train.consistency", "\"sync\"")
        .key("train.batch", "8")
        .key("train.samples", "480");
    let (submitted, shown) = slurm.watch(&run);
    let summary = submitted.summary();
    assert_eq!(summary["status"], "completed", "{shown}{}", submitted.log());
    assert!(summary["metric"]["value"].is_f64(), "{summary}");
    // The rank that is a group of its own has 203 parameters, and evaluates nothing.
    let held = |rank: &str| lines(told.path(), &format!("evaluated-{rank}"));
    assert!(held("0-0").is_empty());
    let parts = ["1-0", "1-1"].map(|rank| held(rank)[0].as_u64().unwrap());
    assert_eq!(parts.iter().sum::<u64>(), 203, "{parts:?}");
    assert!(
        parts.iter().all(|part| (1..203).contains(part)),
        "{parts:?}"
    );
    assert!(submitted.out().join("model.safetensors").is_file());
}
