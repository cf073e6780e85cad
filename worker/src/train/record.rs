//! What a step leaves in the metrics.

use tradewind_common::GroupId;
use tradewind_common::record::{Gpu, StepRecord};

use crate::exchanging::Ended;

/// The record of a step of a group's first rank; `gpu` is how its GPU was doing, if it has one.
pub(super) fn step_record(GroupId(group): GroupId, ended: &Ended, gpu: Option<Gpu>) -> StepRecord {
    let Ended { step, summary, .. } = ended;
    let wait_seconds = summary.waited_us as f64 / 1e6;
    StepRecord {
        wall: ended.wall,
        group,
        clock: step.clock.0,
        exchanges: 1,
        loss: Some(step.loss).filter(|loss| loss.is_finite()),
        samples: step.samples,
        samples_applied: summary.samples_applied,
        updates: summary.updates,
        lag: summary.lag,
        delay: summary.delay,
        dropped: summary.dropped,
        skipped: step.is_skipped(),
        buckets_skipped: step.buckets_skipped as u64,
        local_steps: u64::from(step.local_steps),
        local_skipped: u64::from(step.local_skipped),
        missed_pace: step.missed_pace.into(),
        overflowed: step.overflowed,
        loss_scale: step.loss_scale,
        compute_seconds: step.compute.as_secs_f64(),
        reduce_seconds: step.reduce.as_secs_f64(),
        exchange_seconds: (ended.took.as_secs_f64() - wait_seconds).max(0.0),
        exposed_seconds: ended.exposed.as_secs_f64(),
        wait_seconds,
        reduce_bytes_per_second: step.reduce_bytes_per_second,
        gpu,
    }
}
