//! The training loop.

mod record;

use std::sync::Arc;
use std::time::Duration;

use tch::{Kind, Tensor};
use tradewind_common::schedule::Seen;
use tradewind_common::shares::first_step;
use tradewind_common::{Incarnation, Rank, TensorKind};

use crate::data::Batch;
use crate::exchanging::{Computed, Ended, Exchanging, Replica, Step};
use crate::feed::{Feed, FeedError};
use crate::fence::Guard;
use crate::gpu_stats::GpuStats;
use crate::group::{Group, GroupError, bus_bandwidth};
use crate::member::Member;
use crate::pace::Pace;
use crate::precision::autocast;
use tradewind_client::core::session::Summary;
use tradewind_client::pulse::Pulse;
use tradewind_client::ranges::{Range, open, within};
use tradewind_client::stopwatch::Stopwatch;

use crate::train_error::{SKIPS_MAX, TrainError};
use record::step_record;

/// A rank in one incarnation of its group.
pub struct Worker<'a> {
    /// What the rank keeps through all incarnations: model, data, configuration.
    pub member: &'a mut Member,
    /// The ranks that step together.
    pub group: Box<dyn Group>,
    /// How exchanges stand to steps, with the streams to the shards.
    pub exchanging: Box<dyn Exchanging>,
    /// Which samples come next.
    pub feed: Feed,
    /// Which incarnation.
    pub incarnation: Incarnation,
    /// What heartbeats tell and bring.
    pub pulse: Arc<Pulse>,
    /// Knows whether the lease is lost.
    pub guard: Guard,
    /// Whether an exchange has ended.
    pub exchanged: bool,
}

/// Why training has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The run's budget is applied.
    Applied,
    /// The group was asked to leave; others go on.
    Left,
}

impl Worker<'_> {
    /// Trains until the shards say stop, or somebody asks the group to leave. `pulled` is what they
    /// said when the group entered: a group that comes when the budget is applied takes no step.
    pub fn train(&mut self, pulled: Summary) -> Result<End, TrainError> {
        if pulled.stop {
            return Ok(End::Applied);
        }
        let _trains = self.member.leaving.train();
        let mut seen = pulled.seen();
        let mut skips = 0;
        loop {
            let _step = open(Range::Step(self.exchanging.next_clock()));
            let step = self.steps(seen)?;
            // What ends here may be the exchange of the step before.
            let Some(ended) = self.exchange(step, seen)? else {
                continue;
            };

            let Ended { step, summary, .. } = ended;
            self.feed.done();
            self.exchanged = true;
            self.pulse.set_clock(step.clock.tick());
            seen = summary.seen();
            self.record(&ended);
            if summary.stop {
                return Ok(End::Applied);
            }
            if summary.leave {
                return Ok(End::Left);
            }
            // Only where groups may be left behind this is further than it is anyway.
            let next = self.exchanging.go_on_at(summary.next);
            self.feed.go_on_at(next);
            skips = match (step.buckets_skipped, step.lowered_scale()) {
                (0, _) => 0,
                // The next one may fare better.
                (_, true) => skips,
                (_, false) => skips + 1,
            };
            if skips == SKIPS_MAX {
                let clock = step.clock.0;
                return Err(TrainError::Diverged { clock });
            }
        }
    }

    /// The steps until the next exchange, as one.
    fn steps(&mut self, seen: Seen) -> Result<Step, TrainError> {
        let count = self.exchanging.steps(&*self.group)?;
        let mut steps = self.step(0, seen)?;
        for nth in 1..count {
            let samples = seen.samples + steps.samples_pushed();
            let next = self.step(nth, Seen { samples, ..seen })?;
            self.feed.done();
            steps = steps.and(next);
        }
        self.exchanging.finish_steps(&mut steps, &*self.group)?;
        Ok(steps)
    }

    /// One step: the gradient of the next batch, and what the ranks have agreed to do with it. It is the
    /// `nth` step since the last exchange, from 0.
    fn step(&mut self, nth: u32, seen: Seen) -> Result<Step, TrainError> {
        if self.guard.is_lost() {
            return Err(TrainError::LeaseLost);
        }
        self.exchanging.begin_step()?;
        let mut watch = Stopwatch::start();
        let batch = within(Range::Data, || self.batch())?;
        let loss = within(Range::Forward, || self.loss(&batch))?;
        // Batches are equal: the feed drops what fills none.
        let samples = batch.samples.len() as u32 * self.group.size();
        self.exchanging.begin_backward(samples, seen)?;
        let exposed = within(Range::Backward, || self.backward(&loss))?;
        let mut compute = watch.lap().saturating_sub(exposed);
        let pace = Pace::new(Duration::from_secs_f64(self.member.config.step_seconds));
        let pace = pace.times(self.slowness(nth));
        let missed = pace.missed(compute);
        pace.keep(compute);
        compute += watch.lap();

        let agree = || self.agree(&loss, batch.samples.len(), missed);
        let mut step = within(Range::Reduce, agree)?;
        let (group, flat) = (&*self.group, &self.member.flat);
        self.exchanging.agreed(&step, group, flat)?;
        step.reduce = exposed + watch.lap();
        self.exchanging.stepped(&step, seen)?;
        step.compute = compute + watch.lap();
        Ok(step)
    }

    fn batch(&mut self) -> Result<Batch, TrainError> {
        Ok(self.next_batch()?.to(self.member.device)?)
    }

    fn next_batch(&mut self) -> Result<Batch, FeedError> {
        let Self {
            member,
            feed,
            group,
            incarnation,
            ..
        } = self;
        let Member {
            coordinator,
            seat,
            runtime,
            ..
        } = &mut **member;
        feed.next(&**group, &mut |finished, held| {
            runtime.block_on(coordinator.lease_chunk(seat, *incarnation, finished, held))
        })
    }

    /// In as few bits as is configured; itself f32.
    fn loss(&self, batch: &Batch) -> Result<Tensor, TrainError> {
        let Member {
            task,
            config,
            device,
            ..
        } = &*self.member;
        let loss = autocast(config.compute.precision, *device, || task.loss(batch));
        Ok(loss.map_err(TrainError::Precision)?.to_kind(Kind::Float))
    }

    /// Through the loss, scaled where that is configured: on the device, nobody waits.
    fn backward(&mut self, loss: &Tensor) -> Result<Duration, GroupError> {
        match self.exchanging.loss_scale() {
            Some(scale) => self.group.backward(&(loss * scale)),
            None => self.group.backward(loss),
        }
    }

    /// How many times as long this step takes this rank, by what is configured.
    fn slowness(&self, nth: u32) -> f64 {
        let Member {
            config, seat, spec, ..
        } = &*self.member;
        let step = first_step(self.exchanging.clock(), spec.local_steps).0 + u64::from(nth);
        let stragglers = &config.stragglers;
        stragglers.factor(seat.group, seat.rank, step)
    }

    /// Ranks agree on finiteness before the first block leaves (rule 7), and on the mean loss. By
    /// bucket they have come to the same result about the gradient, and agree about the buffers.
    fn agree(
        &mut self,
        loss: &Tensor,
        samples: usize,
        missed_pace: bool,
    ) -> Result<Step, TrainError> {
        let Computed {
            loss,
            finite,
            skips,
            buckets,
        } = self.exchanging.computed(loss, &*self.group)?;
        let mut sums = [
            loss * samples as f64,
            samples as f64,
            f64::from(u8::from(!finite)),
            f64::from(u8::from(missed_pace)),
        ];
        self.group.all_reduce_sum(&mut sums)?;
        let [loss, samples, not_finite, missed_pace] = sums;
        let buckets_skipped = if not_finite == 0.0 { 0 } else { skips };
        let (clock, loss_scale) = (self.exchanging.clock(), self.exchanging.loss_scale());
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
            compute: Duration::ZERO,
            reduce: Duration::ZERO,
            missed_pace: u32::from(missed_pace > 0.0),
            reduce_bytes_per_second: self.bus_bandwidth()?,
        })
    }

    fn exchange(&mut self, step: Step, seen: Seen) -> Result<Option<Ended>, TrainError> {
        let Self {
            member,
            group,
            exchanging,
            pulse,
            ..
        } = self;
        let Member { flat, leaving, .. } = &mut **member;
        let leave = || leaving.is_asked() || pulse.leave();
        let mut replica = Replica {
            group: &mut **group,
            flat,
            leave: &leave,
        };
        exchanging.exchange(step, seen, &mut replica)
    }

    /// In the metrics, by the group's first rank.
    fn record(&mut self, ended: &Ended) {
        if self.group.rank() != Rank(0) {
            return;
        }
        let gpu = self.member.gpu_stats.as_ref().and_then(GpuStats::latest);
        let record = step_record(self.member.seat.group, ended, gpu);
        self.member.recorder.write(&record);
    }

    fn bus_bandwidth(&self) -> Result<Option<f64>, GroupError> {
        let parameters = self.member.layout.of_kind(TensorKind::Parameter);
        let (bytes, size) = (size_of::<f32>() * parameters.len(), self.group.size());
        let took = self.group.reduced()?;
        Ok(took.and_then(|took| bus_bandwidth(bytes, size, took)))
    }
}
