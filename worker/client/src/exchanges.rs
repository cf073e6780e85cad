//! How the exchanges of a model in main memory stand to its steps, as the rank's settings say.

use tradewind_common::Clock;
use tradewind_common::layout::Bucket;
use tradewind_common::pieces::Cut;
use tradewind_common::schedule::Seen;

use crate::behind::Behind;
use crate::between::Between;
use crate::core::session::Summary;
use crate::during::During;
use crate::main_memory::MainMemory;
use crate::membership::Membership;
use crate::norms::TensorNorms;
use crate::rank_settings::RankSettings;
use crate::step::{Ended, Step};

/// A rank's exchanges, with the norms that its pushes need.
pub struct Exchanges {
    way: Way,
    norms: Option<TensorNorms>,
}

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

#[cfg(test)]
mod tests;
