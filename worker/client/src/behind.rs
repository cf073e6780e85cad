//! Overlap 1: the exchange of a step runs while the next step computes, θₜ₊₁ = θₜ − η g(θₜ₋₁) for one group:
//! the gradient lag of Kurth et al. 2018, "Exascale Deep Learning for Climate Analytics", section V-B.
//!
//! Gradients and values are double: the model has its own, the exchange that is under way has others. Of
//! both only the blocks of the rank's slice are in use.

use std::sync::Arc;
use std::time::Duration;

use tradewind_common::pieces::Measured;
use tradewind_common::schedule::Seen;
use tradewind_common::{BlockId, Clock, Layout};

use crate::background::Background;
use crate::core::session::{Purpose, Summary};
use crate::destination::Destination;
use crate::exchange_error::ExchangeError;
use crate::pushed::{Contributed, Contribution};
use crate::ranges::{Range, within};
use crate::step::{Ended, Step};
use crate::stopwatch::wall;
use crate::streams::Streams;

/// A rank's exchanges, each behind the next step, one at a time. Values come into a `V`, beside the model's.
pub struct Behind<V> {
    background: Background<V>,
    layout: Arc<Layout>,
    slice: Vec<BlockId>,
    /// The gradient that is pushed. Empty while an exchange has it, and where gradients are copied by
    /// whoever gives them.
    copied: Vec<f32>,
    /// Values as last pulled; none while an exchange has them.
    fresh: Option<V>,
    under_way: Option<Step>,
}

impl<V: Destination + Send + 'static> Behind<V> {
    /// Takes over the streams of a rank that exchanges this slice. Values come into `fresh`, which is laid
    /// out as the flat vector.
    pub fn new(streams: Streams, layout: &Arc<Layout>, slice: &[BlockId], fresh: V) -> Self {
        let Streams { exchange, wire } = streams;
        Self {
            background: Background::new(exchange, layout.clone(), wire),
            layout: layout.clone(),
            slice: slice.to_vec(),
            copied: Vec::new(),
            fresh: Some(fresh),
            under_way: None,
        }
    }

    /// The clock of the contribution that is started next.
    pub fn clock(&self) -> Clock {
        self.background.clock()
    }

    /// The gradient whose exchange is started next has these norms.
    pub fn measured(&mut self, norms: Measured) {
        self.background.measured(norms);
    }

    /// Reads every block of the slice into what [`fresh`](Self::fresh) returns.
    ///
    /// # Panics
    /// If an exchange is under way.
    pub fn pull(&mut self) -> Result<Summary, ExchangeError> {
        let fresh = self.fresh.take().expect(NONE_UNDER_WAY);
        let (pulled, fresh) = self.background.pull(fresh)?;
        self.fresh = Some(fresh);
        Ok(pulled)
    }

    /// The slice as last pulled.
    ///
    /// # Panics
    /// If an exchange is under way.
    pub fn fresh(&mut self) -> &mut V {
        self.fresh.as_mut().expect(NONE_UNDER_WAY)
    }

    /// The group goes on at `clock`, if it is not further: see
    /// [`Session::go_on_at`](crate::core::session::Session::go_on_at).
    ///
    /// # Panics
    /// If an exchange is under way.
    pub fn go_on_at(&mut self, clock: Clock) {
        self.background.go_on_at(clock);
    }

    /// Waits until the exchange that is under way has ended, if there is one.
    pub fn wait(&mut self) -> Result<Option<Ended>, ExchangeError> {
        let Some(step) = self.under_way.take() else {
            return Ok(None);
        };
        let ended = within(Range::Wait, || self.background.wait())?;
        (self.copied, self.fresh) = (ended.gradient, Some(ended.values));
        Ok(Some(Ended {
            step,
            summary: ended.summary,
            took: ended.took,
            exposed: ended.exposed,
            wall: wall() - ended.since.elapsed().as_secs_f64(),
        }))
    }

    /// Starts the exchange of a step, which skips without a contribution.
    ///
    /// # Panics
    /// If one is under way.
    pub fn start(&mut self, step: Step, seen: Seen, contribution: Option<Contribution<'_>>) {
        let fresh = self.fresh.take().expect(NONE_UNDER_WAY);
        self.under_way = Some(step);
        let mut copied = std::mem::take(&mut self.copied);
        let background = &mut self.background;
        let Some(Contribution { samples, values }) = contribution else {
            return background.start(Purpose::Skip, seen, copied, fresh);
        };
        match values {
            Contributed::Whole(at) => {
                copied.resize(self.layout.elements(), 0.0);
                for id in &self.slice {
                    let block = self.layout.block(*id).expect("a block of the slice");
                    copied[block.elements.clone()].copy_from_slice(at(*id));
                }
                background.start(Purpose::Gradient { samples }, seen, copied, fresh);
            }
            Contributed::Parts(parts) => background.start_parts(samples, seen, parts, fresh),
        }
    }

    /// What the group has done since the exchange was started took so long: a part of its step's
    /// reductions.
    pub fn reduced(&mut self, took: Duration) {
        if let Some(step) = &mut self.under_way {
            step.reduce += took;
        }
    }
}

const NONE_UNDER_WAY: &str = "no exchange is under way";
