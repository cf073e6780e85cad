//! A shard on a server: the real one, and what its process keeps beside it.

use tradewind_common::holders::{Holders, Role};
use tradewind_common::{BlockId, Clock, Generation, ServerId, ShardId};
use tradewind_core::ReplyTo;
use tradewind_core::block::Block;
use tradewind_core::log::{Confirm, LogEntry, Record};
use tradewind_core::mark::Mark;
use tradewind_core::order::{Capture, NotCaptured, Order, ShardFile};
use tradewind_core::refusal::Refusal;
use tradewind_core::shard::{Output, Push, Shard};
use tradewind_core::state::BlockState;
use tradewind_core::view::{Acknowledge, OrderedView, View};

use super::beginning::Beginning;
use super::saboteur::{self, Saboteur};
use super::setup::Setup;
use super::ways::Ways;

/// A shard on a server.
pub(super) struct Held {
    shard: Shard,
    saboteur: Saboteur,
    pub(super) beginning: Beginning,
    pub(super) ways: Ways,
    part: Option<Part>,
    /// When the shard is asked again, at the latest.
    timeout_us: Option<u64>,
    /// As a copy: the last record that it confirmed.
    confirmed: Option<Confirm>,
    /// What it acknowledged last.
    seen: Acknowledge,
}

/// The part of a snapshot that was asked for last.
struct Part {
    number: u64,
    at_clock: Option<Clock>,
    /// What came of it; `None` while it is under way.
    result: Option<Result<ShardFile, NotCaptured>>,
}

/// A record that was followed.
pub(super) struct Followed {
    pub(super) confirm: Confirm,
    /// It had been confirmed before.
    pub(super) repeated: bool,
}

impl Held {
    /// A shard that has nothing yet.
    pub(super) fn new(server: ServerId, id: ShardId, order: &Order, setup: &Setup) -> Self {
        let (sabotage, common) = (setup.scenario.sabotage, &setup.common);
        let blocks = order.placement.blocks(id);
        let shard = Shard::new(server, id, order.spec.clone(), &common.layout, blocks);
        Self {
            shard: saboteur::policy(shard, sabotage, &order.spec),
            saboteur: Saboteur::new(sabotage, common.spec.samples),
            beginning: Beginning::default(),
            ways: Ways::default(),
            part: None,
            timeout_us: None,
            confirmed: None,
            seen: Acknowledge::default(),
        }
    }

    pub(super) fn shard(&self) -> &Shard {
        &self.shard
    }

    /// For whoever hands it what it must refuse.
    pub(super) fn shard_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }

    /// What it acknowledged last.
    pub(super) fn seen(&self) -> &Acknowledge {
        &self.seen
    }

    /// Whether this is the shard's primary.
    pub(super) fn leads(&self) -> bool {
        matches!(self.shard.role(), Some(Role::Primary(_)))
    }

    /// Goes on with values that were read from a snapshot.
    pub(super) fn restore(&mut self, states: Vec<BlockState>, beginning: Beginning) {
        self.shard.restore(states, beginning.lineage());
        self.beginning = beginning;
    }

    /// Follows an order that gives it this role; answers what it acknowledges.
    pub(super) fn follow(
        &mut self,
        (told, role): (OrderedView, Role),
        holders: &Holders,
        now_us: u64,
    ) -> Acknowledge {
        self.saboteur.before_order(&mut self.shard, role);
        let followed = self.shard.handle_ordered(told, holders, now_us);
        self.seen = followed.expect("it goes on from what was followed");
        self.seen.clone()
    }

    /// Where its blocks stand.
    pub(super) fn marks(&self) -> Vec<(BlockId, Mark)> {
        let lineage = self.shard.lineage();
        let mark = |of: &Block| Mark {
            lineage,
            version: of.version(),
            samples: of.samples_applied(),
        };
        let blocks = self.shard.blocks();
        blocks.map(|(id, block)| (id, mark(block))).collect()
    }

    /// A frame goes in, unless it is answered here.
    pub(super) fn push(
        &mut self,
        view: &View,
        push: Push,
        to: ReplyTo,
        now_us: u64,
    ) -> Option<Output> {
        let shard = &mut self.shard;
        self.saboteur.push(shard, view, push, to, now_us)
    }

    /// What it wants done.
    pub(super) fn outputs(&mut self) -> Vec<Output> {
        self.saboteur.outputs(&mut self.shard)
    }

    /// When it is to be asked again, if that is earlier than was known.
    pub(super) fn take_timeout(&mut self) -> Option<u64> {
        let wanted_us = self.shard.poll_timeout();
        let sooner = wanted_us.filter(|at_us| self.timeout_us.is_none_or(|set| *at_us < set));
        self.timeout_us = sooner.or(self.timeout_us);
        sooner
    }

    /// It wanted to be asked again by now, or has changed its mind.
    pub(super) fn timeout(&mut self, now_us: u64) {
        self.timeout_us = None;
        self.shard.handle_timeout(now_us);
    }

    /// A primary's record comes.
    pub(super) fn record(&mut self, record: Record) -> Result<Followed, Refusal> {
        let repeated = self.had(&record);
        let confirm = self.shard.handle_record(record)?;
        self.confirmed = Some(confirm);
        Ok(Followed { confirm, repeated })
    }

    /// Whether a copy that has come so far had a record.
    fn had(&self, record: &Record) -> bool {
        let probe = matches!(record.entry, LogEntry::Probe);
        let had = |last: Confirm| {
            (last.log, last.fill) == (record.log, record.fill) && record.seq <= last.seq
        };
        !probe && self.confirmed.is_some_and(had)
    }

    /// A copy confirms.
    pub(super) fn confirm(&mut self, confirm: Confirm) {
        self.shard.handle_confirm(confirm);
    }

    /// There is a way to a copy.
    pub(super) fn link(&mut self, to: ServerId) {
        self.shard.handle_link(to);
    }

    /// It is not held here any more; what it still wants done.
    pub(super) fn close(&mut self) -> Vec<Output> {
        self.shard.close();
        std::iter::from_fn(|| self.shard.poll_output()).collect()
    }

    /// Its part of a snapshot is ordered; answers what came of it if it was taken already.
    pub(super) fn begin_part(
        &mut self,
        capture: Capture,
    ) -> Option<Result<ShardFile, NotCaptured>> {
        match &self.part {
            Some(known) if known.number == capture.number => known.result.clone(),
            Some(known) if known.number > capture.number => None,
            Some(_) | None => {
                self.part = Some(Part {
                    number: capture.number,
                    at_clock: capture.at_clock,
                    result: None,
                });
                let shard = &mut self.shard;
                shard.handle_capture(capture.number, capture.at_clock);
                None
            }
        }
    }

    /// The clock at which its part of a snapshot is taken; `None` if another one has followed, which
    /// counts instead.
    pub(super) fn part_at(&self, number: u64) -> Option<Option<Clock>> {
        let part = self.part.as_ref().filter(|part| part.number == number);
        part.map(|part| part.at_clock)
    }

    /// What came of its part of a snapshot.
    pub(super) fn end_part(&mut self, number: u64, result: Result<ShardFile, NotCaptured>) {
        if let Some(part) = self.part.as_mut().filter(|part| part.number == number) {
            part.result = Some(result);
        }
    }

    /// In which lineage its values were restored, or that they were not.
    pub(super) fn lineage(&self) -> Generation {
        self.beginning.lineage()
    }
}
