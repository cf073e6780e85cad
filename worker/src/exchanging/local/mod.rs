//! Local steps: a group takes several steps, with an inner optimizer of libtorch's, and then exchanges what
//! they came to, between steps.
//!
//! | | DiLoCo | elastic averaging |
//! |---|---|---|
//! | steps begin with | the servers' values | the group's own; in a new incarnation the servers' |
//! | pushed as a gradient | pulled minus trained values | trained values |
//! | with the answer | the group takes the servers' values | is drawn towards them |
//!
//! DiLoCo is algorithm 1 of Douillard et al. 2023, "DiLoCo: Distributed Low-Communication Training of
//! Language Models", on the group's side; elastic averaging algorithm 1 of Zhang, Choromanska and LeCun 2015,
//! "Deep learning with Elastic Averaging SGD", and algorithm 2 with an inner momentum; fitted step counts are
//! section 5 of Liu et al. 2024, "Asynchronous Local-SGD Training for Language Modeling".
//!
//! The ranks of a group average the gradient of every step, so all have the same values and the same state of
//! the inner optimizer, which lives as long as this incarnation of the group.

mod inner;

use std::sync::Arc;

use tch::Tensor;
use tradewind_client::core::session::Summary;
use tradewind_client::heartbeat::HeartbeatState;
use tradewind_client::local;
use tradewind_client::ranges::{Range, within};
use tradewind_client::step::{Computed, Ended, Step};
use tradewind_client::stopwatch::Stopwatch;
use tradewind_common::Clock;
use tradewind_common::schedule::Seen;

use super::between::BetweenSteps;
use super::{Exchanging, Replica};
use crate::flat::Flat;
use crate::group::{Group, GroupError};
use crate::host::HostError;
use crate::train_error::TrainError;

pub(super) use inner::{InnerSteps, Outer};

/// Exchanges between steps, with several steps before each. What is pushed is there only when the last of
/// them is done, and the next ones begin from the answer: so nothing goes on beside an exchange.
pub(super) struct LocalSteps {
    between: BetweenSteps,
    inner: InnerSteps,
    /// Where the group's speed is told, and that of others comes.
    heartbeat: Arc<HeartbeatState>,
}

impl LocalSteps {
    pub(super) fn new(
        between: BetweenSteps,
        inner: InnerSteps,
        heartbeat: &Arc<HeartbeatState>,
    ) -> Self {
        Self {
            between,
            inner,
            heartbeat: heartbeat.clone(),
        }
    }

    /// What the steps came to takes the place of the gradient. The ranks agree that it is finite, before the
    /// first block leaves (rule 7).
    fn agree_to_push(&mut self, steps: &mut Step, group: &dyn Group) -> Result<(), TrainError> {
        self.inner.push(group)?;
        let Computed { finite, skips, .. } = self.between.gradient.replaced(group)?;
        if !local::agree_to_push(steps, finite, skips, group)? {
            self.inner.give_up()?;
        }
        Ok(())
    }
}

impl Exchanging for LocalSteps {
    fn pull(&mut self, replica: &mut Replica<'_>) -> Result<Summary, TrainError> {
        let pulled = self.between.pull(replica)?;
        self.inner.begin()?;
        Ok(pulled)
    }

    fn next_clock(&self) -> Clock {
        self.between.next_clock()
    }

    fn clock(&self) -> Clock {
        self.between.clock()
    }

    fn steps(&self, group: &dyn Group) -> Result<u32, GroupError> {
        self.inner.steps(group, &self.heartbeat)
    }

    fn begin_step(&mut self) -> Result<(), HostError> {
        self.between.gradient.keep_buffers()
    }

    fn loss_scale(&self) -> Option<f64> {
        self.between.loss_scale()
    }

    fn begin_backward(&mut self, samples: u32, seen: Seen) -> Result<(), HostError> {
        self.between.begin_backward(samples, seen)
    }

    /// Between exchanges buffers are left alone.
    fn computed(&mut self, loss: &Tensor, group: &dyn Group) -> Result<Computed, HostError> {
        self.between.gradient.computed_alone(loss, group)
    }

    fn agreed(&mut self, step: &Step, group: &dyn Group, flat: &Flat) -> Result<(), HostError> {
        self.between.agreed(step, group, flat)
    }

    /// A step without a finite gradient is left out by all ranks; without any that has one the exchange is
    /// skipped.
    fn stepped(&mut self, step: &Step, seen: Seen) -> Result<(), HostError> {
        match step.is_skipped() {
            true => self.between.gradient.put_buffers_back(),
            false => self.inner.step(seen, step.samples),
        }
    }

    fn finish_steps(&mut self, steps: &mut Step, group: &dyn Group) -> Result<(), TrainError> {
        local::tell_speed(steps, &self.heartbeat);
        let watch = Stopwatch::start();
        within(Range::Reduce, || self.agree_to_push(steps, group))?;
        steps.reduce += watch.elapsed();
        Ok(())
    }

    fn exchange(
        &mut self,
        step: Step,
        seen: Seen,
        replica: &mut Replica<'_>,
    ) -> Result<Option<Ended>, TrainError> {
        let ended = self.between.exchange(step, seen, replica)?;
        self.inner.pulled(!step.is_skipped())?;
        Ok(ended)
    }

    fn go_on_at(&mut self, clock: Clock) -> Clock {
        self.between.go_on_at(clock)
    }
}
