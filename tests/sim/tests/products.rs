//! Every optimizer under every policy that a run may have it with, while everything fails in turn.

use tradewind_common::policy::{MomentumSpec, StalenessSpec};
use tradewind_common::spec::ConsistencySpec::{self, Async, Bounded, Sync};
use tradewind_common::spec::OptimizerSpec;
use tradewind_sim::Scenario;
use tradewind_sim::scenario::{MIXES, OPTIMIZERS};
use tradewind_sim::seeds::all_hold;

/// Seeds, which all pairs take in turn.
const SEEDS: u64 = 1_250;

/// A policy, on top of a consistency.
type With = fn(Scenario) -> Scenario;

const BOUNDED: ConsistencySpec = Bounded { staleness_bound: 2 };

const DROP: StalenessSpec = StalenessSpec::Drop { beyond: 2 };

const COMPENSATE: StalenessSpec = StalenessSpec::Compensate {
    lambda: 0.015_625,
    mean_square_decay: None,
};

const CLOSED_LOOP: MomentumSpec = MomentumSpec::ClosedLoop { gain: 0.015_625 };

const POLICIES: [(ConsistencySpec, With); 17] = [
    (Sync, |s| s),
    (Sync, Scenario::with_backups),
    (BOUNDED, |s| s),
    (BOUNDED, Scenario::with_windows),
    (BOUNDED, |s| s.with_staleness(StalenessSpec::Scale)),
    (BOUNDED, |s| s.with_momentum(MomentumSpec::Lowered)),
    (Async, |s| s),
    (Async, Scenario::with_windows),
    (Async, |s| s.with_staleness(StalenessSpec::Scale)),
    (Async, |s| s.with_staleness(DROP)),
    (Async, |s| s.with_staleness(COMPENSATE)),
    (Async, |s| s.with_momentum(MomentumSpec::Lowered)),
    (Async, |s| s.with_momentum(CLOSED_LOOP)),
    // Where several contributions make an update, each with its own delay.
    (BOUNDED, |s| s.with_windows().with_staleness(DROP)),
    (Async, |s| {
        s.with_windows().with_staleness(StalenessSpec::Scale)
    }),
    (Async, |s| s.with_windows().with_staleness(COMPENSATE)),
    (Async, |s| {
        s.with_windows().with_momentum(MomentumSpec::Lowered)
    }),
];

/// Whether a configuration refuses an optimizer with the policy of a scenario.
fn refused(scenario: &Scenario, optimizer: OptimizerSpec) -> bool {
    let policies = scenario.policies;
    let plain = policies.merge.is_none() && policies.staleness == StalenessSpec::None;
    let measured = matches!(policies.momentum, MomentumSpec::ClosedLoop { .. });
    match optimizer {
        OptimizerSpec::Elastic if scenario.consistency != Async || !plain => true,
        _ if policies.momentum != MomentumSpec::Fixed && optimizer.momentum().is_none() => true,
        _ => optimizer.layerwise() && (policies.staleness.compensates() || measured),
    }
}

/// A pair, in whatever else the seed says; `None` if it is refused.
fn pair(seed: u64, policy: usize, optimizer: usize) -> Option<Scenario> {
    let (consistency, with) = POLICIES[policy];
    let scenario = with(Scenario::random(seed, consistency));
    let refused = refused(&scenario, OPTIMIZERS[optimizer].0);
    let scenario = scenario.with_optimizer(optimizer);
    let accepted = scenario.spec().check();
    assert_eq!(accepted.is_err(), refused, "{scenario:?}: {accepted:?}");
    (!refused).then_some(scenario)
}

#[test]
fn every_optimizer_holds_under_every_policy() {
    let all = (0..POLICIES.len()).flat_map(|p| (0..OPTIMIZERS.len()).map(move |o| (p, o)));
    let pairs: Vec<_> = all.filter(|(p, o)| pair(0, *p, *o).is_some()).collect();
    let count = pairs.len() as u64;
    assert!(
        SEEDS / count >= MIXES,
        "each of {count} meets every mix of faults"
    );
    let (mut runs, mut decided) = (0, 0);
    let scenario = |seed| {
        let (policy, optimizer) = pairs[(seed % count) as usize];
        let scenario = pair(seed, policy, optimizer).expect("it is not refused");
        scenario.varied(seed / count)
    };
    all_hold(0..SEEDS, scenario, |report| {
        runs += 1;
        decided += report.counts.decided;
    });
    println!("{count} pairs: {runs} runs, {decided} decisions");
}
