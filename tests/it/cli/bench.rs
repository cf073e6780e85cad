//! `tradewind bench` as a person uses it: what it measures is there, and what it cannot measure is
//! told. How fast anything is, is not a test's business.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use tradewind_tests::cluster::fleet::Fleet;
use tradewind_tests::cluster::programs;

const TOKEN: &str = "bench-token";

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(programs().join("tradewind"));
    command.arg("bench").args(arguments);
    command.env_remove("TRADEWIND_TOKEN");
    command
}

#[track_caller]
fn measured(command: &mut Command) -> Value {
    let Output {
        status,
        stdout,
        stderr,
    } = command.arg("--json").output().unwrap();
    let err = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{err}");
    serde_json::from_slice(&stdout).expect("one JSON object and nothing else")
}

/// A number that is there, by its JSON pointer.
#[track_caller]
fn number(report: &Value, pointer: &str) -> f64 {
    let value = report.pointer(pointer).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("{pointer} is no number in {report:#}"))
}

#[track_caller]
fn positive(report: &Value, pointers: &[&str]) {
    for pointer in pointers {
        assert!(number(report, pointer) > 0.0, "{pointer} in {report:#}");
    }
}

/// A small measurement.
const SMALL: [&str; 4] = ["exchange", "--bytes=4MB", "--seconds=0.05", "--runs=3"];

#[test]
fn a_connected_rank_has_two_connections_and_its_pushes_are_timed() {
    let few = [
        "scale",
        "--connected",
        "--groups=2,5",
        "--pushes=20",
        "--idle-seconds=0.5",
    ];
    let report = measured(&mut bench(&few));
    assert_eq!(report["groups"], serde_json::json!([2, 5]));
    let rows = report["rows"].as_array().unwrap();
    let row = |what: &str| {
        let found = rows.iter().find(|row| row["what"] == what);
        found.unwrap_or_else(|| panic!("no {what} in {report:#}"))
    };
    let descriptors = row("rank, idle: descriptors");
    // One for the coordinator and one for the exchange.
    assert_eq!(descriptors["values"], serde_json::json!([2.0, 2.0]));
    let memory = row("rank, idle: memory");
    assert_eq!(memory["unit"], "B");
    assert!(memory["values"][1].is_number(), "{report:#}");
    assert_eq!(row("push: processor time")["unit"], "µs");
    assert_eq!(rows.len(), 4);
}

#[test]
fn ranks_are_served_again_when_a_server_has_died() {
    let report = measured(&mut bench(&["scale", "--failover", "--groups=3"]));
    let rows = report["rows"].as_array().unwrap();
    let value = |what: &str| {
        let row = rows.iter().find(|row| row["what"] == what);
        let value = row.and_then(|row| row["values"][0].as_f64());
        value.unwrap_or_else(|| panic!("no {what} in {report:#}"))
    };
    let dies = |which: &str| value(&format!("a server dies: {which} rank served"));
    assert!(dies("last") >= dies("first"), "{report:#}");
    assert!(dies("first") > 0.0, "{report:#}");
    // The other server has taken over the shard of the one that died.
    assert_eq!(value("shards taken over"), 1.0);
    assert_eq!(value("ranks lost"), 0.0);
    assert_eq!(value("shards orphaned"), 0.0);
    // With three ranks as many may go as come.
    assert!(value("connections a second") >= 0.0, "{report:#}");
    assert_eq!(rows.len(), 9);
}

#[test]
fn ranks_find_the_next_coordinator_when_one_has_died() {
    let report = measured(&mut bench(&[
        "scale",
        "--failover=coordinator",
        "--groups=3",
    ]));
    let rows = report["rows"].as_array().unwrap();
    let value = |what: &str| {
        let row = rows.iter().find(|row| row["what"] == what);
        let value = row.and_then(|row| row["values"][0].as_f64());
        value.unwrap_or_else(|| panic!("no {what} in {report:#}"))
    };
    let first = value("coordinator: first beat answered");
    assert!(
        value("coordinator: hosted again") > 0.0 && first > 0.0,
        "{report:#}"
    );
    assert!(
        value("coordinator: all ranks' answered") >= first,
        "{report:#}"
    );
    // Each has come to it, and to the shard that was taken over.
    assert!(value("tries to connect a rank") >= 2.0, "{report:#}");
    assert_eq!(value("shards taken over"), 1.0);
    assert_eq!(value("ranks lost"), 0.0);
    assert_eq!(value("shards orphaned"), 0.0);
    assert_eq!(rows.len(), 14);
}

#[test]
fn a_run_is_measured_beside_a_flood_here_and_elsewhere() {
    let small = [
        "isolation",
        "--bytes=40KB",
        "--flood-bytes=1MB",
        "--flood-clients=2",
        "--seconds=0.05",
        "--runs=2",
    ];
    let report = measured(&mut bench(&small));
    for kind in ["alone", "flood_elsewhere", "flood_here"] {
        let felt = |key: &str| format!("/{kind}/{key}");
        positive(&report, &[&felt("p50"), &felt("p99")]);
        assert!(
            number(&report, &felt("exchanges")) >= 2.0,
            "one a sample, at least"
        );
    }
    positive(&report, &["/flood_gb_per_s", "/ratio_p50"]);
    let ratio = number(&report, "/flood_here/p99") / number(&report, "/flood_elsewhere/p99");
    assert_eq!(number(&report, "/ratio_p99"), ratio);
    let refused = bench(&["isolation", "--flood-bytes=3B"]).output().unwrap();
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(told.contains("the flood: --bytes is 3 B"), "{told}");
    assert_eq!(refused.status.code(), Some(2), "{told}");
}

#[test]
fn an_exchange_is_measured_beside_its_floor() {
    let report = measured(&mut bench(&SMALL));
    positive(
        &report,
        &[
            "/gb_per_s/exchange",
            "/gb_per_s/push",
            "/gb_per_s/pull",
            "/exchange_seconds/p50",
            "/exchange_seconds/p99",
            "/peak_rss_bytes/client",
            "/peak_rss_bytes/server",
            "/floor_gb_per_s",
            "/ratio_to_floor",
        ],
    );
    // Processor time comes in steps of 10 ms, so that little may be none.
    for pointer in [
        "/cpu_seconds_per_gb",
        "/cpu_seconds_per_gb_by/client",
        "/cpu_seconds_per_gb_by/server",
        "/floor_cpu_seconds_per_gb",
        "/spread/exchange",
        "/spread/floor",
        "/spread/ratio",
    ] {
        assert!(number(&report, pointer) >= 0.0, "{pointer} in {report:#}");
    }
    for (key, want) in [
        ("servers", 1.0),
        ("clients", 1.0),
        ("bytes", 4e6),
        ("block_bytes", 262_144.0),
        ("blocks", 16.0),
        ("connections", 1.0),
        ("runs", 3.0),
        ("slowest_client_over_fastest", 1.0),
    ] {
        assert_eq!(number(&report, &format!("/{key}")), want, "{key}");
    }
    assert_eq!(report["optimizer"], "sgd");
    for direction in ["up", "down"] {
        assert_eq!(report["compression"][direction], "none");
    }
    assert_eq!(report["ratio_to_baseline"], Value::Null);
}

#[test]
fn ranks_of_a_group_are_measured_beside_another_fleet() {
    let report = measured(bench(&SMALL).args([
        "--servers=2",
        "--clients=3",
        "--group",
        "--connections=2",
        "--optimizer=adam",
        "--block-bytes=64KiB",
        "--up=int8",
        "--down=bf16",
        "--baseline-block-bytes=1MB",
        "--baseline-clients=1",
    ]));
    positive(
        &report,
        &[
            "/gb_per_s/exchange",
            "/baseline/gb_per_s",
            "/ratio_to_baseline",
        ],
    );
    let slowest = number(&report, "/slowest_client_over_fastest");
    assert!(slowest > 0.0 && slowest <= 1.0, "{slowest}");
    assert_eq!(number(&report, "/servers"), 2.0);
    assert_eq!(number(&report, "/baseline/blocks"), 4.0);
    assert_eq!(report["compression"]["up"], "int8");
    assert_eq!(report["compression"]["down"], "bf16");
    assert_eq!(report["ratio_to_floor"], Value::Null);
}

#[test]
fn an_exchange_over_tls_is_measured_beside_one_in_clear() {
    let report = measured(bench(&SMALL).arg("--tls"));
    assert_eq!(report["tls"], true);
    positive(
        &report,
        &[
            "/gb_per_s/exchange",
            "/baseline/gb_per_s",
            "/ratio_to_baseline",
            "/cpu_seconds_per_gb",
        ],
    );
}

#[test]
fn a_fleet_that_runs_already_is_measured_from_outside() {
    let fleet = Fleet::start(2, TOKEN);
    let servers = format!("--servers={}", fleet.addresses()[0]);
    let attached = |token: &str| {
        let mut command = bench(&SMALL);
        command.arg(&servers).env("TRADEWIND_TOKEN", token);
        command
    };
    let report = measured(&mut attached(TOKEN));
    positive(&report, &["/gb_per_s/exchange", "/peak_rss_bytes/client"]);
    assert_eq!(number(&report, "/servers"), 2.0);
    for pointer in [
        "/cpu_seconds_per_gb",
        "/peak_rss_bytes/server",
        "/ratio_to_floor",
    ] {
        assert_eq!(report.pointer(pointer), Some(&Value::Null), "{pointer}");
    }
    // A client that dies is named, with its last lines.
    let refused = attached("another").output().unwrap();
    let err = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{err}");
    for text in [
        "client 0 ended with status 1; the last lines of ",
        "shows no token",
    ] {
        assert!(err.contains(text), "{text:?} is not in {err}");
    }
    let log = err.split_once("the last lines of ").unwrap().1;
    let folder = log.split_once("/client-0.log").unwrap().0;
    fs::remove_dir_all(folder).expect("the log is still there");
}

#[test]
fn what_cannot_be_measured_is_told() {
    let check = |arguments: &[&str], wanted: &str| {
        let ended = bench(&["exchange"]).args(arguments).output().unwrap();
        let err = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{err}");
        assert!(err.contains(wanted), "{wanted:?} is not in {err}");
    };
    check(&["--bytes=4002"], "not a multiple of 4");
    check(&["--block-bytes=65MiB"], "not 4 bytes to 64 MiB");
    check(&["--clients=0"], "--clients is 0");
    check(&["--servers=0"], "give a number of servers to start");
    check(&["--optimizer=sdg"], "possible values: sgd, momentum, adam");
    check(&["--bytes=4XB"], "is no size");

    // Without the server's program beside it.
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("tradewind");
    fs::copy(programs().join("tradewind"), &alone).unwrap();
    let ended = Command::new(&alone)
        .args(["bench", "exchange"])
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{err}");
    assert!(err.contains("tradewind-server is missing"), "{err}");
}

#[test]
fn optimizers_are_measured_beside_a_triad() {
    let report = measured(&mut bench(&["apply", "--bytes=400KB", "--runs=3"]));
    let cores = report["cores"].as_array().expect("a list");
    assert_eq!(cores[0]["cores"], 1);
    for part in cores {
        positive(part, &["/triad_gb_per_s", "/runs"]);
        for name in ["sgd", "momentum", "adam"] {
            for key in ["gb_per_s", "ratio_to_triad"] {
                positive(part, &[&format!("/optimizers/{name}/{key}")]);
            }
        }
    }
}

/// Small as a workload can be: a batch, and a sample each for validation and the final metric.
const READ: [&str; 4] = ["data", "--workload=cosmoflow", "--bytes=80MB", "--steps=20"];

#[test]
fn a_workload_is_replayed_on_files_that_are_made_for_it() {
    let report = measured(&mut bench(&READ));
    positive(
        &report,
        &[
            "/samples_per_s",
            "/mb_per_s",
            "/wall_seconds",
            "/data_p50",
            "/data_p99",
        ],
    );
    for (key, want) in [
        ("samples", 4.0),
        ("bytes", 4.0 * 16_777_232.0),
        ("ranks", 1.0),
        ("readers", 1.0),
        ("steps", 20.0),
        ("step_seconds", 0.005_51),
        ("threshold", 0.7),
    ] {
        assert_eq!(number(&report, &format!("/{key}")), want, "{key}");
    }
    assert!(number(&report, "/compute_seconds") >= 0.005_51, "{report}");
    let utilization = number(&report, "/utilization");
    assert!(utilization > 0.0 && utilization <= 1.0, "{report}");
    assert_eq!(report["passes"], utilization >= 0.7);
    assert_eq!(report["written_now"], true);
    assert_eq!(report["form"], "packed");
}

#[test]
fn files_of_a_workload_are_kept_in_a_folder_that_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let named = format!("--folder={}", folder.path().display());
    let words = [
        &READ[..],
        &[&named, "--form=hdf5", "--readers=2", "--accelerator=h100"],
    ];
    let words = words.concat();
    for written_now in [true, false] {
        let report = measured(&mut bench(&words));
        assert_eq!(report["written_now"], written_now);
        assert_eq!(number(&report, "/step_seconds"), 0.0035);
        positive(&report, &["/samples_per_s"]);
    }
    let kept = folder.path().join("cosmoflow-hdf5-4");
    assert_eq!(fs::read_dir(kept).unwrap().count(), 4);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_workload_is_told_in_a_table_and_one_that_does_not_fit_is_refused() {
    let Output { stdout, stderr, .. } = bench(&READ).output().unwrap();
    let [table, told] = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    for text in [
        "cosmoflow on an A100: 20 steps of 5.51 ms",
        "page cache",
        "70 % or more",
    ] {
        assert!(table.contains(text), "{text:?} is not in {table}");
    }
    assert!(
        told.contains("4 samples of cosmoflow need 64.02 MiB in "),
        "{told}"
    );

    let refused = bench(&["data", "--folder=/proc/self", "--steps=1"]);
    let Output { status, stderr, .. } = { refused }.output().unwrap();
    let told = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(2), "{told}");
    let wanted = "in /proc/self, which has 0 B free; lower --bytes, or name another --folder";
    assert!(told.contains(wanted), "{told}");
}
