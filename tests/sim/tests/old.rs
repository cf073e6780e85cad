//! The simulated world under thousands of seeds, and rules broken on purpose.

use tradewind_common::GroupId;
use tradewind_common::spec::ConsistencySpec::{self, Async, Bounded, Sync};
use tradewind_tests::checker::Rule;
use tradewind_tests::sim::seeds::{all_hold, first_failure};
use tradewind_tests::sim::{
    Crash, GroupPlan, NetworkPlan, Report, Sabotage, Scenario, Stall, World,
};

/// Seeds for each policy; every second one has crashes, and may have a server cut off, two of every
/// four overlap, and four of every eight answer with differences.
const SEEDS: u64 = 2_000;

fn bounded(staleness_bound: u64) -> ConsistencySpec {
    Bounded { staleness_bound }
}

fn scenario(consistency: ConsistencySpec) -> impl Fn(u64) -> Scenario {
    move |seed| {
        let mut scenario = Scenario::random(seed, consistency);
        if !seed.is_multiple_of(2) {
            scenario = scenario.with_crashes();
        }
        if seed % 4 >= 2 {
            scenario = scenario.with_overlap();
        }
        if seed % 8 >= 4 {
            scenario = scenario.with_differences();
        }
        scenario
    }
}

/// No schedule breaks a rule, and the schedules are such that it could have been broken.
fn check(consistency: ConsistencySpec) {
    let mut sum = Report::default();
    let mut runs = 0;
    all_hold(0..SEEDS, scenario(consistency), |report| {
        runs += 1;
        sum.events += report.events;
        sum.decided += report.decided;
        sum.repeated += report.repeated;
        sum.restarts += report.restarts;
        sum.malformed += report.malformed;
        sum.differences += report.differences;
        sum.lag_max = sum.lag_max.max(report.lag_max);
    });
    println!("{runs} runs under {consistency:?}: {sum:?}");
    if runs == SEEDS {
        let happened = [sum.decided, sum.repeated, sum.restarts, sum.malformed];
        let mut happened = happened.into_iter().chain([sum.differences]);
        assert!(happened.all(|n| n >= SEEDS / 2), "{sum:?}");
        if let Bounded { staleness_bound } = consistency {
            assert!(sum.lag_max > staleness_bound, "the bound was never reached");
        }
    }
}

#[test]
fn bounded_by_0_keeps_the_rules() {
    check(bounded(0));
}

#[test]
fn bounded_by_1_keeps_the_rules() {
    check(bounded(1));
}

#[test]
fn bounded_by_3_keeps_the_rules() {
    check(bounded(3));
}

#[test]
fn async_keeps_the_rules() {
    check(Async);
}

#[test]
fn sync_keeps_the_rules() {
    check(Sync);
}

#[test]
fn a_seed_replays_its_schedule() {
    let run = |seed, consistency| {
        let report = World::new(scenario(consistency)(seed)).run().unwrap();
        (report.trace, report.events, report.end_us)
    };
    for consistency in [bounded(1), Async, Sync] {
        let traces: Vec<_> = (0..20).map(|seed| run(seed, consistency)).collect();
        for (seed, trace) in traces.iter().enumerate() {
            assert_eq!(run(seed as u64, consistency), *trace, "seed {seed}");
        }
        assert_ne!(traces[0], traces[2], "seeds differ");
    }
}

/// A rule that is broken on purpose is found to be broken, within 500 seeds.
fn found(sabotage: Sabotage, rule: Rule, scenario: impl Fn(u64) -> Scenario) {
    let broken = |seed| scenario(seed).with_sabotage(sabotage);
    let (took, failure) = first_failure(0..500, broken).expect("a broken rule goes unseen");
    println!("{sabotage:?}: {took} seeds: {failure}");
    assert_eq!(failure.violation.rule, rule, "{failure}");
}

#[test]
fn admitting_one_too_many_is_found() {
    for bound in [0, 1, 3] {
        let sabotage = Sabotage::AdmitsOneTooMany;
        found(sabotage, Rule::Staleness, scenario(bounded(bound)));
    }
}

#[test]
fn a_sync_that_does_not_wait_is_found() {
    let sabotage = Sabotage::SyncDoesNotWait;
    found(sabotage, Rule::Synchronous, scenario(Sync));
}

#[test]
fn applying_a_repeat_again_is_found() {
    for consistency in [bounded(3), Async] {
        let sabotage = Sabotage::ForgetsDecided;
        found(sabotage, Rule::ExactlyOnce, scenario(consistency));
    }
}

#[test]
fn a_difference_to_what_a_group_does_not_hold_is_found() {
    // Under `sync` a block waits for the group, so what is repeated is answered at one version.
    for consistency in [bounded(1), Async] {
        let differences = move |seed| scenario(consistency)(seed).with_differences();
        found(Sabotage::IgnoresHeld, Rule::ExactlyOnce, differences);
    }
}

#[test]
fn a_fenced_life_that_is_let_in_is_found() {
    // A new life starts past all clocks seen, so an old frame can only do harm if nobody has seen
    // its clock: it was stuck, and no other group has gone on.
    let lonely = |seed| {
        let mut scenario = Scenario::random(seed, Async);
        scenario.groups.truncate(1);
        scenario.groups[0].step_us = 100_000;
        scenario.samples = u64::from(scenario.groups[0].size) * 60;
        let at_us = 300_000 + seed * 1_000;
        scenario.crashes.push(Crash {
            group: 0,
            at_us,
            down_us: Some(1_000),
        });
        scenario.network.stalls.push(Stall {
            group: 0,
            from_us: at_us - 100_000,
            until_us: at_us,
            held_us: 700_000,
        });
        scenario
    };
    all_hold(0..500, lonely, |report| assert!(report.restarts > 0));
    found(Sabotage::FenceBroken, Rule::ExactlyOnce, lonely);
}

/// One group ten times slower than the other, under a network that delivers everything.
fn fast_and_slow(consistency: ConsistencySpec) -> Report {
    let group = |step_us| GroupPlan {
        size: 2,
        step_us,
        start_us: 0,
    };
    let scenario = Scenario {
        servers: 2,
        groups: vec![group(5_000), group(50_000)],
        network: NetworkPlan::faultless(),
        samples: 600,
        skip_one_in: 0,
        ..Scenario::random(7, consistency)
    };
    World::new(scenario).run().unwrap()
}

#[test]
fn async_does_not_hold_the_fast_group_up() {
    let (fast, slow) = (GroupId(0), GroupId(1));
    let report = fast_and_slow(Async);
    assert_eq!(report.waited_us[&fast], 0);
    assert!(
        report.clocks[&fast] > 5 * report.clocks[&slow],
        "{report:?}"
    );

    let report = fast_and_slow(bounded(3));
    assert!(report.waited_us[&fast] > 0);
    assert!(report.lag_max <= 4, "{report:?}");
    assert!(
        report.clocks[&fast] <= report.clocks[&slow] + 4,
        "{report:?}"
    );
}
