//! A model in main memory, whose flat vector and gradient are slices.

use std::borrow::Cow;
use std::ops::Range;

use tradewind_common::schedule::Seen;
use tradewind_common::{BlockId, Layout, TensorKind};

use crate::behind::Beside;
use crate::between::Direct;
use crate::core::session::Summary;
use crate::destination::Destination;
use crate::exchange_error::ExchangeError;
use crate::pushed::{Contributed, Contribution};
use crate::ranks::{Alone, Broken, Ranks};
use crate::replica::Replica;
use crate::step::Step;
use crate::streams::Streams;

/// Ranks that also share what each of them has pulled.
pub trait Gather: Ranks {
    /// In the flat vector `values` the blocks of this rank's slice are fresh; on return all blocks are,
    /// bit for bit.
    fn gather(&self, values: &mut [f32]) -> Result<(), Broken>;
}

impl Gather for Alone {
    fn gather(&self, _values: &mut [f32]) -> Result<(), Broken> {
        Ok(())
    }
}

/// A rank's replica of the model, for one exchange.
pub struct MainMemory<'a> {
    /// The flat vector's blocks.
    pub layout: &'a Layout,
    /// Those that this rank exchanges.
    pub slice: &'a [BlockId],
    /// As long as the flat vector: the gradient, averaged over the group; in the ranges of buffers, what its
    /// steps have made of them, averaged as well.
    pub gradient: &'a [f32],
    /// The flat vector.
    pub values: &'a mut [f32],
    /// Told of the range of a block whose values have come: in an exchange without overlap nobody reads the
    /// gradient there any more.
    pub spent: &'a dyn Fn(&Range<usize>),
    /// The ranks that step together.
    pub group: &'a dyn Gather,
    /// Whether this rank has been asked to leave by now.
    pub leave: &'a dyn Fn() -> bool,
}

/// What a step pushes; `None` if it is skipped.
fn contribution<'a>(
    layout: &'a Layout,
    gradient: &'a [f32],
    step: &Step,
) -> Option<Contribution<'a>> {
    let of = move |id: BlockId| {
        let block = layout.block(id).expect("a block of the slice");
        Cow::Borrowed(&gradient[block.elements.clone()])
    };
    Some(Contribution {
        samples: step.pushed?,
        values: Contributed::Whole(Box::new(of)),
    })
}

impl Replica for MainMemory<'_> {
    type Error = anyhow::Error;

    fn ranks(&self) -> &dyn Ranks {
        self.group
    }

    fn is_asked_to_leave(&self) -> bool {
        (self.leave)()
    }

    fn gather(&mut self) -> Result<(), anyhow::Error> {
        Ok(self.group.gather(self.values)?)
    }
}

impl Direct for MainMemory<'_> {
    fn pull(&mut self, streams: &mut Streams) -> Result<Summary, ExchangeError> {
        streams.pull(&mut self.values)
    }

    fn exchange(
        &mut self,
        streams: &mut Streams,
        step: &Step,
        seen: Seen,
    ) -> Result<Summary, ExchangeError> {
        let contribution = contribution(self.layout, self.gradient, step);
        let mut fresh = Fresh {
            values: self.values,
            spent: self.spent,
        };
        streams.exchange(seen, contribution, &mut fresh)
    }
}

/// Where the values of an exchange come.
struct Fresh<'a> {
    values: &'a mut [f32],
    spent: &'a dyn Fn(&Range<usize>),
}

impl Destination for Fresh<'_> {
    fn values(&mut self) -> &mut [f32] {
        self.values
    }

    fn arrived(&mut self, elements: &Range<usize>) {
        (self.spent)(elements);
    }
}

impl Beside for MainMemory<'_> {
    type Fresh = Vec<f32>;

    fn contribution(&mut self, step: &Step) -> Option<Contribution<'_>> {
        contribution(self.layout, self.gradient, step)
    }

    fn load(&mut self, fresh: &mut Vec<f32>) -> Result<(), anyhow::Error> {
        for id in self.slice {
            let block = self.layout.block(*id).expect("a block of the slice");
            let elements = block.elements.clone();
            self.values[elements.clone()].copy_from_slice(&fresh[elements]);
        }
        Ok(())
    }

    fn go_on_with_own_buffers(&mut self) -> Result<(), anyhow::Error> {
        let buffers = self.layout.of_kind(TensorKind::Buffer);
        self.values[buffers.clone()].copy_from_slice(&self.gradient[buffers]);
        Ok(())
    }
}
