//! Worlds whose values are vector clocks: what groups are answered is judged once more, by a checker
//! that sees nothing else and knows none of the servers' types.

use tradewind_common::policy::StalenessSpec;
use tradewind_common::policy::staleness::Drop;
use tradewind_common::spec::ConsistencySpec::{Async, Bounded, Sync};
use tradewind_sim::Scenario;
use tradewind_sim::report::Counts;
use tradewind_sim::seeds::{all_hold, tried};

/// Seeds of each mixture of faults where all are tried.
const SEEDS: u64 = 600;

/// Every policy in turn, with contributions that are dropped, merged, or left behind.
fn base(seed: u64) -> Scenario {
    let bounded = |staleness_bound| Bounded { staleness_bound };
    let scenario = Scenario::random(seed, Async);
    let scenario = match seed % 8 {
        0 => scenario,
        1 => scenario.with_consistency(bounded(0)),
        2 => scenario.with_consistency(bounded(2)),
        3 => scenario.with_overlap(),
        4 => scenario.with_staleness(StalenessSpec::Drop(Drop { beyond: 2 })),
        5 => scenario.with_windows(),
        6 => scenario.with_consistency(Sync),
        _ => scenario.with_backups(),
    };
    scenario.with_vector_clocks()
}

fn check(name: &str, scenario: impl Fn(Scenario) -> Scenario, must: &[&str]) {
    let seeds = tried(SEEDS);
    let (mut sum, mut runs) = (Counts::default(), 0);
    let scenario = |seed| scenario(base(seed));
    all_hold(0..seeds, scenario, |report| {
        runs += 1;
        sum += &report.counts;
    });
    println!("{name}: {runs} runs: {sum:?}");
    if runs < seeds {
        return;
    }
    for (count, times) in sum.all() {
        assert!(
            !must.contains(&count) || times >= seeds / 20,
            "{count} happened {times} times only"
        );
    }
}

#[test]
fn what_groups_are_answered_can_be_true() {
    check("nothing fails", |s| s, &["decided", "repeated"]);
}

#[test]
fn what_groups_are_answered_can_be_true_while_ranks_and_servers_fail() {
    let fails = |s: Scenario| s.with_failing_servers(2).with_dying_ranks();
    check("one copy", fails, &["promoted", "reformed", "repeated"]);
}

#[test]
fn what_restores_have_lost_was_told() {
    let fails = |s: Scenario| s.with_failing_servers(1).with_dying_ranks();
    check("one holder", fails, &["restored", "lost"]);
}
