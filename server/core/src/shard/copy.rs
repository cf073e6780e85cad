//! A copy: takes over what its primary has decided, bit for bit.

use super::Shard;
use crate::log::{Confirm, LogEntry, Record};
use crate::refusal::Refusal;
use crate::replica::RecordPlace;

impl Shard {
    /// Applies the next record of the primary's log, and confirms it; one that was applied before
    /// is confirmed again. After a refusal the primary begins again with what is unconfirmed.
    pub fn handle_record(&mut self, record: Record) -> Result<Confirm, Refusal> {
        let (log, fill) = (record.log, record.fill);
        match self.holder.place(&record)? {
            RecordPlace::Next => {
                self.take(record.entry)?;
                self.holder.advance(record.seq);
            }
            RecordPlace::Had => {}
        }
        Ok(self.holder.confirm(log, fill))
    }

    fn take(&mut self, entry: LogEntry) -> Result<(), Refusal> {
        match entry {
            LogEntry::Probe => {}
            LogEntry::State(state) => {
                let id = state.id;
                let new = self.blocks.put(state, self.policies.optimizer())?;
                self.holder.see(self.blocks.own(id).clock_decided());
                if new && self.blocks.are_complete() {
                    self.report();
                }
            }
            LogEntry::Update(update) => {
                self.blocks.apply(&update, self.policies.optimizer())?;
                self.policies.follow(&update);
                let decided = update.decided.iter().map(|(_, _, last)| last.clock);
                self.holder.see(decided.max());
            }
        }
        Ok(())
    }
}
