//! What a shard does with contributions besides waiting for them: against a few lines of f64.

mod backups;
mod momentum;
mod staleness;
mod windows;

use tradewind_common::policy::staleness::{Drop, Scale};
use tradewind_common::policy::{Policies, StalenessSpec, Weights};
use tradewind_common::schedule::Seen;
use tradewind_common::spec::ConsistencySpec::{self, Async, Sync};
use tradewind_common::spec::RunSpec;
use tradewind_common::{BlockId, Compression, Generation};

use super::shard::{MEAN, WEIGHT, only, push, ready_as, replies};
use super::spec;
use crate::ReplyTo;
use crate::block::Gradient;
use crate::decided::Decided;
use crate::shard::{Action, Answer, Reply, Shard};

fn with(consistency: ConsistencySpec, policies: Policies) -> RunSpec {
    RunSpec {
        policies,
        ..spec(&[1, 1, 1], consistency)
    }
}

fn stale(staleness: StalenessSpec) -> Policies {
    Policies {
        staleness,
        ..Policies::default()
    }
}

const LIVE: [(u32, u64); 3] = [(0, 0), (1, 0), (2, 0)];

/// Pushes a gradient of three equal values that was computed on a version.
fn send(shard: &mut Shard, (group, clock): (u32, u64), value: f32, on: u64, samples: u32) {
    send_to(shard, WEIGHT, (group, clock), (&[value; 3], samples), on);
}

fn send_to(
    shard: &mut Shard,
    block: BlockId,
    (group, clock): (u32, u64),
    (values, samples): (&[f32], u32),
    on: u64,
) {
    let action = contribution(values, samples, on);
    shard.handle_push(push(group, clock, block, action), ReplyTo(0), 0);
}

fn contribution(values: &[f32], samples: u32, on: u64) -> Action {
    Action::Contribute(Some(Gradient {
        values: values.to_vec(),
        samples,
        pulled_version: on,
        lineage: Generation(0),
        seen: Seen::default(),
        norms: Vec::new(),
    }))
}

fn pull(shard: &mut Shard, group: u32) {
    shard.handle_push(push(group, 0, WEIGHT, Action::Pull), ReplyTo(0), 0);
    only(shard).unwrap();
}

fn decided(reply: &Reply) -> Decided {
    match reply.answer {
        Answer::Decided(decided, _) => decided,
        other => panic!("{other:?}"),
    }
}

#[test]
fn groups_count_by_their_samples_or_all_the_same() {
    let check = |weights, block: BlockId, want: f32| {
        let policies = Policies {
            weights,
            ..Policies::default()
        };
        let mut shard = ready_as(with(Sync, policies), &LIVE);
        let length = if block == MEAN { 2 } else { 3 };
        for (group, (value, samples)) in [(3.0, 1), (6.0, 1), (9.0, 4)].into_iter().enumerate() {
            let gradient = (&vec![value; length][..], samples);
            send_to(&mut shard, block, (group as u32, 0), gradient, 0);
        }
        for (_, reply) in replies(&mut shard) {
            let reply = reply.unwrap();
            let got = reply.fresh.values()[0];
            assert!((got - want).abs() < 1e-6, "{weights:?}: {got}, not {want}");
            assert_eq!(reply.samples_applied, 6);
        }
    };
    check(Weights::Samples, WEIGHT, 1.0 - 45.0 / 6.0);
    check(Weights::Groups, WEIGHT, 1.0 - 18.0 / 3.0);
    check(Weights::Samples, MEAN, 45.0 / 6.0);
    check(Weights::Groups, MEAN, 18.0 / 3.0);
}

#[test]
fn policies_that_no_run_can_follow() {
    let check = |spec: RunSpec, want: &str| {
        let error = spec.check().unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    };
    let compensate =
        |lambda, mean_square_decay| stale(StalenessSpec::compensating(lambda, mean_square_decay));
    let drop = |beyond| stale(StalenessSpec::Drop(Drop { beyond }));
    check(
        with(Async, drop(0)),
        "staleness.drop_beyond is 0, which is not a whole number, 1 to 1000000",
    );
    check(
        with(Async, compensate(f64::NAN, None)),
        "staleness.lambda is NaN, which is not 0 to 1000000",
    );
    check(
        with(Async, compensate(1.0, Some(1.0))),
        "staleness.mean_square_decay is 1, which is not 0 to 0.999999",
    );
    for policies in [
        drop(4),
        compensate(1.0, None),
        stale(StalenessSpec::Scale(Scale {})),
    ] {
        let want = "staleness.policy excludes train.consistency = \"sync\"";
        check(with(Sync, policies), want);
    }
    let spec = RunSpec {
        down: Compression::Bf16,
        ..with(Async, compensate(1.0, None))
    };
    check(spec, "staleness.policy excludes exchange.down");
}
