//! The training loop.

mod exchange;
mod local;
mod record;

use std::sync::Arc;
use std::time::Duration;

use tch::{Kind, Tensor};
use tradewind_common::schedule::Seen;
use tradewind_common::shares::first_step;
use tradewind_common::{Incarnation, TensorKind};

use crate::data::Batch;
use crate::exchanges::{Ended, Exchanges, Step};
use crate::feed::{Feed, FeedError};
use crate::fence::Guard;
use crate::group::{Group, GroupError, bus_bandwidth};
use crate::host::buffers::Buffers;
use crate::host::{Checked, Host, HostError};
use crate::local::Local;
use crate::member::Member;
use crate::norms::TensorNorms;
use crate::pace::Pace;
use crate::precision::{LossScaler, autocast};
use tradewind_client::core::session::{Purpose, Summary};
use tradewind_client::pulse::Pulse;
use tradewind_client::ranges::{Range, open, within};
use tradewind_client::stopwatch::Stopwatch;

use crate::train_error::{SKIPS_MAX, TrainError};

/// Everything that a rank trains with in one life of its group.
pub struct Worker<'a> {
    /// What it has in all of them.
    pub member: &'a mut Member,
    /// The ranks that step together.
    pub group: Box<dyn Group>,
    /// The way of gradients to main memory.
    pub host: Host,
    /// The streams to the shards, and when they are used.
    pub exchanges: Exchanges,
    /// Which samples come next.
    pub feed: Feed,
    /// Statistics that the model keeps.
    pub buffers: Buffers,
    /// What gradients are pushed with besides, where the optimizer asks for it.
    pub norms: Option<TensorNorms>,
    /// Steps between two exchanges, if it takes some.
    pub local: Option<Local>,
    /// The scale of the loss, where it is scaled.
    pub scaler: Option<LossScaler>,
    /// Which life of the group.
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
            let _step = open(Range::Step(self.exchanges.next_clock()));
            let step = match self.local {
                None => self.step(0, seen)?,
                Some(_) => self.local_steps(seen)?,
            };
            // With overlap it is the exchange of the step before that ends here.
            let Some(ended) = self.exchange(step, seen)? else {
                continue;
            };

            let Ended { step, summary, .. } = ended;
            if let Some(local) = &mut self.local {
                local.pulled(step.purpose != Purpose::Skip)?;
            }
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
            let next = self.exchanges.go_on_at(summary.next);
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

    /// The gradient of the next batch, and what the ranks have agreed to do with it. It is the
    /// `nth` step since the last exchange, from 0.
    fn step(&mut self, nth: u32, seen: Seen) -> Result<Step, TrainError> {
        if self.guard.is_lost() {
            return Err(TrainError::LeaseLost);
        }
        let mut watch = Stopwatch::start();
        let batch = within(Range::Data, || self.batch())?;
        let loss = within(Range::Forward, || self.loss(&batch))?;
        self.begin(batch.samples.len(), seen)?;
        let exposed = within(Range::Backward, || self.backward(&loss))?;
        let mut compute = watch.lap().saturating_sub(exposed);
        let pace = Pace::new(Duration::from_secs_f64(self.member.config.step_seconds));
        let pace = pace.times(self.slowness(nth));
        let missed = pace.missed(compute);
        pace.keep(compute);
        compute += watch.lap();

        let agree = || self.agree(&loss, batch.samples.len(), missed);
        let mut step = within(Range::Reduce, agree)?;
        self.unscale(&step);
        if self.norms.is_some() {
            within(Range::Reduce, || self.measure(&step))?;
        }
        step.compute = compute;
        step.reduce = exposed + watch.lap();
        Ok(step)
    }

    /// How many times as long this step takes this rank, by what is configured.
    fn slowness(&self, nth: u32) -> f64 {
        let Member {
            config, seat, spec, ..
        } = &*self.member;
        let step = first_step(self.exchanges.clock(), spec.local_steps).0 + u64::from(nth);
        let stragglers = &config.stragglers;
        stragglers.factor(seat.group, seat.rank, step)
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
        match &self.scaler {
            Some(scaler) => self.group.backward(&(loss * scaler.scale())),
            None => self.group.backward(loss),
        }
    }

    /// Takes the scale out of a gradient that is pushed from where it is, exactly: it is a power of
    /// two. Elsewhere it is taken out on the way.
    fn unscale(&mut self, step: &Step) {
        if let (Host::Shared(_), Some(scale), false) =
            (&self.host, step.loss_scale, step.overflowed)
        {
            let buckets = 0..self.member.layout.buckets.len();
            for gradient in buckets.filter_map(|bucket| self.group.gradient(bucket)) {
                let _ = gradient.shallow_clone().g_mul_scalar_(1.0 / scale);
            }
        }
    }

    /// While the flat vector is what the gradient was computed on.
    fn measure(&mut self, step: &Step) -> Result<(), HostError> {
        if let (Some(norms), Purpose::Gradient { .. }) = (&self.norms, step.purpose) {
            let measured = norms.measure(&self.member.flat, &*self.group)?;
            self.exchanges.measured(measured);
        }
        Ok(())
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

    /// Before backward. By bucket an exchange begins before the gradient is there.
    fn begin(&mut self, samples: usize, seen: Seen) -> Result<(), HostError> {
        // Batches are equal: the feed drops what fills none.
        let samples = samples as u32 * self.group.size();
        let parts = match &mut self.exchanges {
            Exchanges::During(during) => Some(during.begin(samples, seen)),
            Exchanges::Between(_) | Exchanges::Behind(_) => None,
        };
        let scale = self.scaler.as_ref().map_or(1.0, LossScaler::scale);
        self.host.begin(1.0 / scale, parts.as_ref())
    }

    /// Ranks agree on finiteness before the first block leaves (rule 7), and on the mean loss. By
    /// bucket they have come to the same result about the gradient, and agree about the buffers.
    fn agree(
        &mut self,
        loss: &Tensor,
        samples: usize,
        missed_pace: bool,
    ) -> Result<Step, TrainError> {
        let Checked { loss, bad } = self.computed(loss)?;
        let layout = &self.member.layout;
        let buckets = layout.buckets.len();
        let finite = bad == 0 && (self.local.is_some() || self.buffers.finite());
        let mut sums = [
            loss * samples as f64,
            samples as f64,
            f64::from(u8::from(!finite)),
            f64::from(u8::from(missed_pace)),
        ];
        self.group.all_reduce_sum(&mut sums)?;
        let [loss, samples, not_finite, missed_pace] = sums;
        let clock = self.exchanges.clock();
        let buckets_skipped = match &self.exchanges {
            _ if not_finite == 0.0 => 0,
            Exchanges::During(_) => bad + layout.count(TensorKind::Buffer),
            Exchanges::Between(_) | Exchanges::Behind(_) => buckets,
        };
        let overflowed = buckets_skipped > 0 && self.scaler.is_some();
        let loss_scale = self.scaler.as_ref().map(LossScaler::scale);
        if overflowed {
            tracing::info!(%clock, loss_scale, "scaled gradients overflowed: the group skips");
        } else if buckets_skipped > 0 {
            tracing::warn!(%clock, buckets_skipped, buckets, "no finite gradient: the group skips");
        }
        // All ranks have heard the same.
        if let Some(scaler) = &mut self.scaler {
            scaler.stepped(overflowed);
        }
        let purpose = if buckets_skipped == buckets {
            Purpose::Skip
        } else {
            Purpose::Gradient {
                samples: samples as u32,
            }
        };
        Ok(Step {
            clock,
            purpose,
            buckets_skipped,
            overflowed,
            loss_scale,
            loss: loss / samples,
            samples: samples as u64,
            local_steps: 1,
            local_skipped: u32::from(buckets_skipped == buckets),
            compute: Duration::ZERO,
            reduce: Duration::ZERO,
            missed_pace: u32::from(missed_pace > 0.0),
            reduce_bytes_per_second: self.bus_bandwidth()?,
        })
    }

    fn bus_bandwidth(&self) -> Result<Option<f64>, GroupError> {
        let buckets = self.member.layout.buckets.iter();
        let trained = buckets.filter(|bucket| bucket.kind == TensorKind::Parameter);
        let bytes = trained.map(|bucket| size_of::<f32>() * bucket.elements.len());
        let took = self.group.reduced()?;
        Ok(took.and_then(|took| bus_bandwidth(bytes.sum(), self.group.size(), took)))
    }
}
