//! Overlap 1: the exchange of a step runs while the next step computes ([`tradewind_client::behind`]).

use tch::Tensor;
use tradewind_client::behind::Behind;
use tradewind_client::core::session::Summary;
use tradewind_client::step::{Computed, Ended, Step};
use tradewind_client::streams::Streams;
use tradewind_common::Clock;
use tradewind_common::schedule::Seen;

use super::whole::{Stepping, WholeGradient, measured};
use super::{Exchanging, Replica};
use crate::flat::Flat;
use crate::group::Group;
use crate::host::{Fresh, HostError, HostSide};
use crate::norms::TensorNorms;
use crate::train_error::TrainError;

/// Exchanges behind the next step, one at a time.
pub(super) struct BehindStep {
    gradient: WholeGradient,
    /// What it is pushed with besides, where the optimizer asks for it.
    norms: Option<TensorNorms>,
    behind: Behind<Box<dyn Fresh>>,
}

impl BehindStep {
    pub(super) fn new(
        host: &HostSide,
        gradient: WholeGradient,
        norms: Option<TensorNorms>,
        streams: Streams,
        fresh: Box<dyn Fresh>,
    ) -> Self {
        Self {
            gradient,
            norms,
            behind: Behind::new(streams, host.layout(), host.slice(), fresh),
        }
    }
}

impl Exchanging for BehindStep {
    fn pull(&mut self, replica: &mut Replica<'_>) -> Result<Summary, TrainError> {
        self.behind.pull(&mut Stepping {
            gradient: &mut self.gradient,
            replica,
        })
    }

    fn next_clock(&self) -> Clock {
        self.clock()
    }

    fn clock(&self) -> Clock {
        self.behind.clock()
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
            self.behind.measured(norms);
        }
        Ok(())
    }

    /// Starts the exchange of this step once that of the step before, if there was one, has ended.
    fn exchange(
        &mut self,
        step: Step,
        seen: Seen,
        replica: &mut Replica<'_>,
    ) -> Result<Option<Ended>, TrainError> {
        let mut stepping = Stepping {
            gradient: &mut self.gradient,
            replica,
        };
        self.behind.exchange(step, seen, &mut stepping)
    }

    /// It did so before it started the exchange that is under way.
    fn go_on_at(&mut self, _clock: Clock) -> Clock {
        self.clock()
    }
}
