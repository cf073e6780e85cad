//! Ranks that are slow on purpose, a pace that is kept or missed, and a group that dies half-way.

use std::fs;

use serde_json::{Value, json};
use tradewind_common::record::StepRecord;
use tradewind_common::{GroupId, Rank};
use tradewind_config::Config;
use tradewind_tests::cluster::run::{Ended, Run};

/// Seconds that a step computes at least.
const PACE: f64 = 0.05;

/// A run that completes; values are TOML.
fn completed(keys: &[(&str, &str)]) -> Ended {
    let pace = Run::new().key("pace.step_seconds", PACE.to_string());
    let run = keys
        .iter()
        .fold(pace, |run, (key, value)| run.key(key, *value));
    let ended = run.complete();
    assert!(ended.status.success(), "{}", ended.stderr);
    ended
}

fn of(records: &[StepRecord], group: u32) -> Vec<&StepRecord> {
    records.iter().filter(|r| r.group == group).collect()
}

/// The lines of `events.jsonl`.
fn events(ended: &Ended) -> Vec<Value> {
    let text = fs::read_to_string(ended.out().join("events.jsonl")).unwrap();
    let line = |line| serde_json::from_str(line).unwrap();
    text.lines().map(line).collect()
}

fn mean(records: &[&StepRecord], of: impl Fn(&StepRecord) -> f64) -> f64 {
    records.iter().map(|r| of(r)).sum::<f64>() / records.len() as f64
}

fn median(records: &[&StepRecord], of: impl Fn(&StepRecord) -> f64) -> f64 {
    let mut all: Vec<f64> = records.iter().map(|r| of(r)).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Ranks are counted over all groups. What a group writes down are the times of its first rank, which
/// is as fast as ever and waits for its slow sibling in the reduction. A pace that were in the wrong
/// place would be there in every step, so one step without it is enough.
#[test]
fn a_slow_rank_computes_longer_and_its_siblings_wait_for_it() {
    let ended = completed(&[
        ("cluster.groups", "[2, 1]"),
        ("train.consistency", "\"async\""),
        ("train.samples", "640"),
        ("stragglers.slow", "\"rank 1: 3, rank 2: 2\""),
    ]);
    let records = ended.records();
    let [pair, alone] = [0, 1].map(|group| of(&records, group));
    assert!(pair.len() > 4 && alone.len() > 4, "{records:?}");

    assert!(pair.iter().all(|r| r.compute_seconds >= PACE));
    assert!(
        pair.iter().any(|r| r.compute_seconds < 2.0 * PACE),
        "the first rank is not the slow one"
    );
    assert!(alone.iter().all(|r| r.compute_seconds >= 2.0 * PACE));

    let both = mean(&pair, |r| r.compute_seconds + r.reduce_seconds);
    assert!(both >= 2.8 * PACE, "{both} s, and the slow rank needs 0.15");
    let waits = median(&pair, |r| r.reduce_seconds);
    assert!(waits >= 1.6 * PACE, "{waits} s for a rank that is 0.1 late");
    assert!(
        pair.iter().any(|r| r.exchange_seconds < PACE),
        "the pace is not in the exchange"
    );
    assert!(
        alone
            .iter()
            .any(|r| r.reduce_seconds + r.exchange_seconds < PACE),
        "nor in the reduction"
    );
    for group in [&pair, &alone] {
        assert!(group.iter().any(|r| r.missed_pace == 0), "it can be kept");
    }
}

/// Each step of each rank has the factor of its own number, which local steps count on.
#[test]
fn jitter_pauses_and_spells_are_in_the_steps_that_the_seed_says() {
    for local in [1, 3] {
        let steps = local.to_string();
        let mut keys = vec![
            ("cluster.groups", "[1, 1]"),
            ("train.consistency", "\"async\""),
            ("train.samples", "960"),
            ("stragglers.jitter", "0.3"),
            ("stragglers.pause_rate", "0.2"),
            ("stragglers.pause_factor", "4"),
            ("stragglers.spell_every", "7"),
            ("stragglers.spell_steps", "2"),
            ("stragglers.spell_factor", "3"),
        ];
        if local > 1 {
            keys.extend([
                ("local.algorithm", "\"diloco\""),
                ("local.steps", steps.as_str()),
                ("optimizer.name", "\"delayed-nesterov\""),
                ("optimizer.momentum", "0.5"),
            ]);
        }
        let ended = completed(&keys);
        let out = ended.out();
        let text = fs::read_to_string(out.join("config.toml")).unwrap();
        let config = Config::parse(&text, "config.toml", &out, &[]).unwrap();
        let records = ended.records();
        let mut least = f64::INFINITY;
        for r in &records {
            let first = r.clock * local;
            let factor = |step| config.stragglers.factor(GroupId(r.group), Rank(0), step);
            let factors: f64 = (first..first + r.local_steps).map(factor).sum();
            assert!(r.compute_seconds >= PACE * factors, "{factors}: {r:?}");
            least = least.min(r.compute_seconds / PACE);
        }
        assert!(records.len() > 10, "{records:?}");
        let most = 4.0 * local as f64;
        assert!(least < most, "not all are slow: {least}");
    }
}

/// Of the steps of an exchange each counts once, whichever of its ranks were late.
#[test]
fn a_pace_that_is_too_short_is_missed_in_every_step() {
    let ended = completed(&[
        ("cluster.groups", "[2, 1]"),
        ("train.samples", "192"),
        ("local.algorithm", "\"diloco\""),
        ("local.steps", "2"),
        ("pace.step_seconds", "1e-6"),
    ]);
    let records = ended.records();
    for group in [0, 1] {
        assert!(!of(&records, group).is_empty(), "group {group} has trained");
    }
    for record in &records {
        assert_eq!((record.local_steps, record.missed_pace), (2, 2));
    }
}

/// The launcher ends it once half of the samples are applied, says so, and starts nobody in its place.
#[test]
fn a_dying_group_stops_half_way_and_the_other_goes_on() {
    let budget: u64 = 1600;
    let ended = completed(&[
        ("cluster.groups", "[1, 1]"),
        ("train.consistency", "\"async\""),
        ("train.samples", "1600"),
        ("stragglers.profile", "\"dying\""),
    ]);
    let summary = ended.summary();
    assert_eq!(summary["status"], "completed");
    assert_eq!(summary["failure"], Value::Null);
    // Neither its death nor another process is among them.
    let faults = &summary["faults"]["counts"];
    assert_eq!(*faults, json!({"rank_lost": 1, "stopped": 1}));

    let records = ended.records();
    let [survivor, dead] = [0, 1].map(|group| of(&records, group));
    let last = |group: &[&StepRecord]| group.last().map_or(0, |r| r.samples_applied);
    assert!(last(&survivor) >= budget, "it does the rest");
    let half_way = budget * 2 / 5..=budget * 3 / 4;
    let until = last(&dead);
    assert!(half_way.contains(&until), "{until} of {budget} samples");
    let clocks: Vec<u64> = dead.iter().map(|r| r.clock).collect();
    let one_life: Vec<u64> = (0..clocks.len() as u64).collect();
    assert_eq!(clocks, one_life);

    let events = events(&ended);
    let of_kind = |kind: &str| {
        let found = events.iter().find(|event| event["kind"] == kind);
        found.unwrap_or_else(|| panic!("no {kind} in {events:?}"))
    };
    for kind in ["stopped", "rank_lost"] {
        let event = of_kind(kind);
        assert_eq!((&event["group"], &event["rank"]), (&json!(1), &json!(0)));
    }
    let stopped = of_kind("stopped");
    let text = "rank 0 of group 1 stops for good, as stragglers.profile says";
    assert_eq!(stopped["text"], text);
    assert!(ended.stdout.contains(text), "{}", ended.stdout);
    let beyond = records.iter().filter(|r| r.samples_applied >= budget / 2);
    let first = beyond.map(|r| r.wall).fold(f64::INFINITY, f64::min);
    assert!(stopped["wall"].as_f64() >= Some(first), "not before half");
}
