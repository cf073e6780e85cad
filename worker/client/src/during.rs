//! Overlap 0, by bucket: the exchange of a step runs during its own backward, for a model in main memory.
//!
//! Blocks are pushed as soon as the buckets that they have part of are reduced. Backward reads the model's
//! values, so fresh ones come beside them, and are loaded when backward has ended. Whether a bucket is finite
//! is seen in its reduced gradient, whose bits are the same on all ranks: so they agree without a word. Buffers
//! are known last, sent last, and skipped with any bucket.

use std::ops::Range;
use std::sync::Arc;

use tradewind_common::finite::all_finite;
use tradewind_common::layout::Bucket;
use tradewind_common::schedule::Seen;
use tradewind_common::{BlockId, Clock, Layout, TensorKind};

use crate::background::Background;
use crate::behind::Beside;
use crate::core::session::Summary;
use crate::main_memory::MainMemory;
use crate::parts::{Parts, Plan};
use crate::ranges::{self, open, within};
use crate::replica::Replica;
use crate::step::{Ended, Step};
use crate::stopwatch::{Stopwatch, wall};
use crate::streams::Streams;

/// Exchanges during backward, one at a time.
pub struct During {
    background: Background<Vec<f32>>,
    buckets: Vec<Range<usize>>,
    buffers: Range<usize>,
    plan: Arc<Plan>,
    /// Of the exchange that is under way.
    under_way: Option<UnderWay>,
    /// Values as last pulled; none while an exchange has them.
    fresh: Option<Vec<f32>>,
}

struct UnderWay {
    clock: Clock,
    parts: Arc<Parts>,
}

/// What is called out of turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutOfTurn {
    /// A second backward before a step.
    #[error(
        "backward has run twice before a step, and with exchange.per_bucket the gradient of the first has left; take a step after each backward, or set exchange.per_bucket = false"
    )]
    Twice,
    /// A step without a backward.
    #[error("a step without backward")]
    Never,
}

impl During {
    /// Takes over the streams of a rank that exchanges this slice, in a group that averages in `buckets`.
    pub fn new(
        Streams { exchange, wire }: Streams,
        layout: &Arc<Layout>,
        buckets: &[Bucket],
        slice: &[BlockId],
    ) -> Self {
        Self {
            background: Background::new(exchange, layout.clone(), wire),
            buckets: buckets.iter().map(|b| b.elements.clone()).collect(),
            buffers: layout.of_kind(TensorKind::Buffer),
            plan: Arc::new(Plan::new(layout, buckets, slice)),
            under_way: None,
            fresh: Some(vec![0.0; layout.elements()]),
        }
    }

    /// The clock of the contribution that the step at hand is for.
    pub fn clock(&self) -> Clock {
        let under_way = self.under_way.as_ref();
        under_way.map_or_else(|| self.background.clock(), |under_way| under_way.clock)
    }

    /// How many parts a contribution has: the buckets, and the buffers as one.
    pub fn parts(&self) -> usize {
        self.plan.parts()
    }

    /// Brings all values of the shards into the model, before the first step.
    pub fn pull(&mut self, replica: &mut MainMemory<'_>) -> anyhow::Result<Summary> {
        let fresh = self.fresh.take().expect(NONE_UNDER_WAY);
        let (pulled, fresh) = self.background.pull(fresh)?;
        replica.load(self.fresh.insert(fresh))?;
        replica.gathered(pulled)
    }

    /// Starts the exchange of a gradient that backward begins to compute, the mean over `samples`.
    pub fn begin(&mut self, samples: u32, seen: Seen) -> Result<(), OutOfTurn> {
        let Some(fresh) = self.fresh.take() else {
            return Err(OutOfTurn::Twice);
        };
        let (clock, parts) = (self.background.clock(), Arc::new(Parts::new(&self.plan)));
        self.background
            .start_parts(samples, seen, parts.clone(), fresh);
        self.under_way = Some(UnderWay { clock, parts });
        Ok(())
    }

    /// In `gradient`, as long as the flat vector, a bucket is the group's mean; it is skipped if it is not
    /// finite.
    pub fn give(&self, bucket: usize, gradient: &[f32]) -> Result<(), OutOfTurn> {
        let UnderWay { parts, .. } = self.under_way.as_ref().ok_or(OutOfTurn::Never)?;
        let values = &gradient[self.buckets[bucket].clone()];
        parts.give(bucket, all_finite(values).then_some(values));
        Ok(())
    }

    /// How many parts of the contribution are skipped, the buffers in `gradient` included.
    pub fn skipped(&self, gradient: &[f32]) -> Result<usize, OutOfTurn> {
        let UnderWay { parts, .. } = self.under_way.as_ref().ok_or(OutOfTurn::Never)?;
        let buffers = &gradient[self.buffers.clone()];
        let (bad, last) = (parts.skipped(), usize::from(!buffers.is_empty()));
        Ok(match bad > 0 || !all_finite(buffers) {
            true => bad + last,
            false => 0,
        })
    }

    /// All buckets are given: sends the buffers, or skips them, and waits for the end.
    pub fn exchange(
        &mut self,
        mut step: Step,
        replica: &mut MainMemory<'_>,
    ) -> anyhow::Result<Ended> {
        let UnderWay { parts, .. } = self.under_way.take().ok_or(OutOfTurn::Never)?;
        let finite = step.buckets_skipped == 0;
        let finish = || {
            parts.give_buffers(finite.then(|| &replica.gradient[self.buffers.clone()]));
            self.background.wait()
        };
        let (ended, fresh) = within(ranges::Range::Wait, finish)?.without_values();
        let mut watch = Stopwatch::start();
        let _open = open(ranges::Range::Reduce);
        replica.load(self.fresh.insert(fresh))?;
        let summary = replica.gathered(ended.summary)?;
        step.reduce += watch.lap();
        Ok(Ended {
            step,
            summary,
            took: ended.took,
            exposed: ended.exposed,
            wall: wall(),
        })
    }

    /// The group goes on at `clock`, if it is not further.
    pub fn go_on_at(&mut self, clock: Clock) {
        self.background.go_on_at(clock);
    }
}

const NONE_UNDER_WAY: &str = "no exchange is under way";
