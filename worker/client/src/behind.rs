//! Overlap 1: the exchange of a step runs while the next step computes, θₜ₊₁ = θₜ − η g(θₜ₋₁) for one group:
//! the gradient lag of Kurth et al. 2018, "Exascale Deep Learning for Climate Analytics", section V-B.
//!
//! Gradients and values are double: the model has its own, the exchange that is under way has others. Of
//! both only the blocks of the rank's slice are in use.

use std::sync::Arc;

use tradewind_common::pieces::Measured;
use tradewind_common::schedule::Seen;
use tradewind_common::{BlockId, Clock, Layout};

use crate::background::Background;
use crate::core::session::{Purpose, Summary};
use crate::destination::Destination;
use crate::exchange_error::ExchangeError;
use crate::pushed::{Contributed, Contribution};
use crate::ranges::{Range, open, within};
use crate::replica::Replica;
use crate::step::{Ended, Step};
use crate::stopwatch::{Stopwatch, wall};
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

/// A model into which fresh values do not come by themselves.
pub trait Beside: Replica {
    /// Where they come instead.
    type Fresh: Destination + Send + 'static;

    /// What a step pushes; `None` if it is skipped.
    fn contribution(&mut self, step: &Step) -> Option<Contribution<'_>>;

    /// Makes the slice as last pulled the model's.
    fn load(&mut self, fresh: &mut Self::Fresh) -> Result<(), Self::Error>;

    /// What was pushed of the buffers is on its way, and not in the values that came last: the next step
    /// begins with it.
    fn go_on_with_own_buffers(&mut self) -> Result<(), Self::Error>;
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

    /// Brings all values of the shards into the model, before the first step.
    pub fn pull<R: Beside<Fresh = V>>(&mut self, replica: &mut R) -> Result<Summary, R::Error> {
        let fresh = self.fresh.take().expect(NONE_UNDER_WAY);
        let (pulled, mut fresh) = self.background.pull(fresh)?;
        replica.load(&mut fresh)?;
        self.fresh = Some(fresh);
        replica.gathered(pulled)
    }

    /// Starts the exchange of a step once that of the step before, if there was one, has ended: returns that
    /// one. If it says stop or leave, this step is not pushed. `seen` is what was applied as the group knew
    /// it when it had ended the one before that.
    pub fn exchange<R: Beside<Fresh = V>>(
        &mut self,
        mut step: Step,
        mut seen: Seen,
        replica: &mut R,
    ) -> Result<Option<Ended>, R::Error> {
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
            step.clock = self.clock();
        }
        let mut fresh = self.fresh.take().expect(NONE_UNDER_WAY);
        replica.load(&mut fresh)?;
        // The model waits for this, and for nothing of the exchange that starts: that has the next step's
        // computation to hide behind, and would take cores and links from it.
        replica.gather()?;
        self.start(seen, replica.contribution(&step), fresh);
        // What came with something that is not finite goes nowhere.
        if !step.is_skipped() {
            replica.go_on_with_own_buffers()?;
        }
        step.reduce += watch.elapsed();
        self.under_way = Some(step);
        Ok(ended)
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

    /// Starts an exchange, which skips without a contribution.
    fn start(&mut self, seen: Seen, contribution: Option<Contribution<'_>>, fresh: V) {
        let mut copied = std::mem::take(&mut self.copied);
        let background = &mut self.background;
        let Some(Contribution { samples, values }) = contribution else {
            return background.start(Purpose::Skip, seen, copied, fresh);
        };
        match values {
            Contributed::Whole(at) => {
                if copied.is_empty() {
                    // Of these zeros only what is written below becomes memory.
                    copied = vec![0.0; self.layout.elements()];
                }
                for id in &self.slice {
                    let block = self.layout.block(*id).expect("a block of the slice");
                    copied[block.elements.clone()].copy_from_slice(&at(*id));
                }
                background.start(Purpose::Gradient { samples }, seen, copied, fresh);
            }
            Contributed::Parts(parts) => background.start_parts(samples, seen, parts, fresh),
        }
    }
}

const NONE_UNDER_WAY: &str = "no exchange is under way";
