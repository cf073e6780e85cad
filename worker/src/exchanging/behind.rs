//! Overlap 1: the exchange of a step runs while the next step computes, θₜ₊₁ = θₜ − η g(θₜ₋₁) for one group:
//! the gradient lag of Kurth et al. 2018, "Exascale Deep Learning for Climate Analytics", section V-B.
//!
//! Gradients and values are double: the model has its own, the exchange that is under way has others. Of
//! both only the blocks of the rank's slice are in use.

use std::sync::Arc;

use tch::Tensor;
use tradewind_client::background::Background;
use tradewind_client::core::session::{Purpose, Summary};
use tradewind_client::exchange_error::ExchangeError;
use tradewind_client::ranges::{Range, open, within};
use tradewind_client::stopwatch::Stopwatch;
use tradewind_common::schedule::Seen;
use tradewind_common::{BlockId, Clock, Layout};

use super::build::Streams;
use super::whole::{Contribution, WholeGradient, measured};
use super::{Computed, Ended, Exchanging, Replica, Step};
use crate::flat::Flat;
use crate::group::Group;
use crate::host::{Fresh, HostError, HostSide, Pushed};
use crate::norms::TensorNorms;
use crate::telemetry::wall;
use crate::train_error::TrainError;

/// Exchanges behind the next step, one at a time.
pub(super) struct BehindStep {
    gradient: WholeGradient,
    /// What it is pushed with besides, where the optimizer asks for it.
    norms: Option<TensorNorms>,
    background: Background<Box<dyn Fresh>>,
    layout: Arc<Layout>,
    slice: Vec<BlockId>,
    /// The gradient that is pushed. Empty while an exchange has it, and where gradients are copied by
    /// whoever gives them.
    copied: Vec<f32>,
    /// Values as last pulled; none while an exchange has them.
    fresh: Option<Box<dyn Fresh>>,
    under_way: Option<Step>,
}

impl BehindStep {
    pub(super) fn new(
        host: &HostSide,
        gradient: WholeGradient,
        norms: Option<TensorNorms>,
        Streams { exchange, wire }: Streams,
        fresh: Box<dyn Fresh>,
    ) -> Self {
        Self {
            gradient,
            norms,
            background: Background::new(exchange, host.layout().clone(), wire),
            layout: host.layout().clone(),
            slice: host.slice().to_vec(),
            copied: Vec::new(),
            fresh: Some(fresh),
            under_way: None,
        }
    }

    /// Waits for the exchange that is under way, if there is one.
    fn wait(&mut self) -> Result<Option<Ended>, ExchangeError> {
        let Some(step) = self.under_way.take() else {
            return Ok(None);
        };
        let ended = self.background.wait()?;
        (self.copied, self.fresh) = (ended.gradient, Some(ended.values));
        Ok(Some(Ended {
            step,
            summary: ended.summary,
            took: ended.took,
            exposed: ended.exposed,
            wall: wall() - ended.since.elapsed().as_secs_f64(),
        }))
    }

    /// Makes the slice as last pulled the model's. No exchange is under way.
    fn load(&mut self, flat: &mut Flat) -> Result<(), HostError> {
        self.fresh.as_mut().expect(NONE_UNDER_WAY).load(flat)
    }

    /// Starts the exchange of a step, which pushes nothing if it is skipped.
    fn start(&mut self, step: &Step, seen: Seen, group: &dyn Group) {
        let fresh = self.fresh.take().expect(NONE_UNDER_WAY);
        let mut copied = std::mem::take(&mut self.copied);
        let background = &mut self.background;
        let Some(Contribution { samples, values }) = self.gradient.push(step, group) else {
            return background.start(Purpose::Skip, seen, copied, fresh);
        };
        match values {
            Pushed::InPlace(at) => {
                copied.resize(self.layout.elements(), 0.0);
                for id in &self.slice {
                    let block = self.layout.block(*id).expect("a block of the slice");
                    copied[block.elements.clone()].copy_from_slice(&at.block(*id));
                }
                background.start(Purpose::Gradient { samples }, seen, copied, fresh);
            }
            Pushed::Parts(parts) => background.start_parts(samples, seen, parts, fresh),
        }
    }
}

impl Exchanging for BehindStep {
    fn pull(&mut self, replica: &mut Replica<'_>) -> Result<Summary, TrainError> {
        let fresh = self.fresh.take().expect(NONE_UNDER_WAY);
        let (pulled, fresh) = self.background.pull(fresh)?;
        self.fresh = Some(fresh);
        self.load(replica.flat)?;
        Ok(replica.gather(pulled)?)
    }

    fn next_clock(&self) -> Clock {
        self.clock()
    }

    fn clock(&self) -> Clock {
        self.background.clock()
    }

    fn loss_scale(&self) -> Option<f64> {
        self.gradient.loss_scale()
    }

    fn begin_backward(&mut self, _samples: u32, _seen: Seen) -> Result<(), HostError> {
        self.gradient.begin()
    }

    fn computed(&mut self, loss: &Tensor, group: &dyn Group) -> Result<Computed, HostError> {
        self.gradient.computed(loss, group)
    }

    fn agreed(&mut self, step: &Step, group: &dyn Group, flat: &Flat) -> Result<(), HostError> {
        self.gradient.agreed(step, group);
        if let Some(norms) = measured(self.norms.as_ref(), step, group, flat)? {
            self.background.measured(norms);
        }
        Ok(())
    }

    /// Starts the exchange of this step once that of the step before, if there was one, has ended.
    fn exchange(
        &mut self,
        mut step: Step,
        mut seen: Seen,
        replica: &mut Replica<'_>,
    ) -> Result<Option<Ended>, TrainError> {
        let mut ended = within(Range::Wait, || self.wait())?;
        let _open = open(Range::Reduce);
        let watch = Stopwatch::start();
        if let Some(Ended { summary, .. }) = &mut ended {
            *summary = replica.over_ranks(*summary)?;
            if summary.stop || summary.leave {
                return Ok(ended);
            }
            seen = summary.seen();
            self.background.go_on_at(summary.next);
            step.clock = self.background.clock();
        }
        self.load(replica.flat)?;
        self.start(&step, seen, &*replica.group);
        replica.group.gather(replica.flat)?;
        // What came with something that is not finite goes nowhere.
        if !step.is_skipped() {
            self.gradient.go_on_with_own_buffers()?;
        }
        step.reduce += watch.elapsed();
        self.under_way = Some(step);
        Ok(ended)
    }

    /// It did so before it started the exchange that is under way.
    fn go_on_at(&mut self, _clock: Clock) -> Clock {
        self.clock()
    }
}

const NONE_UNDER_WAY: &str = "no exchange is under way";
