//! The page of a real run.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tradewind_common::{RunId, run_files};
use tradewind_folder::events::{Event, Events};
use tradewind_folder::lines::Metrics;

use super::browser::{Browser, THERE};
use crate::http::tests::Served;

/// What happens in order when training is over.
const IN_ORDER: [&str; 2] = ["group_left", "snapshot"];

/// The folder of the whole project.
fn root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).expect("it is in deploy/watch")
}

/// A very small run of two groups on three servers, each shard of which has a copy.
fn config() -> String {
    let data = root().join(".deps/data/E1_north_america.nc");
    format!(
        r#"run.name = "small"
cluster.servers = 3
cluster.groups = [1, 1]
servers.replication = 2
compute.device = "cpu"
model.channels = 2
model.depth = 0
data.files = [{data:?}]
data.variable = "air_temperature"
data.validation = [180, 190]
data.held_out = [200, 210]
train.samples = 160
optimizer.learning_rate = 0.01
exchange.block_bytes = 256
exchange.bucket_bytes = 512
"#
    )
}

/// Runs it to its end, with the programs beside this test, which are built first if need be.
fn complete(folder: &Path) {
    let test = std::env::current_exe().unwrap();
    let programs = test.ancestors().nth(2).expect("target/<profile>/deps/NAME");
    if std::env::var_os("TRADEWIND_BUILT").is_none() {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--workspace", "--bins", "--target-dir"]);
        let built = cargo.arg(programs.parent().unwrap()).current_dir(root());
        assert!(
            built.status().unwrap().success(),
            "the programs do not build"
        );
    }
    let file = folder.join("config.toml");
    fs::write(&file, config()).unwrap();
    let mut run = Command::new(programs.join("tradewind"));
    let run = run
        .arg("run")
        .arg(file)
        .arg("--out")
        .arg(folder.join("run"));
    let ended = run.env_remove("LD_LIBRARY_PATH").output().unwrap();
    let complaints = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{complaints}");
}

/// Whoever looks at a run that has ended well is not to take its end for a failure: no server tells of another
/// one, of its copies or of ranks that they were lost, and the page finds no fault.
#[test]
fn the_end_of_a_run_is_no_fault() {
    let folder = tempfile::tempdir().unwrap();
    complete(folder.path());
    let run = folder.path().join("run");
    let records = Metrics::new(run.join(run_files::METRICS)).fresh().unwrap();
    // A group that is done leaves while the other one may still train.
    let last = |group| {
        let own = records.iter().filter(|record| record.group == group);
        own.map(|record| record.wall).reduce(f64::max)
    };
    let trained = f64::min(last(0).expect("it trains"), last(1).expect("it trains"));
    let events = Events::of(&run, &RunId::new("small").unwrap()).all();
    let after = || events.iter().filter(|event| event.wall >= trained);
    let left = after().filter(|event| event.kind == "group_left").count();
    assert_eq!(left, 2, "{events:?}");
    let out_of_order = |event: &&Event| !IN_ORDER.contains(&event.kind.as_str());
    let found: Vec<&Event> = after().filter(out_of_order).collect();
    assert!(found.is_empty(), "after training: {found:?}");

    let Some(mut browser) = Browser::open() else {
        return;
    };
    let served = Served::new(&[&run], "secret");
    browser.go(&format!("http://{}/?token=secret", served.address));
    browser.wait(&format!("{THERE} && runs[0].look.state === 'completed'"));
    assert_eq!(
        browser.value("runs[0].events.map(event => event.kind)"),
        events
            .iter()
            .map(|event| event.kind.as_str())
            .collect::<Value>(),
    );
    // Who held what when it ended is still to be seen.
    let copies = "runs[0].look.shards.map(shard => shard.copies.length)";
    assert_eq!(browser.value(copies), json!([1, 1, 1]));
    assert_eq!(browser.value("incidents(runs[0])"), json!([]));
    assert_eq!(browser.value("$('incidents').hidden"), json!(true));
    browser.key("f");
    browser.wait("$('events').innerText === 'no faults'");
}
