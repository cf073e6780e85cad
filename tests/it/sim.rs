//! The simulated world under thousands of seeds, and rules broken on purpose.

use tradewind_common::GroupId;
use tradewind_common::spec::ConsistencySpec::{self, Async, Bounded, Sync};
use tradewind_tests::checker::Rule;
use tradewind_tests::sim::seeds::{all_hold, first_failure};
use tradewind_tests::sim::{GroupPlan, NetworkPlan, Report, Sabotage, Scenario, World};

/// Seeds for each policy; every second one has crashes.
const SEEDS: u64 = 1_000;

fn bounded(staleness_bound: u64) -> ConsistencySpec {
    Bounded { staleness_bound }
}

fn scenario(consistency: ConsistencySpec) -> impl Fn(u64) -> Scenario {
    move |seed| {
        let scenario = Scenario::random(seed, consistency);
        if seed.is_multiple_of(2) {
            scenario
        } else {
            scenario.with_crashes()
        }
    }
}

/// No schedule breaks a rule, and the schedules are such that it could have been broken.
fn check(consistency: ConsistencySpec) {
    let mut sum = Report::default();
    all_hold(0..SEEDS, scenario(consistency), |report| {
        sum.decided += report.decided;
        sum.repeated += report.repeated;
        sum.restarts += report.restarts;
        sum.malformed += report.malformed;
        sum.events += report.events;
        sum.lag_max = sum.lag_max.max(report.lag_max);
    });
    println!("{consistency:?}: {sum:?}");
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
