//! Every optimizer under every policy that a run may have it with, and every policy among all kinds of
//! stragglers, while everything fails in turn.

use std::collections::BTreeSet;
use tradewind_common::choice::Choices;
use tradewind_common::optimizer::{Elastic, Sgd};
use tradewind_common::policy::momentum::{ClosedLoop, Lowered};
use tradewind_common::policy::staleness::{Compensate, CompensateAdaptive, Drop, Scale};

use tradewind_common::policy::{MomentumSpec, StalenessSpec};
use tradewind_common::spec::ConsistencySpec::{self, Async, Bounded, Sync};
use tradewind_common::spec::OptimizerSpec;
use tradewind_common::straggler::Profile;
use tradewind_sim::scenario::{MIXES, OPTIMIZERS, ends_groups};
use tradewind_sim::seeds::all_hold;
use tradewind_sim::{Scenario, World};

/// Seeds, which all pairs take in turn.
const SEEDS: u64 = 200 * MIXES;

/// A policy, on top of a consistency.
type With = fn(Scenario) -> Scenario;

const BOUNDED: ConsistencySpec = Bounded { staleness_bound: 2 };

const DROP: StalenessSpec = StalenessSpec::Drop(Drop { beyond: 2 });

const COMPENSATE: StalenessSpec = StalenessSpec::Compensate(Compensate { lambda: 0.015_625 });

const ADAPTIVE: StalenessSpec = StalenessSpec::CompensateAdaptive(CompensateAdaptive {
    lambda: 0.015_625,
    mean_square_decay: 0.9,
});

const CLOSED_LOOP: MomentumSpec = MomentumSpec::ClosedLoop(ClosedLoop { gain: 0.015_625 });

const POLICIES: [(ConsistencySpec, With); 22] = [
    (Sync, |s| s),
    (Sync, Scenario::with_backups),
    (BOUNDED, |s| s),
    (BOUNDED, Scenario::with_windows),
    (BOUNDED, |s| {
        s.with_staleness(StalenessSpec::Scale(Scale {}))
    }),
    (BOUNDED, |s| {
        s.with_momentum(MomentumSpec::Lowered(Lowered {}))
    }),
    (Async, |s| s),
    (Async, Scenario::with_windows),
    (Async, |s| s.with_staleness(StalenessSpec::Scale(Scale {}))),
    (Async, |s| s.with_staleness(DROP)),
    (Async, |s| s.with_staleness(COMPENSATE)),
    (Async, |s| s.with_staleness(ADAPTIVE)),
    (Async, |s| {
        s.with_momentum(MomentumSpec::Lowered(Lowered {}))
    }),
    (Async, |s| s.with_momentum(CLOSED_LOOP)),
    // Where several contributions make an update, each with its own delay.
    (BOUNDED, |s| s.with_windows().with_staleness(DROP)),
    (Async, |s| {
        s.with_windows()
            .with_staleness(StalenessSpec::Scale(Scale {}))
    }),
    (Async, |s| s.with_windows().with_staleness(COMPENSATE)),
    (Async, |s| {
        s.with_windows()
            .with_momentum(MomentumSpec::Lowered(Lowered {}))
    }),
    (Sync, |s| s.with_local_steps(5)),
    (BOUNDED, |s| s.with_local_steps(5)),
    (Async, |s| s.with_local_steps(5)),
    // Decoupled DiLoCo.
    (Async, |s| s.with_windows().with_local_steps(5)),
];

/// Whether a configuration refuses an optimizer with the policy of a scenario.
fn refused(scenario: &Scenario, optimizer: OptimizerSpec) -> bool {
    let policies = scenario.policies;
    let plain = policies.merge.is_none() && policies.staleness == StalenessSpec::default();
    let measured = matches!(policies.momentum, MomentumSpec::ClosedLoop(_));
    match optimizer {
        OptimizerSpec::Elastic(Elastic {}) if scenario.consistency != Async || !plain => true,
        _ if policies.momentum != MomentumSpec::default()
            && optimizer.capabilities().momentum().is_none() =>
        {
            true
        }
        _ => {
            optimizer.capabilities().layerwise()
                && (policies.staleness.capabilities().compensates() || measured)
        }
    }
}

/// Whether what several steps come to may take the place of a gradient. It is the configuration that
/// refuses the others: servers cannot know.
fn takes_steps(optimizer: OptimizerSpec) -> bool {
    match optimizer {
        OptimizerSpec::Sgd(Sgd { weight_decay, .. }) => weight_decay == 0.0,
        OptimizerSpec::DelayedNesterov(_) | OptimizerSpec::Elastic(Elastic {}) => true,
        _ => false,
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
    let fits = scenario.local_steps == 1 || takes_steps(scenario.optimizer);
    (!refused && fits).then_some(scenario)
}

/// The pairs that are not refused, as numbers of a policy and an optimizer.
fn pairs() -> Vec<(usize, usize)> {
    let all = (0..POLICIES.len()).flat_map(|p| (0..OPTIMIZERS.len()).map(move |o| (p, o)));
    all.filter(|(p, o)| pair(0, *p, *o).is_some()).collect()
}

/// The stragglers that a pair meets in a round: those of a profile, or a group that is slower
/// than the others for good, as scenarios have it. Nobody dies by a profile where the mix of faults
/// may end all others.
fn profile(number: u64, round: u64) -> Option<Profile> {
    let turn = (number + round) % (Profile::ALL.len() as u64 + 1);
    let profile = Profile::every().nth(turn as usize);
    profile.filter(|profile| *profile != Profile::Dying || !ends_groups(round))
}

/// What a seed decides: a pair, which all are in turn, its stragglers, and what fails.
fn scenario(pairs: &[(usize, usize)], seed: u64) -> Scenario {
    let count = pairs.len() as u64;
    let (number, round) = (seed % count, seed / count);
    let (policy, optimizer) = pairs[number as usize];
    let scenario = pair(seed, policy, optimizer).expect("it is not refused");
    let scenario = match profile(number, round) {
        Some(profile) => scenario.with_profile(profile),
        None => scenario,
    };
    scenario.varied(round)
}

#[test]
fn every_optimizer_holds_under_every_policy() {
    let pairs = pairs();
    let count = pairs.len() as u64;
    assert!(
        SEEDS / count >= MIXES,
        "each of {count} meets every mix of faults"
    );
    let met = (0..SEEDS).filter_map(|seed| {
        let (number, round) = (seed % count, seed / count);
        let (policy, _) = pairs[number as usize];
        Some((policy, profile(number, round)?.definition().name))
    });
    let met: BTreeSet<_> = met.collect();
    let all = POLICIES.len() * Profile::ALL.len();
    assert_eq!(met.len(), all, "each policy meets every profile: {met:?}");
    let (mut runs, mut decided) = (0, 0);
    all_hold(
        0..SEEDS,
        |seed| scenario(&pairs, seed),
        |report| {
            runs += 1;
            decided += report.counts.decided;
        },
    );
    println!("{count} pairs: {runs} runs, {decided} decisions");
}

/// The same events at the same times, and the same values bit for bit, whatever a block waits for,
/// measures or keeps: while servers and ranks fail, and then the coordinator and the disk.
#[test]
fn every_pair_replays_its_worlds() {
    let pairs = pairs();
    let count = pairs.len() as u64;
    let world = |seed| {
        let report = World::new(scenario(&pairs, seed)).run();
        report.unwrap_or_else(|failure| panic!("{failure}")).trace
    };
    for seed in 3 * count..5 * count {
        let pair = pairs[(seed % count) as usize];
        assert_eq!(world(seed), world(seed), "seed {seed}, {pair:?}");
    }
}
