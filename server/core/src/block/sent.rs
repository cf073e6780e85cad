//! What groups were sent of a block's values, and hold: the primary's alone.

use std::sync::Arc;

use tradewind_common::{Compression, GroupId};

use super::Gradient;
use crate::askers::Fresh;
use crate::backups::Backups;
use crate::delay::Delay;
use crate::held::Holdings;

/// What was sent to each group of one block.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// Where answers are compressed.
    held: Holdings,
    /// Where the staleness policy needs them.
    backups: Backups,
}

impl Sent {
    /// Answers begin with the values of this version; what was sent before is not known.
    pub(super) fn begin_at(&mut self, version: u64) {
        self.held = Holdings::begun_at(version);
    }

    /// Forgets a group.
    pub(super) fn forget(&mut self, group: GroupId) {
        self.held.forget(group);
        self.backups.forget(group);
    }

    /// What brings a group from what it holds to the current values, with their version. The values of so many
    /// groups are kept at most.
    pub(super) fn difference(
        &mut self,
        of: (GroupId, Option<u64>),
        current: (u64, &Arc<Vec<f32>>),
        compression: Compression,
        most: usize,
    ) -> Fresh {
        self.held.answer(of, current, compression, most)
    }

    /// The values of a version leave in an answer to a group, which will compute on them. So many versions are
    /// kept at most.
    pub(super) fn keep(
        &mut self,
        group: GroupId,
        version: u64,
        values: &Arc<Vec<f32>>,
        most: usize,
    ) {
        self.backups.keep(group, version, values, most);
    }

    /// Brings a gradient of a group to the present values. `false` if that cannot be: the values that it
    /// was computed on were sent by another primary, or the change is not finite.
    pub(super) fn compensate(
        &mut self,
        group: GroupId,
        gradient: &mut Gradient,
        now: &[f32],
        delay: &dyn Delay,
    ) -> bool {
        let computed_on = self.backups.computed_on(group, gradient.pulled_version);
        let Some(then) = computed_on else {
            return false;
        };
        let mean_square = &mut self.backups.mean_square;
        let mut changed = gradient.values.clone();
        delay.compensate(&mut changed, now, &then, mean_square);
        // Squares overflow long before gradients do: what was finite stays so.
        let finite = changed.iter().all(|g| g.is_finite());
        if finite {
            gradient.values = changed;
        }
        finite
    }
}
