//! Floating-point buffers, such as BatchNorm's statistics: the group pushes how they changed since
//! the last pull, averaged over its ranks.

use std::ops::Range;

use tradewind_common::finite::all_finite;
use tradewind_common::{Layout, TensorKind};

use crate::group::{Group, GroupError};

/// The buffers of the flat vector as they were pulled, and as they changed.
#[derive(Debug)]
pub struct Buffers {
    ranges: Vec<Range<usize>>,
    pulled: Vec<Vec<f32>>,
    changes: Vec<Vec<f32>>,
}

impl Buffers {
    /// The buffers of `layout`; often there are none.
    pub fn new(layout: &Layout) -> Self {
        let buffers = layout
            .buckets
            .iter()
            .filter(|b| b.kind == TensorKind::Buffer);
        let ranges: Vec<_> = buffers.map(|b| b.elements.clone()).collect();
        let zeros: Vec<_> = ranges.iter().map(|range| vec![0.0; range.len()]).collect();
        Self {
            ranges,
            pulled: zeros.clone(),
            changes: zeros,
        }
    }

    /// Remembers the values that were pulled.
    pub fn pulled(&mut self, flat: &[f32]) {
        for (range, pulled) in self.ranges.iter().zip(&mut self.pulled) {
            pulled.copy_from_slice(&flat[range.clone()]);
        }
    }

    /// Takes the changes since the pull, averaged over the group. Whether all are finite.
    pub fn changed(&mut self, flat: &[f32], group: &dyn Group) -> Result<bool, GroupError> {
        let mut finite = true;
        for ((range, pulled), changes) in
            self.ranges.iter().zip(&self.pulled).zip(&mut self.changes)
        {
            for ((change, now), before) in changes.iter_mut().zip(&flat[range.clone()]).zip(pulled)
            {
                *change = now - before;
            }
            group.all_reduce_mean(changes)?;
            finite &= all_finite(changes);
        }
        Ok(finite)
    }

    /// The changes of a range of the flat vector that lies in one bucket of buffers.
    pub fn changes(&self, elements: &Range<usize>) -> &[f32] {
        let holds =
            |range: &&Range<usize>| range.start <= elements.start && elements.end <= range.end;
        let at = self
            .ranges
            .iter()
            .position(|range| holds(&range))
            .expect("a range of buffers");
        let start = self.ranges[at].start;
        &self.changes[at][elements.start - start..elements.end - start]
    }
}
