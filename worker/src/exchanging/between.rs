//! Overlap 0: the exchange of a step has ended before the next step begins.
//!
//! Where the model is in main memory, blocks go straight from libtorch's memory to the shards.

use std::borrow::Cow;

use tch::Tensor;
use tradewind_client::core::session::{Purpose, Summary};
use tradewind_client::exchange_error::ExchangeError;
use tradewind_client::ranges::{Range, open, within};
use tradewind_client::stopwatch::Stopwatch;
use tradewind_common::Clock;
use tradewind_common::schedule::Seen;

use super::build::Streams;
use super::whole::{Contribution, WholeGradient, measured};
use super::{Computed, Ended, Exchanging, Replica, Step};
use crate::flat::Flat;
use crate::group::Group;
use crate::host::{Fresh, HostError, Pushed};
use crate::norms::TensorNorms;
use crate::telemetry::wall;
use crate::train_error::TrainError;

/// Exchanges between steps.
pub(super) struct BetweenSteps {
    pub(super) gradient: WholeGradient,
    /// What it is pushed with besides, where the optimizer asks for it.
    norms: Option<TensorNorms>,
    streams: Streams,
    /// Where values come.
    fresh: Box<dyn Fresh>,
}

impl BetweenSteps {
    pub(super) fn new(gradient: WholeGradient, streams: Streams, fresh: Box<dyn Fresh>) -> Self {
        Self {
            gradient,
            norms: None,
            streams,
            fresh,
        }
    }

    /// For optimizers that ask for norms.
    pub(super) fn with_norms(self, norms: Option<TensorNorms>) -> Self {
        Self { norms, ..self }
    }
}

impl Exchanging for BetweenSteps {
    fn pull(&mut self, replica: &mut Replica<'_>) -> Result<Summary, TrainError> {
        let Streams { exchange, wire } = &mut self.streams;
        let pulled = wire.block_on(exchange.pull(&mut self.fresh))?;
        self.fresh.load(replica.flat)?;
        Ok(replica.gather(pulled)?)
    }

    fn next_clock(&self) -> Clock {
        self.clock()
    }

    fn clock(&self) -> Clock {
        self.streams.exchange.clock()
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
            self.streams.exchange.measured(norms);
        }
        Ok(())
    }

    fn exchange(
        &mut self,
        mut step: Step,
        seen: Seen,
        replica: &mut Replica<'_>,
    ) -> Result<Option<Ended>, TrainError> {
        let mut watch = Stopwatch::start();
        let pushed = self.gradient.push(&step, &*replica.group);
        let (streams, fresh) = (&mut self.streams, &mut self.fresh);
        let run = || run(streams, seen, pushed, fresh);
        let own = within(Range::Exchange(step.clock), run)?;
        let took = watch.lap();
        let _open = open(Range::Reduce);
        self.fresh.load(replica.flat)?;
        let summary = replica.gather(own)?;
        step.reduce += watch.lap();
        Ok(Some(Ended {
            step,
            summary,
            took,
            exposed: took,
            wall: wall(),
        }))
    }

    fn go_on_at(&mut self, clock: Clock) -> Clock {
        self.streams.exchange.go_on_at(clock);
        self.clock()
    }
}

/// An exchange, which pushes nothing if the step is skipped. Values come into `fresh`.
fn run(
    Streams { exchange, wire }: &mut Streams,
    seen: Seen,
    pushed: Option<Contribution<'_>>,
    fresh: &mut Box<dyn Fresh>,
) -> Result<Summary, ExchangeError> {
    wire.block_on(async {
        let Some(Contribution { samples, values }) = pushed else {
            return exchange
                .run(Purpose::Skip, seen, &|_| Cow::default(), fresh)
                .await;
        };
        match values {
            Pushed::InPlace(at) => {
                let (purpose, source) = (Purpose::Gradient { samples }, |id| at.block(id));
                exchange.run(purpose, seen, &source, fresh).await
            }
            Pushed::Parts(parts) => exchange.run_parts(samples, seen, &parts, fresh).await,
        }
    })
}
