//! Overlap 1: the exchange of a step runs while the next step computes
//! ([`tradewind_client::behind`]).

use tch::Tensor;
use tradewind_client::behind::Behind;
use tradewind_client::core::session::Summary;
use tradewind_client::ranges::{Range, open};
use tradewind_client::step::{Computed, Ended, Step};
use tradewind_client::stopwatch::Stopwatch;
use tradewind_client::streams::Streams;
use tradewind_common::Clock;
use tradewind_common::schedule::Seen;

use super::whole::{WholeGradient, measured};
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
        let pulled = self.behind.pull()?;
        self.behind.fresh().load(replica.flat)?;
        Ok(replica.gather(pulled)?)
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
        self.gradient.agreed(step, group);
        if let Some(norms) = measured(self.norms.as_ref(), step, group, flat)? {
            self.behind.measured(norms);
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
        let mut ended = self.behind.wait()?;
        let _open = open(Range::Reduce);
        let watch = Stopwatch::start();
        if let Some(Ended { summary, .. }) = &mut ended {
            *summary = replica.over_ranks(*summary)?;
            if summary.stop || summary.leave {
                return Ok(ended);
            }
            seen = summary.seen();
            self.behind.go_on_at(summary.next);
            step.clock = self.behind.clock();
        }
        self.behind.fresh().load(replica.flat)?;
        let contribution = self.gradient.push(&step, &*replica.group);
        self.behind.start(step, seen, contribution);
        replica.group.gather(replica.flat)?;
        // What came with something that is not finite goes nowhere.
        if !step.is_skipped() {
            self.gradient.go_on_with_own_buffers()?;
        }
        self.behind.reduced(watch.elapsed());
        Ok(ended)
    }

    /// It did so before it started the exchange that is under way.
    fn go_on_at(&mut self, _clock: Clock) -> Clock {
        self.clock()
    }
}
