//! Rule 1 in a real cluster: one group is made ten times slower by stopping its process nine
//! tenths of the time.

use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;
use tradewind_common::record::StepRecord;
use tradewind_tests::cluster::process::signal;
use tradewind_tests::cluster::run::{Run, Running};

const FAST: u32 = 0;
const SLOW: u32 = 1;

/// Exchanges that the slow group makes while it is slow.
const DISTURBED: usize = 40;

const RUNS: Duration = Duration::from_millis(5);
const STOPS: Duration = Duration::from_millis(45);

/// The records of a run of two groups of one rank, one of them slowed down once both have begun;
/// the run is ended after that. Every group makes every exchange once.
fn disturbed(keys: &[(&'static str, &str)]) -> Vec<StepRecord> {
    let records = slowed(keys);
    for group in [FAST, SLOW] {
        let clocks: Vec<u64> = of(&records, group).map(|r| r.clock).collect();
        let all: Vec<u64> = (0..clocks.len() as u64).collect();
        assert_eq!(clocks, all, "group {group} makes every exchange once");
    }
    records
}

fn slowed(keys: &[(&'static str, &str)]) -> Vec<StepRecord> {
    let run = Run::endless().key("cluster.groups", "[1, 1]");
    let run = keys
        .iter()
        .fold(run, |run, (key, value)| run.key(key, *value));
    let mut running = run.start();
    let processes = running.trains(2);
    let slow = processes.iter().find(|row| row.group == Some(SLOW.into()));
    slow_down(&mut running, slow.expect("a process").pid);
    signal(running.pid(), Signal::TERM);
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(130), "{}", ended.stderr);
    ended.records()
}

fn slow_down(running: &mut Running, slow: u32) {
    let made = |running: &Running| of(&running.records(), SLOW).count();
    let last = made(running) + DISTURBED;
    while made(running) < last && !running.over() {
        signal(slow, Signal::STOP);
        sleep(STOPS);
        signal(slow, Signal::CONT);
        sleep(RUNS);
    }
}

fn of(records: &[StepRecord], group: u32) -> impl Iterator<Item = &StepRecord> {
    records.iter().filter(move |r| r.group == group)
}

fn lag_max(records: &[StepRecord]) -> u64 {
    records.iter().map(|r| r.lag).max().expect("records")
}

fn waited(records: &[StepRecord], group: u32) -> f64 {
    of(records, group).map(|r| r.wait_seconds).sum()
}

#[test]
fn the_lag_stays_within_the_bound_and_reaches_it() {
    for (bound, key) in [(3, "3"), (0, "0")] {
        let bounded = [
            ("train.consistency", "\"bounded\""),
            ("train.staleness_bound", key),
        ];
        let records = disturbed(&bounded);
        let lag = lag_max(&records);
        println!("s = {bound}: lag {lag}, {} exchanges", records.len());
        assert!(lag <= bound + 1, "s = {bound}: lag {lag}");
        assert!(
            lag >= bound,
            "s = {bound}: the bound was not reached, lag {lag}"
        );
        assert!(
            waited(&records, FAST) > 0.0,
            "s = {bound}: the fast group is held back"
        );
    }
}

#[test]
fn async_holds_nobody_back() {
    let records = disturbed(&[("train.consistency", "\"async\"")]);
    let lag = lag_max(&records);
    println!("async: lag {lag}, {} exchanges", records.len());
    assert!(lag > 4, "the fast group runs ahead: {lag}");
    assert_eq!(waited(&records, FAST), 0.0);
    assert_eq!(waited(&records, SLOW), 0.0);
}

/// Two are enough, and are waited for, but no longer than 20 ms: the slow one is stopped for longer.
#[test]
fn a_window_waits_for_the_others_and_then_closes() {
    let records = disturbed(&[
        ("train.consistency", "\"async\""),
        ("merge.min_groups", "2"),
        ("merge.wait_ms_max", "20"),
    ]);
    let merged = of(&records, FAST).filter(|r| r.delay == Some(0)).count();
    println!(
        "windows: lag {}, {merged} merged, {}",
        lag_max(&records),
        records.len()
    );
    assert!(waited(&records, FAST) > 0.0, "the fast group waits");
    assert!(merged > 0, "and is merged with the slow one");
    assert!(lag_max(&records) > 1, "but not for ever");
}

#[test]
fn under_sync_all_clocks_advance_together() {
    let records = disturbed(&[("train.consistency", "\"sync\"")]);
    assert!(lag_max(&records) <= 1, "lag {}", lag_max(&records));
    assert!(records.iter().all(|record| record.delay == Some(0)));
    let exchanges = |group| of(&records, group).count();
    // The end may find one of them a record ahead.
    assert!(exchanges(FAST).abs_diff(exchanges(SLOW)) <= 1);
    assert!(waited(&records, FAST) > 0.0, "the fast group waits");
}

fn dropped(records: &[StepRecord], group: u32) -> usize {
    of(records, group).filter(|r| r.dropped > 0).count()
}

#[test]
fn a_slow_group_is_left_behind_and_goes_on_where_the_others_are() {
    let records = slowed(&[
        ("train.consistency", "\"sync\""),
        ("train.backup_groups", "1"),
    ]);
    let clocks: Vec<u64> = of(&records, SLOW).map(|r| r.clock).collect();
    assert!(clocks.is_sorted_by(|a, b| a < b), "{clocks:?}");
    let left_out = clocks[clocks.len() - 1] + 1 - clocks[0] - clocks.len() as u64;
    let dropped = dropped(&records, SLOW);
    println!(
        "backup: {left_out} clocks left out, {dropped} dropped, {}",
        records.len()
    );
    assert!(left_out > 0 && dropped > 0);
    assert_eq!(waited(&records, FAST), 0.0, "one of two is enough");
}

#[test]
fn what_is_too_stale_is_dropped_and_the_group_goes_on() {
    let records = disturbed(&[
        ("train.consistency", "\"async\""),
        ("staleness.policy", "\"drop\""),
        ("staleness.drop_beyond", "3"),
    ]);
    let [fast, slow] = [FAST, SLOW].map(|group| dropped(&records, group));
    println!("drop: {fast} and {slow} of {}", records.len());
    assert!(slow > 0, "the slow group computes on old values");
    assert!(fast < of(&records, FAST).count() / 2);
    assert!(
        records
            .iter()
            .all(|r| r.delay.is_none_or(|delay| delay < 3))
    );
}
