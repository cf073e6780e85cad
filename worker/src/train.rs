//! The training loop.

use std::time::Duration;

use tch::{Kind, Tensor};
use tradewind_client::core::session::Summary;
use tradewind_client::membership::{End, Membership};
use tradewind_client::pace::Pace;
use tradewind_client::ranges::{Range, open, within};
use tradewind_client::rank_settings::RankSettings;
use tradewind_client::step::{Ahead, Copied, Ended, Step};
use tradewind_client::stopwatch::Stopwatch;
use tradewind_common::schedule::Seen;
use tradewind_common::shares::first_step;
use tradewind_common::{Clock, Rank, TensorKind};

use crate::data::Batch;
use crate::exchanging::{Exchanging, Replica};
use crate::feed::Feed;
use crate::gpu_stats::GpuStats;
use crate::group::{Group, GroupError, bus_bandwidth};
use crate::member::Member;
use crate::model::seed_step;
use crate::precision::autocast;
use crate::train_error::TrainError;

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
    /// Of the group, in this incarnation. Dropped last: whoever drops the group may get stuck.
    pub membership: Membership,
}

impl Worker<'_> {
    /// Trains until the shards say stop, or somebody asks the group to leave. `pulled` is what they
    /// said when the group entered: a group that comes when the budget is applied takes no step.
    pub fn train(&mut self, pulled: Summary) -> Result<End, TrainError> {
        if pulled.stop {
            return Ok(End::Applied);
        }
        let _trains = self.member.process.leaving.train();
        let mut seen = pulled.seen();
        loop {
            let _step = open(Range::Step(self.exchanging.next_clock()));
            let step = self.steps(seen)?;
            // What ends here may be the exchange of the step before.
            let Some(ended) = self.exchange(step, seen)? else {
                continue;
            };

            self.feed.done();
            self.member.process.exchanged();
            seen = ended.summary.seen();
            self.record(&ended);
            if let Some(end) = self.membership.ended(&ended)? {
                return Ok(end);
            }
            // Only where groups may be left behind this is further than it is anyway.
            let next = self.exchanging.go_on_at(ended.summary.next);
            self.feed.go_on_at(next);
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
        self.membership.check()?;
        self.exchanging.begin_step()?;
        let mut watch = Stopwatch::start();
        let batch = within(Range::Data, || self.batch())?;
        let data = watch.lap();
        // Counted before the exchange has begun, which some begin in backward.
        self.seed(self.exchanging.next_clock(), nth);
        let loss = within(Range::Forward, || self.loss(&batch))?;
        // Batches are equal: the feed drops what fills none.
        let samples = batch.samples.len() as u32 * self.group.size();
        self.exchanging.begin_backward(samples, seen)?;
        // While the device computes, and before anybody waits for it.
        self.feed.copy_next();
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
        step.data = data;
        step.reduce = exposed + watch.lap();
        self.exchanging.stepped(&step, seen)?;
        step.compute = compute + watch.lap();
        Ok(step)
    }

    /// Has what the forward draws follow from the seed, the rank and the step, whatever was drawn before: so it is
    /// the same when a run is repeated, and when a group goes on from a clock as a new incarnation.
    fn seed(&self, clock: Clock, nth: u32) {
        let Member {
            config, process, ..
        } = &*self.member;
        let RankSettings { id, .. } = &process.settings;
        seed_step(config.seed, id.group, id.rank, self.count(clock, nth));
    }

    /// Steps of the run before the `nth` of a clock.
    fn count(&self, clock: Clock, nth: u32) -> u64 {
        let spec = &self.member.process.settings.spec;
        first_step(clock, spec.local_steps).0 + u64::from(nth)
    }

    fn batch(&mut self) -> Result<Batch, TrainError> {
        let membership = &mut self.membership;
        let mut lease = |finished, held| membership.lease_chunk(finished, held);
        self.feed.next(&*self.group, &mut lease)
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
            config, process, ..
        } = &*self.member;
        let RankSettings { id, .. } = &process.settings;
        let step = self.count(self.exchanging.clock(), nth);
        config.stragglers.factor(id.group, id.rank, step)
    }

    /// By bucket the ranks have come to the same result about the gradient, and agree about the buffers.
    fn agree(
        &mut self,
        loss: &Tensor,
        samples: usize,
        missed_pace: bool,
    ) -> Result<Step, TrainError> {
        let computed = self.exchanging.computed(loss, &*self.group)?;
        let ahead = Ahead {
            clock: self.exchanging.clock(),
            loss_scale: self.exchanging.loss_scale(),
        };
        let copied = self.feed.copied();
        let new = copied - std::mem::replace(&mut self.member.copied, copied);
        let mut copied = [new.bytes as f64, new.seconds];
        let step = computed.agree_beside(samples, missed_pace, ahead, &mut copied, &*self.group)?;
        Ok(Step {
            copied: Copied {
                bytes: copied[0] as u64,
                seconds: copied[1],
            },
            reduce_bytes_per_second: self.bus_bandwidth()?,
            ..step
        })
    }

    fn exchange(&mut self, step: Step, seen: Seen) -> Result<Option<Ended>, TrainError> {
        let membership = &self.membership;
        let mut replica = Replica {
            group: &mut *self.group,
            flat: &mut self.member.flat,
            leave: &|| membership.is_asked_to_leave(),
        };
        self.exchanging.exchange(step, seen, &mut replica)
    }

    /// In the metrics, by the group's first rank.
    fn record(&mut self, ended: &Ended) {
        if self.group.rank() != Rank(0) {
            return;
        }
        let gpu = self.member.gpu_stats.as_ref().and_then(GpuStats::latest);
        let group = self.member.process.settings.id.group;
        self.member.recorder.write(&ended.record(group, gpu));
    }

    fn bus_bandwidth(&self) -> Result<Option<f64>, GroupError> {
        let layout = &self.member.process.settings.layout;
        let parameters = layout.of_kind(TensorKind::Parameter);
        let (bytes, size) = (size_of::<f32>() * parameters.len(), self.group.size());
        let took = self.group.reduced()?;
        Ok(took.and_then(|took| bus_bandwidth(bytes, size, took)))
    }
}
