//! Step counts that follow a group's speed.

use std::fs;

use tradewind_common::record::StepRecord;
use tradewind_tests::cluster::run::Run;

use super::{Differs, configured, train};

const STEPS: u64 = 16;
const PACE: &str = "0.02";

/// ⌊16 / 6.4⌋ is 2, and far from 1 and 3: it takes more than a noisy moment to count otherwise.
const SLOW: &str = "6.4";

/// The mean number of steps of a group's exchanges.
fn mean(records: &[StepRecord], group: u32) -> f64 {
    let own = records.iter().filter(|record| record.group == group);
    // The first are taken before anybody knows.
    let later = own.skip(2).map(|record| record.local_steps as f64);
    let (count, sum) = later.fold((0.0, 0.0), |(count, sum), steps| (count + 1.0, sum + steps));
    assert!(count >= 3.0, "group {group}: {count} exchanges");
    sum / count
}

fn check_fitted(records: &[StepRecord], [fast, slow]: [u32; 2]) {
    for record in records {
        assert!((1..=STEPS).contains(&record.local_steps), "{record:?}");
    }
    let (fast, slow) = (mean(records, fast), mean(records, slow));
    println!("{fast} and {slow} steps");
    assert!(fast >= 14.0, "{fast} steps where all are due");
    assert!((1.5..=3.5).contains(&slow), "{slow} steps beside {fast}");
}

#[test]
fn a_slower_group_takes_fewer_steps() {
    let slow = format!("\"group 1: {SLOW}\"");
    let keys = [
        ("cluster.groups", "[1, 1]"),
        ("train.consistency", "\"async\""),
        ("train.batch", "1"),
        ("train.samples", "400"),
        ("optimizer.name", "\"delayed-nesterov\""),
        ("optimizer.momentum", "0.9"),
        ("optimizer.momentum_updates", "2"),
        ("local.algorithm", "\"diloco\""),
        ("local.steps", "16"),
        ("local.fitted", "true"),
        ("pace.step_seconds", PACE),
        ("stragglers.slow", slow.as_str()),
        ("liveness.heartbeat_ms", "50"),
    ];
    let run = keys
        .iter()
        .fold(Run::new(), |run, (key, value)| run.key(key, *value));
    let ended = run.complete();
    assert!(ended.status.success(), "{}", ended.stderr);
    let records = ended.records();
    for record in &records {
        assert_eq!(
            record.samples, record.local_steps,
            "a push has the samples of its steps"
        );
    }
    check_fitted(&records, [0, 1]);
}

/// The second rank of the slow group does not hear how fast the other group is, and by itself would
/// take all steps.
#[test]
fn all_ranks_of_a_group_take_the_steps_that_its_first_finds() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = folder.path().join("metrics.jsonl");
    let pace = format!("pace.step_seconds = {PACE}");
    let slow = format!("stragglers.slow = \"group 0: {SLOW}\"");
    let keys = [
        "train.consistency = \"async\"",
        "local.algorithm = \"diloco\"",
        "local.fitted = true",
        "optimizer.learning_rate = 0.5",
        "liveness.heartbeat_ms = 50",
        // A third of it is longer than the run.
        "liveness.lease_ms = 30000",
        pace.as_str(),
        slow.as_str(),
    ];
    let config = configured(&[2, 1], STEPS as usize, 6, &keys);
    let differs = Differs {
        deaf: Some((0, 1)),
        metrics: Some(metrics.clone()),
        ..Differs::default()
    };
    let logs = train(&config, differs);
    let text = fs::read_to_string(metrics).unwrap();
    let records = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let records: Vec<StepRecord> = records.collect();
    check_fitted(&records, [1, 0]);

    let own = records.iter().filter(|record| record.group == 0);
    let steps: u64 = own.map(|record| record.local_steps).sum();
    let [first, second] = [0, 1].map(|rank| &logs[&(0, rank)]);
    let begun = (first.len() as u64, second.len() as u64);
    assert_eq!(begun, (steps, steps), "what is recorded, and no more");
    for (step, (first, second)) in first.iter().zip(second).enumerate() {
        assert_eq!(first.values, second.values, "step {step}");
    }
}
