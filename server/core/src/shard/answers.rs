//! What leaves a shard. The primary's answers wait until every copy has confirmed what they tell (rule 4).

use std::collections::{BTreeSet, VecDeque};

use tradewind_common::holders::CopyHolder;
use tradewind_common::{BlockId, Generation, ServerId};

use super::Output;
use crate::log::{Confirm, LogEntry};
use crate::pending::Pending;
use crate::replica::Outboxes;
use crate::state::BlockState;

/// How many leases a copy may confirm nothing while values are created.
const LEASES_TO_CREATE: u64 = 4;

/// How often in a lease it is looked whether copies confirm.
const LOOKS_IN_LEASE: u64 = 4;

/// What a shard owes to groups, to copies and to the coordinator.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// As the primary.
    log: Outboxes,
    pending: Pending,
    /// When it is looked next whether copies still confirm, microseconds.
    look_us: u64,
    outputs: VecDeque<Output>,
}

impl Outgoing {
    /// The next thing to do, oldest first.
    pub(super) fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Something that waits for nobody.
    pub(super) fn push(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    /// Whether no copy has to confirm anything.
    pub(super) fn has_no_copies(&self) -> bool {
        self.log.none()
    }

    /// Whether nothing that can as well be asked later shall wait here.
    pub(super) fn is_crowded(&self) -> bool {
        self.pending.crowded()
    }

    /// Records that copies have not confirmed.
    pub(super) fn unconfirmed(&self) -> u64 {
        self.log.unconfirmed()
    }

    /// Copies that have everything, and since when each is one.
    pub(super) fn full(&self) -> Vec<(ServerId, Generation)> {
        self.log.full()
    }

    /// Copies that have confirmed nothing for too long, and since when each is one.
    pub(super) fn stalled(&self) -> Vec<(ServerId, Generation)> {
        self.log.stalled()
    }

    /// Records an entry for every copy.
    pub(super) fn append(&mut self, entry: LogEntry) {
        self.log.append(entry, &mut self.outputs);
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

    /// The same, and the copies are asked, too: they may have another primary by now.
    pub(super) fn ask_and_answer(&mut self, answer: Output) {
        self.append(LogEntry::Probe);
        self.answer(answer);
    }

    /// There is a new way to a copy: what it has not confirmed comes out again.
    pub(super) fn link(&mut self, copy: ServerId) {
        self.drop_records(|to| to == copy);
        let again = self.log.unconfirmed_of(copy).map(|record| Output::Record {
            to: copy,
            record: record.clone(),
        });
        self.outputs.extend(again);
    }

    /// A copy has applied what it was sent up to some record: it is sent the next of the blocks that it
    /// lacks, and answers leave that wait no longer.
    pub(super) fn confirm(&mut self, confirm: Confirm, state: impl Fn(BlockId) -> BlockState) {
        self.log.confirm(confirm);
        self.fill(state);
        self.release();
    }

    /// Begins the log of a primary since `log`.
    pub(super) fn begin_log(&mut self, log: Generation) {
        self.log = Outboxes::new(log);
    }

    /// Has these copies and no others. One that is new here, or was added anew, has to be sent the blocks
    /// that are `created`.
    pub(super) fn follow(
        &mut self,
        copies: &[CopyHolder],
        created: impl Fn() -> BTreeSet<BlockId>,
    ) {
        let void = self.log.follow(copies, created);
        self.drop_records(|to| void.contains(&to));
        self.release();
    }

    /// Sends copies that lack blocks the next ones.
    pub(super) fn fill(&mut self, state: impl Fn(BlockId) -> BlockState) {
        self.log.fill(state, &mut self.outputs);
    }

    /// Notes which copies have every block of a shard, all of whose blocks have values; whether one is
    /// new among them.
    pub(super) fn look_full(&mut self) -> bool {
        self.log.look_full()
    }

    /// When it is to be looked next whether copies confirm, microseconds.
    pub(super) fn next_look_us(&self) -> Option<u64> {
        (!self.log.none()).then_some(self.look_us)
    }

    /// Looks whether copies confirm what waits for them; whether one has confirmed nothing for a lease.
    /// It is said again until it is removed: it may be out of reach of this server alone.
    pub(super) fn look_stalled(&mut self, now_us: u64, lease_us: u64, ready: bool) -> bool {
        if self.log.none() || now_us < self.look_us {
            return false;
        }
        self.look_us = now_us + lease_us / LOOKS_IN_LEASE;
        // Before anybody is answered a slow way to a copy holds nobody up, and filling it again and again
        // would never end.
        let patience_us = match ready {
            true => lease_us,
            false => lease_us.saturating_mul(LEASES_TO_CREATE),
        };
        self.log.look_stalled(now_us, patience_us)
    }

    /// Has no copies any more. The answers that waited for them, which must not leave.
    pub(super) fn close(&mut self) -> Vec<Output> {
        self.drop_records(|_| true);
        self.log = Outboxes::default();
        self.pending.drain().collect()
    }

    /// Lets answers out that wait no longer.
    fn release(&mut self) {
        while let Some(answer) = self.pending.release(|seq| self.log.confirmed(seq)) {
            self.outputs.push_back(answer);
        }
    }

    /// Records to these servers need not leave any more.
    fn drop_records(&mut self, whose: impl Fn(ServerId) -> bool) {
        let stays = |output: &Output| !matches!(output, Output::Record { to, .. } if whose(*to));
        self.outputs.retain(stays);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReplyTo;
    use crate::refusal::Refusal;

    const COPY: CopyHolder = CopyHolder {
        server: ServerId(2),
        since: Generation(3),
        full: false,
    };

    fn answer() -> Output {
        Output::Reply {
            to: ReplyTo(1),
            result: Err(Refusal::NotReady),
        }
    }

    fn no_state(_: BlockId) -> BlockState {
        unreachable!("no block was created")
    }

    /// A primary with one copy.
    fn outgoing() -> Outgoing {
        let mut outgoing = Outgoing::default();
        outgoing.begin_log(Generation(3));
        outgoing.follow(&[COPY], BTreeSet::new);
        outgoing
    }

    #[test]
    fn an_answer_leaves_when_the_copy_has_confirmed() {
        let mut outgoing = outgoing();
        outgoing.ask_and_answer(answer());
        let Some(Output::Record { record, .. }) = outgoing.poll() else {
            panic!("the copy is not asked");
        };
        assert_eq!(outgoing.poll(), None);
        let confirm = Confirm {
            copy: COPY.server,
            log: record.log,
            fill: record.fill,
            seq: record.seq,
        };
        outgoing.confirm(confirm, no_state);
        assert_eq!(outgoing.poll(), Some(answer()));
    }

    #[test]
    fn nothing_that_waits_leaves_when_it_is_closed() {
        let mut outgoing = outgoing();
        outgoing.ask_and_answer(answer());
        assert_eq!(outgoing.close(), [answer()]);
        assert_eq!(outgoing.poll(), None, "nor does the record");
        assert!(outgoing.has_no_copies());
    }

    #[test]
    fn a_copy_that_is_removed_holds_no_answer_up() {
        let mut outgoing = outgoing();
        outgoing.ask_and_answer(answer());
        outgoing.follow(&[], BTreeSet::new);
        assert_eq!(outgoing.poll(), Some(answer()));
    }

    #[test]
    fn who_confirms_nothing_for_a_lease_is_stalled() {
        let mut outgoing = outgoing();
        assert!(!outgoing.look_stalled(0, 400, true));
        outgoing.append(LogEntry::Probe);
        assert!(!outgoing.look_stalled(100, 400, true));
        assert!(!outgoing.look_stalled(150, 400, true), "it is not time yet");
        assert!(outgoing.look_stalled(500, 400, true));
        assert_eq!(outgoing.stalled(), [(COPY.server, COPY.since)]);
    }
}
