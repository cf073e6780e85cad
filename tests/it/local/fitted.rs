//! Step counts that follow a group's speed, in a real cluster.

use tradewind_tests::cluster::run::Run;

const STEPS: u64 = 16;

/// A group at an eighth of the other's speed comes to take about two steps.
#[test]
fn a_slower_group_takes_fewer_steps() {
    let keys = [
        ("cluster.groups", "[1, 1]"),
        ("train.consistency", "\"async\""),
        ("train.batch", "1"),
        ("train.samples", "1200"),
        ("optimizer.name", "\"delayed-nesterov\""),
        ("optimizer.momentum", "0.9"),
        ("optimizer.momentum_updates", "2"),
        ("local.algorithm", "\"diloco\""),
        ("local.steps", "16"),
        ("local.fitted", "true"),
        ("pace.step_seconds", "0.01"),
        ("stragglers.slow", "\"group 1: 8\""),
        ("liveness.heartbeat_ms", "50"),
    ];
    let run = keys
        .iter()
        .fold(Run::new(), |run, (key, value)| run.key(key, *value));
    let ended = run.complete();
    assert!(ended.status.success(), "{}", ended.stderr);
    let records = ended.records();
    let of = |group| records.iter().filter(move |record| record.group == group);
    for record in &records {
        assert!((1..=STEPS).contains(&record.local_steps), "{record:?}");
        assert_eq!(
            record.samples, record.local_steps,
            "a push has the samples of its steps"
        );
    }
    let mean = |group| {
        // The first are taken before anybody knows.
        let later = of(group).skip(2).map(|record| record.local_steps as f64);
        let (count, sum) = later.fold((0.0, 0.0), |(count, sum), steps| (count + 1.0, sum + steps));
        assert!(count >= 3.0, "group {group}: {count} exchanges");
        sum / count
    };
    let (fast, slow) = (mean(0), mean(1));
    println!("{fast} and {slow} steps");
    assert!(slow < 0.6 * fast, "{slow} steps beside {fast}");
}
