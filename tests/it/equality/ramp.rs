//! Batches that grow: under `sync` the same values as a plain loop on the same batches, and in any
//! mode each sample in a batch of the size that is due where its chunk begins.

use tch::Tensor;
use tradewind_client::order::permutation;
use tradewind_tests::cluster::run::{Ended, Run};
use tradewind_worker::data::{Asked, Split};

use super::distance;
use super::plain::{Keys, Plain, RATE, SYNC, complete, configured, divided, trained, values};

/// Of the parameters, relative, as an L2 norm.
const TOLERANCE: f64 = 1e-5;

/// Samples of all ranks in a step, and the first position from which on they are so many.
const GLOBAL: [(u64, u64); 3] = [(0, 8), (60, 16), (200, 48)];

const BUDGET: u64 = 600;

/// Samples of an update at which [`RATE`] holds.
const REFERENCE: u64 = 16;

/// The training loop without Tradewind, and the samples of its steps.
fn plain() -> (Plain, Vec<u64>) {
    let (config, task) = configured();
    let data = task.dataset();
    let mut named = task.tensors();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    let parameters: Vec<Tensor> = named.into_iter().map(|(_, tensor, _)| tensor).collect();
    let before = values(&parameters);
    let epoch_samples = task.samples() as u64;
    let (mut position, mut steps) = (0, Vec::new());
    while steps.iter().sum::<u64>() < BUDGET {
        let size = |position: u64| {
            let due = GLOBAL.iter().rev().find(|(from, _)| *from <= position);
            due.expect("the first is from 0").1
        };
        // A rest of an epoch that fills no batch is dropped.
        if position % epoch_samples + size(position) > epoch_samples {
            position = (position / epoch_samples + 1) * epoch_samples;
        }
        let (first, size) = ((position % epoch_samples) as usize, size(position));
        let order = permutation(config.seed, position / epoch_samples, task.samples());
        let samples = order[first..first + size as usize].iter();
        let samples: Vec<usize> = samples.map(|sample| *sample as usize).collect();
        let loss = task.loss(&data.batch(Asked::of(Split::Train, &samples)).unwrap());
        loss.backward();
        let rate = RATE * size as f64 / REFERENCE as f64;
        for parameter in &parameters {
            tch::no_grad(|| {
                let _ = parameter.shallow_clone().g_sub_(&(parameter.grad() * rate));
            });
            parameter.shallow_clone().zero_grad();
        }
        position += size;
        steps.push(size);
    }
    let after = values(&parameters);
    (Plain { before, after }, steps)
}

fn run(groups: &[u32], keys: Keys<'_>) -> Run {
    let ranks = groups.iter().map(|size| u64::from(*size)).sum::<u64>();
    let step = |(from, size): &(u64, u64)| format!("[{from}, {}]", size / ranks);
    let ramp: Vec<_> = GLOBAL[1..].iter().map(step).collect();
    divided(groups, keys)
        .key("train.batch", (GLOBAL[0].1 / ranks).to_string())
        .key("train.batch_ramp", format!("[{}]", ramp.join(", ")))
        .key("train.samples", BUDGET.to_string())
        .key("schedule.scaling", "\"linear\"")
        .key("schedule.reference_batch", REFERENCE.to_string())
}

/// Samples of the steps of a group, in order.
fn steps(ended: &Ended, group: u32) -> Vec<u64> {
    let records = ended.records();
    let own = records.iter().filter(|record| record.group == group);
    own.map(|record| record.samples).collect()
}

#[test]
fn under_sync_the_batches_of_a_clock_have_one_size() {
    let (plain, want) = plain();
    let moved = distance(&plain.before, &plain.after);
    assert!(
        moved > 1000.0 * TOLERANCE,
        "too little to tell: {moved:.1e}"
    );
    assert!(
        GLOBAL.iter().all(|(_, size)| want.contains(size)),
        "{want:?}"
    );
    for groups in [&[1][..], &[2], &[1, 1], &[1, 3]] {
        let ended = complete(run(groups, &[SYNC, ("cluster.servers", "2")]));
        let ranks: u32 = groups.iter().sum();
        for (group, size) in (0..).zip(groups) {
            let part = |all: &u64| all / u64::from(ranks) * u64::from(*size);
            let want: Vec<_> = want.iter().map(part).collect();
            assert_eq!(steps(&ended, group), want, "group {group} of {groups:?}");
        }
        let difference = distance(&trained(&ended), &plain.after);
        println!("{groups:?}: {difference:.1e} of a change by {moved:.1e}");
        assert!(difference <= TOLERANCE, "{groups:?}: {difference:.1e}");
    }
}

/// Chunks begin at 0, 36, 72, 108, 144 and with the next epoch.
#[test]
fn otherwise_the_batches_of_a_chunk_have_one_size() {
    for consistency in ["\"bounded\"", "\"async\""] {
        let groups = [1u32, 3];
        let run = divided(&groups, &[("train.consistency", consistency)])
            .key("train.batch_ramp", "[[40, 4], [110, 12]]")
            .key("train.chunk_samples", "36")
            .key("train.samples", "500");
        let ended = complete(run);
        let mut taken = [0; 3];
        for (group, size) in (0..).zip(groups) {
            let steps = steps(&ended, group);
            assert!(steps.is_sorted(), "group {group}: {steps:?}");
            for samples in steps {
                let batch = samples / u64::from(size);
                let at = [2, 4, 12].iter().position(|of| *of == batch);
                taken[at.expect("a size of the ramp")] += samples;
            }
        }
        assert_eq!(taken[..2], [72, 72], "{consistency}: {taken:?}");
    }
}
