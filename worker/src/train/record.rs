//! What a step leaves in the metrics.

use tradewind_client::core::session::Purpose;
use tradewind_common::record::StepRecord;
use tradewind_common::{GroupId, Rank};

use super::Worker;
use crate::exchanges::Ended;
use crate::gpu_stats::GpuStats;

impl Worker<'_> {
    pub(super) fn record(&mut self, ended: &Ended) {
        if self.group.rank() != Rank(0) {
            return;
        }
        let Ended { step, summary, .. } = ended;
        let wait_seconds = summary.waited_us as f64 / 1e6;
        let GroupId(group) = self.member.seat.group;
        self.member.recorder.write(&StepRecord {
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
            skipped: step.purpose == Purpose::Skip,
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
            gpu: self.member.gpu_stats.as_ref().and_then(GpuStats::latest),
        });
    }
}
