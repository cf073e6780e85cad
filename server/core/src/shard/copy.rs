//! A copy: takes over what its primary has decided, bit for bit.

use tradewind_common::holders::Role;
use tradewind_common::{Clock, Generation};

use super::Shard;
use crate::block::Block;
use crate::log::{Confirm, Entry, Record};
use crate::refusal::Refusal;
use crate::replica::Place;

impl Shard {
    /// Applies the next record of the primary's log, and confirms it; one that was applied before
    /// is confirmed again. After a refusal the primary begins again with what is unconfirmed.
    pub fn handle_record(&mut self, record: Record) -> Result<Confirm, Refusal> {
        let (log, fill) = (record.log, record.fill);
        // A copy follows the log that its order names, and no other, whatever it says of itself.
        let named = match self.role {
            Some(Role::Copy(since)) => (self.position.log(), since),
            Some(Role::Primary(since) | Role::Heir(since)) => (since, since),
            Some(Role::Candidate) | None => return Err(Refusal::NotCopy(self.id)),
        };
        let copies = matches!(self.role, Some(Role::Copy(_)));
        if (log, fill) < named || (!copies && log <= named.0) {
            return Err(Refusal::StaleLog {
                given: (log, fill),
                newest: named,
            });
        }
        // The order for a later one is on its way, if it is one.
        if (log, fill) > named || !copies {
            return Err(Refusal::NotCopy(self.id));
        }
        if self.position.place(record.previous, record.seq)? == Place::Next {
            self.take(record.entry)?;
            self.position.advance(record.seq);
        }
        Ok(Confirm {
            copy: self.me,
            log,
            fill,
            seq: self.position.seq(),
        })
    }

    /// Is to follow a log. In a new one every block is sent anew, and what was here means nothing.
    pub(super) fn reach(&mut self, log: Generation, fill: Generation) {
        if self.position.reach(log, fill) {
            self.blocks.values_mut().for_each(Block::forget);
            self.uncreated = self.blocks.len();
        }
    }

    fn take(&mut self, entry: Entry) -> Result<(), Refusal> {
        match entry {
            Entry::Probe => {}
            Entry::State(state) => {
                let id = state.id;
                let block = self.blocks.get_mut(&id).ok_or(Refusal::UnknownBlock(id))?;
                let new = !block.created();
                block.put(state, &*self.optimizer)?;
                let clock = block.clock_decided();
                self.see(clock);
                self.uncreated -= usize::from(new);
                if new && self.complete() {
                    self.report();
                }
            }
            Entry::Update(update) => {
                let id = update.block;
                let block = self.blocks.get_mut(&id).ok_or(Refusal::UnknownBlock(id))?;
                block.check_update(&update)?;
                block.apply_update(&update, &*self.optimizer);
                if let Some(explicit) = update.applied.as_ref().and_then(|a| a.momentum) {
                    self.momentum.follow(explicit);
                    self.explicit = Some(explicit);
                }
                self.see(update.decided.iter().map(|(_, _, last)| last.clock).max());
            }
        }
        Ok(())
    }

    pub(super) fn see(&mut self, clock: Option<Clock>) {
        self.clock_seen = self.clock_seen.max(clock);
    }
}
