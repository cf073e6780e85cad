//! What a run has lost of what had been acknowledged (rule 11).

use std::collections::BTreeMap;

use tradewind_common::loss::Loss;
use tradewind_common::{Generation, ShardId};

use super::outbox::Outbox;
use crate::event::{Event, EventKind};
use crate::mark::Lacking;

/// By shard and lineage: what restored values lacked of what had been acknowledged.
pub(super) type ByLineage = BTreeMap<ShardId, BTreeMap<Generation, Loss>>;

/// What was acknowledged and is missing.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses {
    by_lineage: ByLineage,
    /// What the run had lost before it was resumed.
    earlier: Loss,
    /// Something of it is not written down.
    unwritten: bool,
}

impl Losses {
    /// Those that were written down.
    pub(super) fn written(by_lineage: ByLineage, earlier: Loss) -> Self {
        Self {
            by_lineage,
            earlier,
            unwritten: false,
        }
    }

    /// Those of a run that had lost so much when it was saved.
    pub(super) fn resumed(earlier: Loss) -> Self {
        Self::written(ByLineage::new(), earlier)
    }

    /// What has changed since this was last asked, if anything has.
    pub(super) fn take_change(&mut self) -> Option<ByLineage> {
        std::mem::take(&mut self.unwritten).then(|| self.by_lineage.clone())
    }

    pub(super) fn by_lineage(&self) -> &ByLineage {
        &self.by_lineage
    }

    pub(super) fn earlier(&self) -> Loss {
        self.earlier
    }

    /// The updates of all blocks, and the most samples of any shard, for every sample is in all of
    /// them.
    pub(super) fn total(&self) -> Loss {
        let of_shard =
            |losses: &BTreeMap<_, Loss>| losses.values().copied().fold(Loss::default(), Loss::plus);
        let losses = || self.by_lineage.values().map(of_shard);
        self.earlier.plus(Loss {
            updates: losses().map(|lost| lost.updates).sum(),
            samples: losses().map(|lost| lost.samples).max().unwrap_or(0),
        })
    }

    /// What restored values lack that is not counted yet. The loss of a lineage of which nothing was
    /// told is in what they lack once more.
    pub(super) fn uncounted(&self, shard: ShardId, lacking: Lacking) -> Loss {
        let of_shard = self.by_lineage.get(&shard).into_iter().flatten();
        let later = of_shard.filter(|(lineage, _)| **lineage > lacking.told_of);
        let counted = later.fold(Loss::default(), |sum, (_, lost)| sum.plus(*lost));
        lacking.loss.without(counted)
    }

    /// What was acknowledged is missing in the values of a lineage.
    pub(super) fn add(
        &mut self,
        shard: ShardId,
        lineage: Generation,
        lacking: Lacking,
        out: &mut Outbox,
    ) {
        let lost = self.uncounted(shard, lacking);
        if !lacking.loss.is_none() {
            let losses = self.by_lineage.entry(shard).or_default();
            losses.retain(|of, _| *of <= lacking.told_of);
            losses.insert(lineage, lacking.loss);
            self.unwritten = true;
            out.touch();
        }
        if lost.is_none() {
            return;
        }
        let text = format!("shard {shard} lacks {lost} that were acknowledged");
        let event = Event::new(EventKind::UpdatesLost, text);
        out.tell(event.shard(shard).lineage(lineage).lost(lost));
    }
}

#[cfg(test)]
mod tests {
    use tradewind_common::RunId;

    use super::*;

    #[test]
    fn a_loss_is_counted_once() {
        let mut out = Outbox::new(RunId::new("r").unwrap(), Generation(1));
        let loss = |updates, samples| Loss { updates, samples };
        let lacking = |updates, samples, told_of| Lacking {
            loss: loss(updates, samples),
            told_of: Generation(told_of),
        };
        let mut losses = Losses::resumed(loss(1, 10));
        losses.add(ShardId(0), Generation(5), lacking(3, 30, 0), &mut out);
        losses.add(ShardId(1), Generation(5), lacking(2, 40, 0), &mut out);
        assert_eq!(losses.total(), loss(6, 50));
        // Nothing was told of lineage 5: what it lacked is in what the next one lacks.
        let again = lacking(4, 35, 0);
        assert_eq!(losses.uncounted(ShardId(0), again), loss(1, 5));
        losses.add(ShardId(0), Generation(8), again, &mut out);
        assert_eq!(losses.total(), loss(7, 50));
        // Something was told of lineage 8: this comes on top.
        losses.add(ShardId(0), Generation(9), lacking(1, 10, 8), &mut out);
        assert_eq!(losses.total(), loss(8, 55));
        let told = out.take_changes().outputs.len();
        losses.add(ShardId(0), Generation(11), lacking(0, 0, 9), &mut out);
        assert_eq!(told, 4);
        assert!(out.take_changes().outputs.is_empty(), "nothing is missing");
    }
}
