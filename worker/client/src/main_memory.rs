//! A model in main memory, whose flat vector and gradient are slices.

use std::borrow::Cow;

use tradewind_common::layout::Bucket;
use tradewind_common::pieces::Cut;
use tradewind_common::schedule::Seen;
use tradewind_common::{BlockId, Clock, Layout, TensorKind};

use crate::behind::{Behind, Beside};
use crate::between::{Between, Direct};
use crate::core::session::Summary;
use crate::during::During;
use crate::exchange_error::ExchangeError;
use crate::membership::Membership;
use crate::norms::TensorNorms;
use crate::pushed::{Contributed, Contribution};
use crate::rank_settings::RankSettings;
use crate::ranks::{Alone, Broken, Ranks};
use crate::replica::Replica;
use crate::step::{Ended, Step};
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
    /// The ranks that step together.
    pub group: &'a dyn Gather,
    /// Whether this rank has been asked to leave by now.
    pub leave: &'a dyn Fn() -> bool,
}

/// A rank's exchanges, with the norms that its pushes need.
pub struct Exchanges {
    way: Way,
    norms: Option<TensorNorms>,
}

/// How they stand to its steps, as the rank's settings say.
enum Way {
    /// Without overlap.
    Between(Between),
    /// With overlap.
    Behind(Behind<Vec<f32>>),
    /// By bucket.
    During(During),
}

impl Exchanges {
    /// Those of a member, from a clock on. They run during backward if the group's `buckets` are given.
    ///
    /// # Errors
    /// As [`Membership::streams`].
    pub fn new(
        membership: &Membership,
        start: Clock,
        buckets: Option<&[Bucket]>,
    ) -> anyhow::Result<Self> {
        let (streams, slice) = (membership.streams(start)?, membership.slice());
        let RankSettings {
            layout,
            overlap,
            spec,
            ..
        } = membership.settings();
        let way = match (buckets, overlap) {
            (Some(buckets), _) => Way::During(During::new(streams, layout, buckets, &slice)),
            (None, false) => Way::Between(Between(streams)),
            (None, true) => {
                let fresh = vec![0.0; layout.elements()];
                Way::Behind(Behind::new(streams, layout, &slice, fresh))
            }
        };
        Ok(Self {
            way,
            norms: TensorNorms::new(Cut::of(spec), layout, &slice),
        })
    }

    /// Those that run during backward, if they do.
    pub fn during(&mut self) -> Option<&mut During> {
        match &mut self.way {
            Way::Between(_) | Way::Behind(_) => None,
            Way::During(during) => Some(during),
        }
    }

    /// The clock of the contribution that the step at hand is for.
    pub fn clock(&self) -> Clock {
        match &self.way {
            Way::Between(between) => between.clock(),
            Way::Behind(behind) => behind.clock(),
            Way::During(during) => during.clock(),
        }
    }

    /// Brings all values of the shards into the model, before the first step.
    pub fn pull(&mut self, replica: &mut MainMemory<'_>) -> anyhow::Result<Summary> {
        match &mut self.way {
            Way::Between(between) => between.pull(replica),
            Way::Behind(behind) => behind.pull(replica),
            Way::During(during) => during.pull(replica),
        }
    }

    /// The exchange of a step. What has ended when this returns, and is in the model: the exchange of this
    /// step or, with overlap, of the one before.
    pub fn exchange(
        &mut self,
        step: Step,
        seen: Seen,
        replica: &mut MainMemory<'_>,
    ) -> anyhow::Result<Option<Ended>> {
        let norms = self.norms.as_ref().filter(|_| !step.is_skipped());
        let norms = norms.map(|norms| norms.measure(replica.values, replica.gradient));
        match &mut self.way {
            Way::Between(between) => {
                if let Some(norms) = norms {
                    between.measured(norms);
                }
                between.exchange(step, seen, replica).map(Some)
            }
            Way::Behind(behind) => {
                if let Some(norms) = norms {
                    behind.measured(norms);
                }
                behind.exchange(step, seen, replica)
            }
            Way::During(during) => during.exchange(step, replica).map(Some),
        }
    }

    /// After the end of an exchange: the group goes on at `clock`, if it is not further. Returns the clock of
    /// the step that comes next.
    pub fn go_on_at(&mut self, clock: Clock) -> Clock {
        match &mut self.way {
            Way::Between(between) => between.go_on_at(clock),
            // It did so before it started the exchange that is under way.
            Way::Behind(_) => {}
            Way::During(during) => during.go_on_at(clock),
        }
        self.clock()
    }
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
        streams.exchange(seen, contribution, &mut self.values)
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

#[cfg(test)]
mod tests;
