//! The primary's answers: each waits until every copy has confirmed what it tells (rule 4).

use tradewind_common::{BlockId, Clock, GroupId, ServerId};

use super::{Answer, Output, Shard, Taken};
use crate::askers::Asker;
use crate::log::{Confirm, Entry};
use crate::refusal::Refusal;

/// How many leases a copy may confirm nothing while values are created.
const LEASES_TO_CREATE: u64 = 4;

/// How often in a lease it is looked whether copies confirm.
const LOOKS_IN_LEASE: u64 = 4;

impl Shard {
    /// There is a new way to a copy: what it has not confirmed comes out again.
    pub fn handle_link(&mut self, copy: ServerId) {
        self.drop_records(|to| to == copy);
        let again = self.log.unconfirmed_of(copy).map(|record| Output::Record {
            to: copy,
            record: record.clone(),
        });
        self.outputs.extend(again);
    }

    /// A copy has applied what it was sent up to some record.
    pub fn handle_confirm(&mut self, confirm: Confirm) {
        self.log.confirm(confirm);
        self.fill();
        self.release();
        if self.complete() && self.log.look_full() {
            self.report();
        }
    }

    /// Looks whether copies confirm what waits for them. One that has confirmed nothing for a lease is
    /// reported until it is removed: it may be out of reach of this server alone.
    pub(super) fn look_for_stalled(&mut self, now_us: u64) {
        if self.log.none() || now_us < self.look_us {
            return;
        }
        let lease_us = self.spec.lease_ms.saturating_mul(1_000);
        self.look_us = now_us + lease_us / LOOKS_IN_LEASE;
        // Before anybody is answered a slow way to a copy holds nobody up, and filling it again and again
        // would never end.
        let patience_us = match self.view.ready() {
            true => lease_us,
            false => lease_us.saturating_mul(LEASES_TO_CREATE),
        };
        if self.log.look_stalled(now_us, patience_us) {
            self.report();
        }
    }

    /// Answers with the current values what is asked again, or only for them. The copies are asked,
    /// too: they may have another primary by now.
    pub(super) fn tell(
        &mut self,
        asker: Asker,
        id: BlockId,
        of: (GroupId, Clock),
        answer: Answer,
    ) -> Result<Taken, Refusal> {
        if self.pending.crowded() {
            return Err(Refusal::Busy);
        }
        let reply = self.reply(id, of, (answer, asker.wants), 0)?;
        self.log.append(Entry::Probe, &mut self.outputs);
        self.answer(Output::Reply {
            to: asker.to,
            result: Ok(reply),
        });
        Ok(Taken::Answered)
    }

    /// Lets an answer out when everything that is decided by now is confirmed.
    pub(super) fn answer(&mut self, answer: Output) {
        let needs = self.log.last();
        if self.log.confirmed(needs) {
            self.outputs.push_back(answer);
        } else {
            self.pending.push(needs, answer);
        }
    }

    /// Lets answers out that wait no longer.
    pub(super) fn release(&mut self) {
        while let Some(answer) = self.pending.release(|seq| self.log.confirmed(seq)) {
            self.outputs.push_back(answer);
        }
    }

    /// Sends copies that lack blocks the next ones.
    pub(super) fn fill(&mut self) {
        let blocks = &self.blocks;
        let state = |id| {
            blocks[&id]
                .state()
                .expect("only blocks with values are sent")
        };
        self.log.fill(state, &mut self.outputs);
    }

    /// Records to these servers need not leave any more.
    pub(super) fn drop_records(&mut self, whose: impl Fn(ServerId) -> bool) {
        let stays = |output: &Output| !matches!(output, Output::Record { to, .. } if whose(*to));
        self.outputs.retain(stays);
    }
}
