//! Who really has what: the processes that live are looked into, and a snapshot may be restored only
//! where none of them has everything that was answered, or it has been silent for too long (rule 4);
//! what was lost has to be told (rule 11).
//!
//! What a coordinator decides is judged when it does, and told to whoever acts on it. That it does not
//! count upon a process any more excuses the process only where that was no mistake: a copy, where its
//! primary has followed an order without it, was heard when the copy was already missed, so that it is
//! not the coordinator that is cut off, or has itself said that the copy confirms nothing; a primary, where another process has really refused it.

use std::collections::{BTreeMap, BTreeSet};

use tradewind_common::holders::{Holders, Role};
use tradewind_common::loss::Loss;
use tradewind_common::{Generation, ServerId, ShardId};
use tradewind_core::run::Phase;

use super::World;
use super::coordinator::Host;
use super::event::Life;
use super::server::Held;
use crate::checker::{Rule, Violation};
use crate::scenario::LEASE_MS;

/// How much earlier than its patience is over a coordinator may find that it is, milliseconds.
const EARLY_MS: u64 = 25;

/// How long after the end of a run losses may be told, microseconds: a coordinator may have to be
/// started for it.
const TOLD_LATE_US: u64 = 6_000_000;

/// What the world knows of those who may be needed.
#[derive(Debug, Default)]
pub(super) struct Witness {
    /// When a coordinator was told something by each process, last; and that its bond had broken.
    heard_us: BTreeMap<Life, u64>,
    lost_us: BTreeMap<Life, u64>,
    /// When each generation was made.
    made_us: BTreeMap<Generation, u64>,
    /// Heirs that refuse whoever was primary before, by since when they are to be primary.
    fenced: BTreeSet<(ShardId, Generation)>,
    /// When no coordinator listened: from when to when.
    deaf: Vec<(u64, u64)>,
    ended_us: u64,
    /// What each coordinator's run was like when it was last looked at.
    seen: BTreeMap<u64, Vec<Holders>>,
    /// Heirs that coordinators chose, and who had everything then and was not silent for long: if the
    /// heir restores a snapshot, that is one too many.
    begun: BTreeMap<(ShardId, Generation, u64), Option<String>>,
    /// Processes that a coordinator has counted upon: from then on they are needed for what they have,
    /// until their primary goes on without them, or another process has taken over from them.
    needed: BTreeSet<(ShardId, Life)>,
    /// Why the run should have gone on, when a coordinator first decided that it is over.
    over: Option<Option<String>>,
    /// Loss that was told before the run was resumed.
    pub(super) told_before: Loss,
    /// Copies of which their primary has said that they confirm nothing, by since when they are copies.
    stalled: BTreeSet<(ShardId, ServerId, Generation)>,
    /// Servers that confirm nothing, and until when.
    muted: BTreeMap<ServerId, u64>,
}

impl World {
    /// A coordinator is told something by a process.
    pub(super) fn hears(&mut self, life: Life) {
        self.witness.heard_us.insert(life, self.now_us);
    }

    /// A coordinator is told that a process has followed a generation: it was there when that had been made.
    pub(super) fn hears_of(&mut self, life: Life, generation: Generation) {
        let made_us = self.witness.made_us.get(&generation).copied();
        let heard_us = self.witness.heard_us.entry(life).or_default();
        *heard_us = (*heard_us).max(made_us.unwrap_or(0));
    }

    /// A coordinator is told that a process is not to be reached.
    pub(super) fn loses(&mut self, life: Life) {
        self.witness.lost_us.insert(life, self.now_us);
    }

    /// A coordinator was held up: what was silent meanwhile need not have been.
    pub(super) fn was_deaf(&mut self, since_us: u64) {
        self.witness.deaf.push((since_us, self.now_us));
    }

    /// A coordinator has ended.
    pub(super) fn goes_deaf(&mut self) {
        self.witness.ended_us = self.now_us;
    }

    /// A coordinator begins.
    pub(super) fn listens(&mut self) {
        self.was_deaf(self.witness.ended_us);
    }

    /// For how long a process has been silent to who listened.
    fn silent_us(&self, life: Life) -> u64 {
        let heard_us = self.witness.heard_us.get(&life).copied().unwrap_or(0);
        let mut deaf_us = 0;
        let mut from_us = heard_us;
        for (since_us, until_us) in &self.witness.deaf {
            let since_us = (*since_us).max(from_us);
            deaf_us += until_us.saturating_sub(since_us);
            from_us = from_us.max(*until_us);
        }
        self.now_us - heard_us - deaf_us
    }

    /// A server confirms nothing for a while, or until it ends.
    pub(super) fn mute(&mut self, server: ServerId, for_us: Option<u64>) {
        self.report.counts.muted += 1;
        let until_us = for_us.map_or(u64::MAX, |for_us| self.now_us + for_us);
        self.witness.muted.insert(server, until_us);
    }

    /// A primary says which of its copies confirm nothing.
    pub(super) fn stalls(&mut self, id: ShardId, copies: &[(ServerId, Generation)]) {
        let copies = copies.iter().map(|(server, since)| (id, *server, *since));
        self.witness.stalled.extend(copies);
    }

    /// Whether what a server confirms gets lost.
    pub(super) fn is_mute(&self, server: ServerId) -> bool {
        let until_us = self.witness.muted.get(&server);
        until_us.is_some_and(|until_us| self.now_us < *until_us)
    }

    /// A server's process has ended.
    pub(super) fn ended(&mut self, life: Life) {
        self.witness.muted.remove(&life.server);
        self.witness.needed.retain(|(_, of)| *of != life);
    }

    /// The processes that have everything of a shard that was answered.
    fn keepers(&self, id: ShardId) -> Vec<Life> {
        let up = self
            .servers
            .values()
            .filter_map(|server| server.up.as_ref());
        let keeps = up.filter(|up| {
            let held = up.shards.get(&id);
            held.is_some_and(|held| self.checker.has_all(id, &held.shard))
        });
        keeps.map(|up| up.life).collect()
    }

    /// Looks at what a coordinator has made of its run.
    pub(super) fn look_at(&mut self, n: u64) {
        // One that another has followed can do no harm: nobody hears of what it decides.
        let last = self.coordinators.last_key_value().map(|(last, _)| *last);
        let Some(host) = self.coordinators.get(&n).filter(|_| last == Some(n)) else {
            return;
        };
        let Ok(run) = host.core.run(&self.common.run) else {
            return;
        };
        if matches!(run.phase(), Phase::Stopped(_) | Phase::Failed(_)) {
            if self.witness.over.is_none() {
                self.witness.over = Some(self.must_go_on());
            }
            return;
        }
        let made_us = self.witness.made_us.entry(run.generation());
        made_us.or_insert(self.now_us);
        let known = self.witness.seen.get(&n);
        if known.is_some_and(|known| known.iter().eq(run.holders())) {
            return;
        }
        let holders: Vec<_> = run.holders().cloned().collect();
        let fleet = host.core.fleet();
        let lives = self.servers.keys().filter_map(|server| {
            let incarnation = fleet.incarnation(*server)?;
            let life = Life {
                server: *server,
                incarnation,
            };
            Some((*server, life))
        });
        let lives: BTreeMap<ServerId, Life> = lives.collect();
        let former = self.witness.seen.insert(n, holders.clone());
        for (index, now) in holders.iter().enumerate() {
            let id = ShardId(index as u32);
            for server in counted(now) {
                if let Some(life) = lives.get(&server) {
                    self.witness.needed.insert((id, *life));
                }
            }
            let Some(before) = former.as_ref().and_then(|former| former.get(index)) else {
                continue;
            };
            self.excuse(id, (before, now), &lives);
            // Whether it is to restore the shard stands in its order.
            if let Some(heir) = now.heir.filter(|_| now.heir != before.heir) {
                let kept = self.kept(id);
                self.witness.begun.insert((id, heir.since, n), kept);
            }
        }
    }

    /// Whoever need not have everything any more because of what a coordinator has decided.
    fn excuse(
        &mut self,
        id: ShardId,
        (before, now): (&Holders, &Holders),
        lives: &BTreeMap<ServerId, Life>,
    ) {
        // It may have been missed since: then its full copies stand beside it as candidates.
        let kept = |server| now.candidates.iter().any(|c| c.server == server);
        let stays = before
            .primary
            .filter(|primary| now.primary == Some(*primary) || kept(primary.server));
        let primary = stays.and_then(|primary| lives.get(&primary.server));
        if let Some(primary) = primary {
            let heard_us = self.witness.heard_us.get(primary).copied();
            // One that was removed and is to be filled anew counts no more than one that is gone.
            let there: Vec<ServerId> = counted(now).collect();
            let copies = before.copies.iter();
            for copy in copies.filter(|copy| !there.contains(&copy.server)) {
                let stalled = self
                    .witness
                    .stalled
                    .contains(&(id, copy.server, copy.since));
                let Some(life) = lives.get(&copy.server) else {
                    continue;
                };
                if stalled || heard_us >= Some(self.missed_us(*life)) {
                    self.witness.needed.remove(&(id, *life));
                }
            }
        }
        let new = now.primary.filter(|_| now.primary != before.primary);
        if let Some(new) = new.filter(|new| self.witness.fenced.contains(&(id, new.since))) {
            self.goes_on(id, new.server, now);
        }
    }

    /// Since when a process is missed, or will be.
    fn missed_us(&self, life: Life) -> u64 {
        let heard_us = self.witness.heard_us.get(&life).copied().unwrap_or(0);
        let silent_us = heard_us + LEASE_MS * 1_000;
        let lost_us = self.witness.lost_us.get(&life).copied();
        let lost_us = lost_us.filter(|lost_us| *lost_us >= heard_us);
        lost_us.map_or(silent_us, |lost_us| lost_us.min(silent_us))
    }

    /// Who has everything that was answered of a shard, and is not silent for too long, and is
    /// needed.
    fn kept(&mut self, id: ShardId) -> Option<String> {
        if !self.checker.answered_any(id) {
            return None;
        }
        let patience_us = (self.scenario.patience_ms - EARLY_MS) * 1000;
        for life in self.keepers(id) {
            let silent_us = self.silent_us(life);
            if silent_us >= patience_us {
                continue;
            }
            if !self.witness.needed.contains(&(id, life)) {
                self.report.counts.kept_in_vain += 1;
                continue;
            }
            let text = format!(
                "server {} in its life {} has everything that was answered of it, and was last heard \
                 {silent_us} µs before",
                life.server, life.incarnation
            );
            return Some(text);
        }
        None
    }

    /// A server restores a shard in a lineage, from this snapshot.
    pub(super) fn check_restore(
        &mut self,
        life: Life,
        (id, lineage): (ShardId, Generation),
        (number, upto, named): (u64, u64, &[String]),
    ) -> Result<(), Violation> {
        let server = self.running(life).expect("it obeys");
        let obeyed = server.obeyed;
        let all = self.witness.begun.iter();
        let mut of =
            all.filter(|((of, began, n), _)| (*of, *began) == (id, lineage) && *n <= obeyed);
        if let Some((_, Some(kept))) = of.next_back() {
            let text = format!("shard {id} is restored from snapshot {number}, though {kept}");
            return Err(Violation::new(Rule::NothingLost, text));
        }
        let newer = self.disk.newer((number, upto));
        if !newer.is_empty() {
            let text = format!(
                "shard {id} is restored from snapshot {number}, though {newer:?} are whole; named are \
                 {named:?}"
            );
            return Err(Violation::new(Rule::Snapshots, text));
        }
        Ok(())
    }

    /// A server goes on as primary of a shard: whoever is no full copy then need not keep what it has.
    pub(super) fn goes_on(&mut self, id: ShardId, primary: ServerId, holders: &Holders) {
        let needed: Vec<ServerId> = counted(holders).chain([primary]).collect();
        let keepers = self.keepers(id).into_iter();
        // Whom it counts upon stood in what its coordinator decided, which may be more by now.
        for life in keepers.filter(|life| !needed.contains(&life.server)) {
            self.witness.needed.remove(&(id, life));
        }
    }

    /// A server refuses whoever was primary before it.
    pub(super) fn fences(&mut self, id: ShardId, since: Generation) {
        self.witness.fenced.insert((id, since));
    }

    /// Whether a process is the last one that has everything that was answered of a shard, and is
    /// needed for it.
    pub(super) fn is_last(&self, life: Life, id: ShardId) -> bool {
        // A copy may have been removed, in writing, before its primary heard of that and fell.
        let up = self.servers[&life.server].up.as_ref();
        let role = up.and_then(|up| up.shards.get(&id)?.shard.role());
        let copy = matches!(role, Some(tradewind_common::holders::Role::Copy(_)));
        let needed = self.witness.needed.contains(&(id, life)) && !copy;
        needed && self.checker.answered_any(id) && self.keepers(id) == [life]
    }

    /// A process that was the last one has followed an order: whether it still has everything.
    pub(super) fn check_last(
        &self,
        life: Life,
        id: ShardId,
        holders: &Holders,
    ) -> Result<(), Violation> {
        let begun = self.checker.last_lineage(id);
        if Some(holders.lineage) > begun || self.keepers(id).contains(&life) {
            return Ok(());
        }
        let text = format!(
            "server {} was the last that had everything that was answered of shard {id}, and was told \
             to forget it: {holders:?}",
            life.server
        );
        Err(Violation::new(Rule::NothingLost, text))
    }

    /// Why a run that is over should have gone on; `None` if it could not.
    pub(super) fn was_needless(&mut self) -> Option<String> {
        match self.witness.over.clone() {
            Some(decided) => decided,
            None => self.must_go_on(),
        }
    }

    /// Why a run may not end now; `None` if it may.
    fn must_go_on(&mut self) -> Option<String> {
        if !self.disk.any_whole() {
            return None;
        }
        let shards = (0..self.servers.len() as u32).map(ShardId);
        let lost = |world: &mut Self, id: ShardId| {
            world.checker.last_primary(id).is_some()
                && world.checker.answered_any(id)
                && world.kept(id).is_none()
        };
        let lost = shards.filter(|id| lost(self, *id)).count();
        match self.scenario.stops_on_loss {
            false => Some("the run allows losses, and there is a snapshot".into()),
            true if lost > 0 => None,
            true => Some("every shard has a process that has everything".into()),
        }
    }

    /// How much loss the present coordinator tells, once what it knows is written down.
    fn told(&self) -> Option<Loss> {
        let (_, host) = self.coordinators.last_key_value()?;
        let run = host.core.run(&self.common.run).ok()?;
        let written = host.written_down() || !self.scenario.folder;
        written.then(|| run.lost())
    }

    /// Whether the end has to wait: all groups are done, but not all that was lost is told.
    pub(super) fn owes(&mut self) -> bool {
        let since_us = *self.ended_us.get_or_insert(self.now_us);
        self.now_us < since_us + TOLD_LATE_US && self.check_told().is_err()
    }

    /// Compares what was lost with what was told of it.
    pub(super) fn check_told(&self) -> Result<(), Violation> {
        let missing = self.checker.missing();
        let before = self.witness.told_before;
        let updates = missing.least + before.updates..=missing.most + before.updates;
        let samples = missing.samples_least..=missing.samples_most + before.samples;
        // Where nobody tells anything, nothing more is told than before.
        let told = self.told().unwrap_or(before);
        if updates.contains(&told.updates) && samples.contains(&told.samples) {
            return Ok(());
        }
        let text = format!("{told:?} is told to be lost, where it was {updates:?} and {samples:?}");
        Err(Violation::new(Rule::LossesTold, text))
    }
}

/// The servers of a shard that a coordinator counts upon.
fn counted(holders: &Holders) -> impl Iterator<Item = ServerId> + '_ {
    let primary = holders.primary.iter().map(|primary| primary.server);
    let full = holders.copies.iter().filter(|copy| copy.full);
    let candidates = holders.candidates.iter().map(|candidate| candidate.server);
    primary
        .chain(full.map(|copy| copy.server))
        .chain(candidates)
}

impl Held {
    /// Whether this is the shard's primary.
    pub(super) fn leads(&self) -> bool {
        matches!(self.shard.role(), Some(Role::Primary(_)))
    }
}

impl Host {
    /// Whether all that it has decided is written down.
    fn written_down(&self) -> bool {
        !self.unsaved && self.writing.is_none() && !self.looking
    }
}
