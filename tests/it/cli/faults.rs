//! However a run ends, it says so, and leaves no process behind.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::json;
use tradewind_tests::cluster::process::{alive, signal};
use tradewind_tests::cluster::run::{Ended, Row, Run, kill};
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
        assert_eq!(summary["faults"], json!([]));
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
    let mut running = endless().start();
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
    assert_eq!(summary["faults"][0]["role"], "server");
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

fn check_failed(ended: &Ended, rows: &[Row], name: &str, fault: serde_json::Value) {
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let first = format!("the run failed: {name} was killed by signal 9; the last lines of ");
    assert!(ended.stderr.contains(&first), "{}", ended.stderr);
    let log = ended
        .stderr
        .split_once(".log:\n")
        .expect("lines of a log")
        .1;
    assert!(log.contains("INFO"), "{}", ended.stderr);
    let summary = ended.summary();
    assert_eq!(summary["status"], "failed");
    assert_eq!(summary["faults"], json!([fault]));
    all_end(rows);
}

/// The other rank ends with an error soon after; the one that was killed is named.
#[test]
fn a_rank_that_is_killed_is_named() {
    let mut running = endless().start();
    let rows = running.trains(1);
    kill(pid(&rows, "worker", 1));
    let fault = json!({
        "role": "worker",
        "server": null,
        "group": 0,
        "group_rank": 1,
        "reason": "was killed by signal 9",
    });
    check_failed(&running.end(), &rows, "rank 1 of group 0", fault);
}

#[test]
fn a_server_that_is_killed_is_named() {
    let mut running = Run::endless().key("cluster.servers", "2").start();
    let rows = running.trains(1);
    kill(pid(&rows, "server", 1));
    let fault = json!({
        "role": "server",
        "server": 1,
        "group": null,
        "group_rank": null,
        "reason": "was killed by signal 9",
    });
    check_failed(&running.end(), &rows, "server 1", fault);
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
        "tradewind_contributions_total{run=\"small\",server=\"0\",verdict=\"applied\"}",
        "tradewind_updates_total{run=\"small\",server=\"0\"}",
        "tradewind_refusals_total{run=\"small\",server=\"0\"} 0",
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
