//! Overlap 0: the exchange of a step has ended before the next step begins.

use tradewind_common::Clock;
use tradewind_common::pieces::Measured;
use tradewind_common::schedule::Seen;

use crate::core::session::Summary;
use crate::exchange_error::ExchangeError;
use crate::ranges::{Range, open, within};
use crate::replica::Replica;
use crate::step::{Ended, Step};
use crate::stopwatch::{Stopwatch, wall};
use crate::streams::Streams;

/// A model whose exchanges end before its next step begins: values may come straight into it.
pub trait Direct: Replica {
    /// Has `streams` read this rank's slice.
    fn pull(&mut self, streams: &mut Streams) -> Result<Summary, ExchangeError>;

    /// Has `streams` exchange what `step` has come to.
    fn exchange(
        &mut self,
        streams: &mut Streams,
        step: &Step,
        seen: Seen,
    ) -> Result<Summary, ExchangeError>;

    /// Makes what has come the model's, where it is not yet.
    fn load(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// A rank's exchanges, each between two steps.
pub struct Between(pub Streams);

impl Between {
    /// The clock of the next contribution.
    pub fn clock(&self) -> Clock {
        self.0.exchange.clock()
    }

    /// The group goes on at `clock`, if it is not further: see
    /// [`Session::go_on_at`](crate::core::session::Session::go_on_at).
    pub fn go_on_at(&mut self, clock: Clock) {
        self.0.exchange.go_on_at(clock);
    }

    /// The gradient that is pushed next has these norms: needed where updates follow from them.
    pub fn measured(&mut self, norms: Measured) {
        self.0.exchange.measured(norms);
    }

    /// Brings all values of the shards into the model.
    pub fn pull<R: Direct>(&mut self, replica: &mut R) -> Result<Summary, R::Error> {
        let pulled = replica.pull(&mut self.0)?;
        replica.load()?;
        replica.gathered(pulled)
    }

    /// The exchange of a step. `seen` is the same on all ranks of the group.
    pub fn exchange<R: Direct>(
        &mut self,
        mut step: Step,
        seen: Seen,
        replica: &mut R,
    ) -> Result<Ended, R::Error> {
        let mut watch = Stopwatch::start();
        let run = || replica.exchange(&mut self.0, &step, seen);
        let own = within(Range::Exchange(step.clock), run)?;
        let took = watch.lap();
        let _open = open(Range::Reduce);
        replica.load()?;
        let summary = replica.gathered(own)?;
        step.reduce += watch.lap();
        Ok(Ended {
            step,
            summary,
            took,
            exposed: took,
            wall: wall(),
        })
    }
}
