//! When a policy wants to be asked again about which block.

use std::collections::BTreeMap;

use tradewind_common::BlockId;

/// Times by block, microseconds.
#[derive(Debug, Default)]
pub(super) struct Timeouts {
    at_us: BTreeMap<BlockId, u64>,
}

impl Timeouts {
    pub(super) fn set(&mut self, block: BlockId, at_us: u64) {
        self.at_us.insert(block, at_us);
    }

    pub(super) fn clear(&mut self, block: BlockId) {
        self.at_us.remove(&block);
    }

    pub(super) fn clear_all(&mut self) {
        self.at_us.clear();
    }

    /// The first time.
    pub(super) fn next_us(&self) -> Option<u64> {
        self.at_us.values().min().copied()
    }

    /// Blocks whose time has come.
    pub(super) fn due(&self, now_us: u64) -> Vec<BlockId> {
        let due = self.at_us.iter().filter(|(_, at_us)| **at_us <= now_us);
        due.map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_due_from_its_time_on() {
        let mut timeouts = Timeouts::default();
        timeouts.set(BlockId(1), 20);
        timeouts.set(BlockId(0), 30);
        assert_eq!(timeouts.next_us(), Some(20));
        assert!(timeouts.due(19).is_empty());
        assert_eq!(timeouts.due(20), [BlockId(1)]);
        timeouts.clear(BlockId(1));
        assert_eq!(timeouts.due(99), [BlockId(0)]);
        timeouts.clear_all();
        assert_eq!(timeouts.next_us(), None);
    }
}
