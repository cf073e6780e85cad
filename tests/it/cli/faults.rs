//! A run goes on when a process dies; and however it ends, it says so, and leaves no process behind.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::json;
use tradewind_tests::cluster::process::{alive, signal};
use tradewind_tests::cluster::run::{Row, Run, Running, kill};
use tradewind_tests::cluster::{programs, wait_for};

/// One server, a group of two ranks, no end in sight.
fn endless() -> Run {
    Run::endless().key("cluster.groups", "[2]")
}

fn all_end(rows: &[Row]) {
    for row in rows {
        wait_for("the end of a process", || (!alive(row.pid)).then_some(()));
    }
}

fn pid(rows: &[Row], role: &str, index: u64) -> u32 {
    let found = rows.iter().find(|r| r.role == role && r.index == index);
    found.expect("it is in processes.json").pid
}

#[test]
fn an_interruption_ends_everything_in_order() {
    for (by, word) in [
        (Signal::INT, "interrupted: ending all processes"),
        (Signal::TERM, "asked to terminate: ending all processes"),
    ] {
        let mut running = endless().start();
        let rows = running.trains(1);
        signal(running.pid(), by);
        let ended = running.end();
        assert_eq!(ended.status.code(), Some(130), "{}", ended.stderr);
        let summary = ended.summary();
        assert_eq!(summary["status"], "interrupted");
        assert_eq!(summary["failure"], json!(null));
        assert!(summary["snapshots"]["newest"].is_u64(), "{summary}");
        let clocks = summary["groups"][0]["clocks"].as_u64();
        assert_eq!(clocks, Some(ended.records().len() as u64));
        assert!(ended.stdout.contains(word), "{}", ended.stdout);
        assert!(ended.out().join("loss.svg").exists());
        assert!(
            rows.iter().all(|row| !alive(row.pid)),
            "all ended before the launcher"
        );
    }
}

#[test]
fn an_interruption_does_not_wait_for_a_frozen_server() {
    let mut running = endless().key("liveness.notice_ms", "0").start();
    let rows = running.trains(1);
    signal(pid(&rows, "server", 0), Signal::STOP);
    signal(running.pid(), Signal::INT);
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(130), "{}", ended.stderr);
    let summary = ended.summary();
    assert_eq!(summary["status"], "interrupted");
    assert_eq!(
        summary["updates"],
        json!(null),
        "the server cannot be asked"
    );
    all_end(&rows);
}

#[test]
fn a_failure_before_training_stands_in_the_summary() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("\"{}\"", taken.local_addr().unwrap());
    let ended = endless().key("telemetry.prometheus", address).start().end();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("cannot serve metrics on"),
        "{}",
        ended.stderr
    );
    let summary = ended.summary();
    assert_eq!(summary["status"], "failed");
    assert_eq!(summary["failure"]["role"], "server");
}

/// A result, unlike other failures: an experiment does not try it again.
#[test]
fn training_that_diverges_fails_with_a_status_of_its_own() {
    let rate = endless().key("optimizer.learning_rate", "1000000.0");
    let ended = rate.start().end();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let why = "training has diverged; lower optimizer.learning_rate";
    assert!(ended.stderr.contains(why), "{}", ended.stderr);
    let summary = ended.summary();
    assert_eq!(summary["failure"]["role"], "worker");
    assert_eq!(summary["failure"]["exit_status"], 6);
}

#[test]
fn nobody_has_to_read_what_is_printed() {
    let run = Run::new();
    let config = run.folder().join("config.toml");
    std::fs::write(&config, run.text()).unwrap();
    let mut child = Command::new(programs().join("tradewind"))
        .arg("run")
        .arg(&config)
        .arg("--out")
        .arg(run.out())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
    let summary = std::fs::read_to_string(run.out().join("summary.json")).unwrap();
    assert!(summary.contains("\"status\": \"completed\""), "{summary}");
}

#[test]
fn the_death_of_the_launcher_leaves_no_process() {
    let mut running = endless().start();
    let rows = running.trains(1);
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| alive(row.pid)));
    kill(running.pid());
    all_end(&rows);
}

/// Waits until the process of a rank is another one, and groups have gone on from there.
fn goes_on(running: &mut Running, role: &str, index: u64, former: u32) {
    let exchanges = wait_for("another process", || {
        let now = pid(&running.processes(), role, index);
        (now != former).then(|| running.records().len())
    });
    wait_for("exchanges", || {
        (running.records().len() > exchanges + 5).then_some(())
    });
}

/// The run has outlived the death of one process, and ends in order.
fn check_outlived(mut running: Running, name: &str) -> serde_json::Value {
    let rows = running.processes();
    signal(running.pid(), Signal::INT);
    let ended = running.end();
    let text = format!("{name} was killed by signal 9; restarted");
    assert!(ended.stdout.contains(&text), "{}", ended.stdout);
    let summary = ended.summary();
    assert_eq!(summary["status"], "interrupted");
    assert_eq!(summary["failure"], json!(null));
    assert_eq!(summary["faults"]["counts"]["process_died"], 1);
    all_end(&rows);
    summary
}

#[test]
fn a_rank_that_is_killed_is_started_again() {
    let mut running = endless().start();
    let killed = pid(&running.trains(1), "worker", 1);
    kill(killed);
    goes_on(&mut running, "worker", 1, killed);
    let summary = check_outlived(running, "rank 1 of group 0");
    assert_eq!(summary["faults"]["counts"]["rank_lost"], 1, "{summary}");
    assert_eq!(summary["faults"]["lost"]["updates"], 0);
}

#[test]
fn a_server_that_is_killed_is_started_again_and_restores_its_shard() {
    let mut running = Run::endless().key("cluster.servers", "2").start();
    let killed = pid(&running.trains(1), "server", 1);
    kill(killed);
    goes_on(&mut running, "server", 1, killed);
    let summary = check_outlived(running, "server 1");
    // On a busy machine the other server may be taken for dead as well.
    let orphaned = summary["faults"]["counts"]["orphaned"].as_u64();
    assert!(orphaned >= Some(1), "{summary}");
    assert!(
        summary["faults"]["lost"]["updates"].as_u64() > Some(0),
        "{summary}"
    );
}

#[test]
fn a_copy_takes_over_from_the_server_that_coordinates() {
    let run = Run::endless().key("cluster.servers", "3");
    let mut running = run.key("servers.replication", "2").start();
    let killed = pid(&running.trains(1), "server", 0);
    kill(killed);
    goes_on(&mut running, "server", 0, killed);
    let summary = check_outlived(running, "server 0");
    // On a busy machine another server may be taken for dead as well, and a copy of its shard take
    // over; but whatever happens, it happened after this and nothing was lost.
    let counts = &summary["faults"]["counts"];
    assert!(counts["promoted"].as_u64() >= Some(1), "{summary}");
    assert!(counts["coordinator_moved"].as_u64() >= Some(1), "{summary}");
    assert_eq!(summary["faults"]["lost"]["updates"], 0, "{summary}");
}

#[test]
fn a_run_that_was_interrupted_goes_on_with_other_servers_and_groups() {
    let running = endless().start();
    // The launcher takes a last snapshot once it has heard that the run is ready.
    wait_for("three seconds of exchanges", || {
        let records = running.records();
        let (first, last) = (records.first()?, records.last()?);
        (last.wall - first.wall > 3.0).then_some(())
    });
    signal(running.pid(), Signal::INT);
    let first = running.end();
    let before = first.records();
    let newest = first.summary()["snapshots"]["newest"].clone();
    let resumed = first
        .again()
        .key("cluster.servers", "2")
        .key("cluster.groups", "[1, 1]")
        .argument("--resume");
    let running = resumed.start();
    let begun = wait_for("an exchange of every group", || {
        let later = running.records().split_off(before.len());
        let of = |group| later.iter().find(|r| r.group == group).map(|r| r.clock);
        of(0).zip(of(1))
    });
    // Steps after the last snapshot are made again.
    assert!(begun.0.min(begun.1) > 0, "it begins anew: {begun:?}");
    signal(running.pid(), Signal::INT);
    let ended = running.end();
    let summary = ended.summary();
    assert!(newest.is_u64());
    assert_eq!(summary["resumed_from"], newest);
    assert_eq!(summary["failure"], json!(null));
}

/// Groups leave before the last snapshot is taken, so nothing is trained after it.
#[test]
fn what_groups_have_pushed_when_a_run_is_interrupted_is_in_its_last_snapshot() {
    let run = Run::endless().key("cluster.groups", "[1, 1]");
    let mut running = run.key("train.consistency", "\"async\"").start();
    running.trains(1);
    // The launcher asks groups to leave once it has heard that the run is ready.
    wait_for("three seconds of exchanges", || {
        let records = running.records();
        let (first, last) = (records.first()?, records.last()?);
        (last.wall - first.wall > 3.0).then_some(())
    });
    signal(running.pid(), Signal::INT);
    let first = running.end();
    assert_eq!(first.status.code(), Some(130), "{}", first.stderr);
    let told = "groups leave and a last snapshot is taken";
    assert!(first.stdout.contains(told), "{}", first.stdout);
    let summary = first.summary();
    assert_eq!(summary["status"], "interrupted");
    assert_eq!(summary["faults"]["counts"]["process_died"], json!(null));
    let before = first.records();
    let trained = before.iter().map(|r| r.samples_applied).max().unwrap();

    let resumed = first.again().argument("--resume");
    let running = resumed.key("liveness.notice_ms", "20000").start();
    let goes_on = wait_for("an exchange", || {
        let later = running.records().split_off(before.len());
        later.iter().map(|r| r.samples_applied).min()
    });
    assert!(goes_on > trained, "{goes_on} after {trained}");
    signal(running.pid(), Signal::INT);
    let second = running.end();
    let told = "liveness.notice_ms is 20000, it was 30000 before";
    assert!(second.stdout.contains(told), "{}", second.stdout);
    let lost = &second.summary()["faults"]["lost"];
    assert_eq!(
        lost,
        &json!({"updates": 0, "samples": 0}),
        "{}",
        second.stdout
    );
}

#[test]
fn a_run_that_is_resumed_after_its_end_trains_no_further() {
    let first = Run::new().key("cluster.groups", "[2, 1]").complete();
    let (before, records) = (first.summary(), first.records());
    assert_eq!(before["status"], "completed", "{}", first.stderr);
    let again = first.again().argument("--resume").complete();
    let after = again.summary();
    assert_eq!(after["status"], "completed", "{}", again.stderr);
    assert!(after["resumed_from"].is_u64(), "{after}");
    assert_eq!(after["params_digest"], before["params_digest"]);
    assert_eq!(again.records(), records);
}

#[test]
fn nothing_is_resumed_where_there_is_no_snapshot() {
    let ended = Run::new().argument("--resume").complete();
    assert_ne!(ended.status.code(), Some(0));
    assert!(ended.stderr.contains("to resume"), "{}", ended.stderr);
}

#[test]
fn servers_publish_metrics() {
    // Given back at once: the server takes it a moment later.
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let prometheus = format!("\"{free}\"");
    let mut running = Run::endless()
        .key("telemetry.prometheus", prometheus)
        .start();
    running.trains(1);
    let page = scrape(free);
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    for metric in [
        "tradewind_contributions_total{run=\"small\",shard=\"0\",verdict=\"applied\"}",
        "tradewind_updates_total{run=\"small\",shard=\"0\"}",
        "tradewind_refusals_total{run=\"small\",shard=\"0\"} 0",
        "tradewind_pushed_bytes_total ",
        "tradewind_pulled_bytes_total ",
        "tradewind_exchange_streams 1",
        "tradewind_runs 1",
    ] {
        assert!(page.contains(metric), "{metric} is not in {page}");
    }
}

fn scrape(address: std::net::SocketAddr) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).unwrap();
    let mut page = String::new();
    connection.read_to_string(&mut page).unwrap();
    page
}
