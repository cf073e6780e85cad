//! Overlap 0: the exchange of a step has ended before the next step begins ([`tradewind_client::between`]).
//!
//! Where the model is in main memory, blocks go straight from libtorch's memory to the shards.

use tch::Tensor;
use tradewind_client::between::Between;
use tradewind_client::core::session::Summary;
use tradewind_client::step::{Computed, Ended, Step};
use tradewind_client::streams::Streams;
use tradewind_common::Clock;
use tradewind_common::schedule::Seen;

use super::whole::{Stepping, SteppingInto, WholeGradient, measured};
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
    between: Between,
    /// Where values come.
    fresh: Box<dyn Fresh>,
}

impl BetweenSteps {
    pub(super) fn new(gradient: WholeGradient, streams: Streams, fresh: Box<dyn Fresh>) -> Self {
        Self {
            gradient,
            norms: None,
            between: Between(streams),
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
        self.between.pull(&mut SteppingInto {
            stepping: Stepping {
                gradient: &mut self.gradient,
                replica,
            },
            fresh: &mut self.fresh,
        })
    }

    fn next_clock(&self) -> Clock {
        self.clock()
    }

    fn clock(&self) -> Clock {
        self.between.clock()
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
        self.gradient.agreed(step, group)?;
        if let Some(norms) = measured(self.norms.as_ref(), step, group, flat)? {
            self.between.measured(norms);
        }
        Ok(())
    }

    fn exchange(
        &mut self,
        step: Step,
        seen: Seen,
        replica: &mut Replica<'_>,
    ) -> Result<Option<Ended>, TrainError> {
        let mut stepping = SteppingInto {
            stepping: Stepping {
                gradient: &mut self.gradient,
                replica,
            },
            fresh: &mut self.fresh,
        };
        self.between.exchange(step, seen, &mut stepping).map(Some)
    }

    fn go_on_at(&mut self, clock: Clock) -> Clock {
        self.between.go_on_at(clock);
        self.clock()
    }
}
