//! Overlap 0: the exchange of a step has ended before the next step begins.
//!
//! Where the model is in main memory, blocks go straight from libtorch's memory to the shards and back.

use tch::Tensor;
use tradewind_client::core::session::Summary;
use tradewind_client::ranges::{Range, open, within};
use tradewind_client::step::{Computed, Ended, Step};
use tradewind_client::stopwatch::{Stopwatch, wall};
use tradewind_client::streams::Streams;
use tradewind_common::Clock;
use tradewind_common::schedule::Seen;

use super::whole::{WholeGradient, measured};
use super::{Exchanging, Replica};
use crate::flat::Flat;
use crate::group::Group;
use crate::host::{Fresh, HostError};
use crate::norms::TensorNorms;
use crate::train_error::TrainError;

/// Exchanges between steps.
pub(super) struct BetweenSteps {
    pub(super) gradient: WholeGradient,
    /// What it is pushed with besides, where the optimizer asks for it.
    norms: Option<TensorNorms>,
    streams: Streams,
    /// Where values come, if not into the flat vector.
    fresh: Option<Box<dyn Fresh>>,
}

impl BetweenSteps {
    pub(super) fn new(
        gradient: WholeGradient,
        streams: Streams,
        fresh: Option<Box<dyn Fresh>>,
    ) -> Self {
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
        let pulled = match &mut self.fresh {
            None => self.streams.pull(&mut replica.flat.values_mut())?,
            Some(fresh) => {
                let pulled = self.streams.pull(fresh)?;
                fresh.load(replica.flat)?;
                pulled
            }
        };
        Ok(replica.gather(pulled)?)
    }

    fn next_clock(&self) -> Clock {
        self.clock()
    }

    fn clock(&self) -> Clock {
        self.streams.clock()
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
            self.streams.measured(norms);
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
        let contribution = self.gradient.push(&step, &*replica.group);
        let streams = &mut self.streams;
        let own = within(Range::Exchange(step.clock), || match &mut self.fresh {
            None => streams.exchange(seen, contribution, &mut replica.flat.values_mut()),
            Some(fresh) => streams.exchange(seen, contribution, fresh),
        })?;
        let took = watch.lap();
        let _open = open(Range::Reduce);
        if let Some(fresh) = &mut self.fresh {
            fresh.load(replica.flat)?;
        }
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
        self.streams.go_on_at(clock);
        self.clock()
    }
}
