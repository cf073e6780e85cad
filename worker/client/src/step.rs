//! What is known of a step on its way from backward to the end of its exchange.

use std::time::Duration;

use tradewind_common::record::{Gpu, StepRecord};
use tradewind_common::{Clock, GroupId};

use crate::core::session::Summary;
use crate::ranks::{Broken, Ranks};

/// The scale of a loss is halved down to here. A gradient that overflows without a scale is divergence.
pub const SCALE_MIN: f64 = 1.0;

/// What a rank knows of a step that it has computed.
#[derive(Clone, Copy, Debug)]
pub struct Computed {
    /// Mean over its own batch; NaN if it cannot be read.
    pub loss: f64,
    /// Whether all that is pushed of the step is finite.
    pub finite: bool,
    /// Buckets that are skipped if it is not finite on some rank; the same on all ranks.
    pub skips: usize,
    /// How many there are; the model's buffers count as one.
    pub buckets: usize,
}

/// The exchange that a step is for.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    /// Its clock.
    pub clock: Clock,
    /// What the loss was multiplied by, if it was.
    pub loss_scale: Option<f64>,
}

impl Computed {
    /// The step, as all ranks know it: they agree on finiteness before the first block leaves (rule 7), and
    /// on the mean loss. The rank has computed `samples`, and may have missed its pace. Times are still to
    /// be filled in.
    pub fn agree(
        self,
        samples: usize,
        missed_pace: bool,
        ahead: Ahead,
        ranks: &dyn Ranks,
    ) -> Result<Step, Broken> {
        self.agree_beside(samples, missed_pace, ahead, &mut [], ranks)
    }

    /// The same, with further values of each rank, which become their sums.
    pub fn agree_beside(
        self,
        samples: usize,
        missed_pace: bool,
        ahead: Ahead,
        beside: &mut [f64],
        ranks: &dyn Ranks,
    ) -> Result<Step, Broken> {
        let Self { buckets, .. } = self;
        let Ahead { clock, loss_scale } = ahead;
        let own = [
            self.loss * samples as f64,
            samples as f64,
            f64::from(u8::from(!self.finite)),
            f64::from(u8::from(missed_pace)),
        ];
        let mut sums = [&own[..], beside].concat();
        ranks.all_reduce_sum(&mut sums)?;
        let (own, others) = sums.split_at(own.len());
        beside.copy_from_slice(others);
        let [loss, samples, not_finite, missed_pace] = *own else {
            unreachable!("as many as were summed");
        };
        let buckets_skipped = if not_finite == 0.0 { 0 } else { self.skips };
        let overflowed = buckets_skipped > 0 && loss_scale.is_some();
        if overflowed {
            tracing::info!(%clock, loss_scale, "scaled gradients overflowed: the group skips");
        } else if buckets_skipped > 0 {
            tracing::warn!(%clock, buckets_skipped, buckets, "no finite gradient: the group skips");
        }
        let pushed = (buckets_skipped < buckets).then_some(samples as u32);
        Ok(Step {
            clock,
            pushed,
            buckets_skipped,
            overflowed,
            loss_scale,
            loss: loss / samples,
            samples: samples as u64,
            local_steps: 1,
            local_skipped: u32::from(pushed.is_none()),
            data: Duration::ZERO,
            copied: Copied::default(),
            compute: Duration::ZERO,
            reduce: Duration::ZERO,
            missed_pace: u32::from(missed_pace > 0.0),
            reduce_bytes_per_second: None,
        })
    }
}

/// What was copied to a node's own disk.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Copied {
    /// Bytes of files.
    pub bytes: u64,
    /// Seconds that it took, summed over threads.
    pub seconds: f64,
}

impl std::ops::Add for Copied {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            seconds: self.seconds + other.seconds,
        }
    }
}

impl std::ops::Sub for Copied {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            bytes: self.bytes - other.bytes,
            seconds: self.seconds - other.seconds,
        }
    }
}

/// A step whose gradient is there.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Of its exchange.
    pub clock: Clock,
    /// Samples of the gradient that is pushed; `None` if the ranks have agreed to skip all of it.
    pub pushed: Option<u32>,
    /// Buckets that are skipped.
    pub buckets_skipped: usize,
    /// Because gradients of the scaled loss overflowed; of several steps as one, in all of them.
    pub overflowed: bool,
    /// What the loss was multiplied by, and the gradient is divided by, if it was.
    pub loss_scale: Option<f64>,
    /// Mean over the samples of all ranks.
    pub loss: f64,
    /// Of all ranks.
    pub samples: u64,
    /// How many steps it is: several where a group takes some between exchanges.
    pub local_steps: u32,
    /// Those of them that were skipped.
    pub local_skipped: u32,
    /// Waiting for the batch.
    pub data: Duration,
    /// By all ranks since the last step.
    pub copied: Copied,
    /// Forward and backward.
    pub compute: Duration,
    /// What reductions, agreement and the gather have added to that.
    pub reduce: Duration,
    /// Steps in which the computation of a rank took longer than its pace.
    pub missed_pace: u32,
    /// Bus bandwidth of the reductions of its gradient, where it is known.
    pub reduce_bytes_per_second: Option<f64>,
}

impl Step {
    /// This and the next step of the same exchange as one. What is skipped counts for nothing but
    /// time.
    pub fn and(self, next: Self) -> Self {
        let kept = match (self.pushed, next.pushed) {
            (_, None) => self,
            (None, Some(_)) => next,
            (Some(before), Some(added)) => {
                let samples = self.samples + next.samples;
                let of = |step: &Self| step.loss * (step.samples as f64 / samples as f64);
                Self {
                    pushed: Some(before + added),
                    loss: of(&self) + of(&next),
                    samples,
                    ..next
                }
            }
        };
        Self {
            // With one that has a gradient it is not skipped.
            overflowed: self.overflowed && next.overflowed,
            loss_scale: next.loss_scale,
            local_steps: self.local_steps + next.local_steps,
            local_skipped: self.local_skipped + next.local_skipped,
            data: self.data + next.data,
            copied: self.copied + next.copied,
            compute: self.compute + next.compute,
            reduce: self.reduce + next.reduce,
            missed_pace: self.missed_pace + next.missed_pace,
            reduce_bytes_per_second: next.reduce_bytes_per_second,
            ..kept
        }
    }

    /// Samples of its contribution.
    pub fn samples_pushed(&self) -> u64 {
        self.pushed.map_or(0, u64::from)
    }

    /// Whether the ranks have agreed to skip all of it.
    pub fn is_skipped(&self) -> bool {
        self.pushed.is_none()
    }

    /// Whether its overflow has lowered the scale, so that the next step may have none.
    pub fn lowered_scale(&self) -> bool {
        self.overflowed && self.loss_scale > Some(SCALE_MIN)
    }
}

/// A step whose exchange has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The step.
    pub step: Step,
    /// What its exchange came to.
    pub summary: Summary,
    /// How long that took.
    pub took: Duration,
    /// For how much of it the rank stood still.
    pub exposed: Duration,
    /// When it ended, seconds since the Unix epoch.
    pub wall: f64,
}

impl Ended {
    /// Its record, by the group's first rank; `gpu` is how its GPU was doing, if it has one.
    pub fn record(&self, GroupId(group): GroupId, gpu: Option<Gpu>) -> StepRecord {
        let Ended { step, summary, .. } = self;
        let wait_seconds = summary.waited_us as f64 / 1e6;
        StepRecord {
            wall: self.wall,
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
            data_seconds: step.data.as_secs_f64(),
            staged_bytes: step.copied.bytes,
            staged_seconds: step.copied.seconds,
            compute_seconds: step.compute.as_secs_f64(),
            reduce_seconds: step.reduce.as_secs_f64(),
            exchange_seconds: (self.took.as_secs_f64() - wait_seconds).max(0.0),
            exposed_seconds: self.exposed.as_secs_f64(),
            wait_seconds,
            reduce_bytes_per_second: step.reduce_bytes_per_second,
            gpu,
        }
    }
}
