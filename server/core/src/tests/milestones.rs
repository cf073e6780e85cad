//! Parameters that are saved whenever so many more samples are applied.

use tradewind_common::BlockId;
use tradewind_common::spec::ConsistencySpec::{Async, Sync};

use super::shard::{MEAN, WEIGHT, gradient, outputs, push, ready};
use crate::ReplyTo;
use crate::shard::{Action, Output, Shard};
use crate::state::BlockState;

fn contribute(shard: &mut Shard, group: u32, clock: u64, block: BlockId, samples: u32) {
    // A gradient of 1, or that much more than there was.
    let values = match block {
        MEAN => vec![2.0 + clock as f32; 2],
        _ => vec![1.0; 3],
    };
    let push = push(group, clock, block, gradient(&values, samples));
    shard.handle_push(push, ReplyTo(0), 0);
}

fn milestones(shard: &mut Shard) -> Vec<(u64, Vec<BlockState>)> {
    let milestone = |output| match output {
        Output::Milestone { samples, states } => Some((samples, states)),
        _ => None,
    };
    outputs(shard).into_iter().filter_map(milestone).collect()
}

/// Samples of the milestone, and each block with its version.
fn versions(found: &[(u64, Vec<BlockState>)]) -> Vec<(u64, Vec<(u32, u64)>)> {
    let of = |states: &[BlockState]| states.iter().map(|s| (s.id.0, s.version)).collect();
    found
        .iter()
        .map(|(samples, states)| (*samples, of(states)))
        .collect()
}

#[test]
fn each_block_is_as_after_the_update_that_brought_it_there() {
    let mut shard = ready(Async, &[(0, 0)]).with_milestones(10);
    for clock in 0..6 {
        contribute(&mut shard, 0, clock, MEAN, 4);
        assert!(
            milestones(&mut shard).is_empty(),
            "the other block is not there"
        );
    }
    let mut found = Vec::new();
    for clock in 0..6 {
        contribute(&mut shard, 0, clock, WEIGHT, 4);
        found.extend(milestones(&mut shard));
    }
    let want = [(10, vec![(0, 3), (1, 3)]), (20, vec![(0, 5), (1, 5)])];
    assert_eq!(versions(&found), want);
    for (_, states) in &found {
        for state in states {
            // Rate 1 on gradients of 1; a group alone moves a buffer all the way.
            let value = match state.id {
                MEAN => 1.0 + state.version as f32,
                _ => 1.0 - state.version as f32,
            };
            assert!(state.values.iter().all(|x| *x == value), "{state:?}");
            assert_eq!(state.samples_applied, 4 * state.version);
        }
    }
}

#[test]
fn an_update_that_passes_several_is_all_of_them() {
    let mut shard = ready(Sync, &[(0, 0), (1, 0)]).with_milestones(10);
    for block in [MEAN, WEIGHT] {
        contribute(&mut shard, 0, 0, block, 15);
        assert!(milestones(&mut shard).is_empty(), "nothing is applied yet");
        contribute(&mut shard, 1, 0, block, 20);
    }
    let found = milestones(&mut shard);
    let both = vec![(0, 1), (1, 1)];
    let want = [(10, both.clone()), (20, both.clone()), (30, both)];
    assert_eq!(versions(&found), want);
}

#[test]
fn without_samples_there_is_none() {
    let mut shard = ready(Async, &[(0, 0)]).with_milestones(10);
    for block in [MEAN, WEIGHT] {
        shard.handle_push(push(0, 0, block, Action::Contribute(None)), ReplyTo(0), 0);
        contribute(&mut shard, 0, 1, block, 9);
    }
    assert!(milestones(&mut shard).is_empty());
    let mut shard = ready(Async, &[(0, 0)]);
    for block in [MEAN, WEIGHT] {
        contribute(&mut shard, 0, 0, block, 50);
    }
    assert!(milestones(&mut shard).is_empty(), "none were asked for");
}
