//! What must hold while faults happen, checked against what servers, the coordinator and the
//! groups say. A value: answers and records go in, violations come out. No clock is read here.
//!
//! Nobody is asked whether a fault may happen. Whether what it did was allowed is judged afterwards: a
//! shard may begin anew from a snapshot only if no process lives that holds everything of it, and not
//! where its holders have fallen one at a time; and what is missing then must have been told.

mod clocks;
mod digests;
mod end;
mod holding;
mod losses;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use tradewind_common::holders::Holders;
use tradewind_common::record::StepRecord;
use tradewind_proto::v1::{DecidedClock, ShardStatusReply, StatusReply};

use super::ask::Seen;
use super::shared::Silence;
use clocks::{ClockPlace, Clocks};
use digests::Digests;
pub use end::{differs, unhealthy};
use holding::{Holding, Processes};
use losses::Losses;
pub use losses::{HolderEvent, Restored};

/// Violations that are remembered: the first ones tell most.
const VIOLATIONS_MAX: usize = 20;

/// A silence that ended so many seconds ago may be why something happens now.
const JUST_OVER: f64 = 5.0;

/// What was looked at.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Looked {
    /// Rounds of questions to all servers.
    pub rounds: u64,
    /// Pairs of equal versions of a shard whose digests were compared.
    pub digests: u64,
    /// Finished clocks of groups.
    pub clocks: u64,
    /// Of them, those that were written down after a later one of their group: by a process that
    /// was stopped in between.
    pub late: u64,
    /// Finished clocks that were found in the primaries.
    pub acknowledged: u64,
    /// Shards that were restored from a snapshot.
    pub restored: u64,
    /// Updates that are surely missing in them, and those that were told.
    pub lost_at_least: u64,
    pub lost_told: u64,
}

/// What is promised.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Copies of each shard, its primary among them.
    pub replication: u32,
    /// Faults wait until everything is whole again, so nothing may be lost.
    pub one_at_a_time: bool,
    /// After so many seconds of silence a holder need not be waited for.
    pub patience: f64,
}

/// A round of questions to all servers.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// When it began and when it ended, seconds since the Unix epoch.
    pub began: f64,
    pub ended: f64,
    /// Who holds what, as the present coordinator said at both times, and which server hosts it.
    pub before: &'a [Holders],
    pub after: &'a [Holders],
    pub host: u32,
    pub seen: &'a [Seen],
}

/// Looks on.
#[derive(Debug)]
pub struct Watch {
    rules: Rules,
    coordinator: u64,
    /// The last that the present coordinator said; it may not have been written down yet.
    generation: u64,
    /// The last that a server has followed; it was written down before.
    followed: u64,
    clocks: Clocks,
    /// The highest version that a group was answered since a shard was restored last, and when that was.
    updates: u64,
    updates_from: f64,
    processes: Processes,
    silences: BTreeMap<u32, Silence>,
    shards: BTreeMap<u32, Shard>,
    losses: Losses,
    digests: Digests,
    looked: Looked,
    violations: Vec<String>,
}

/// What is known of a shard.
#[derive(Debug, Default)]
struct Shard {
    lineage: u64,
    /// When that was heard of first, seconds since the Unix epoch, and when it was heard last.
    from: f64,
    until: f64,
    /// Most blocks that somebody has said to have of it: a small model leaves some shards without any.
    blocks: u64,
    /// The highest sum of versions that all copies had confirmed.
    confirmed: u64,
    /// In which generations who said to be its primary.
    primaries: BTreeMap<u64, u32>,
    holding: Holding,
}

impl Watch {
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            coordinator: 0,
            generation: 0,
            followed: 0,
            clocks: Clocks::default(),
            updates: 0,
            updates_from: 0.0,
            processes: Processes::default(),
            silences: BTreeMap::new(),
            shards: BTreeMap::new(),
            losses: Losses::default(),
            digests: Digests::default(),
            looked: Looked::default(),
            violations: Vec::new(),
        }
    }

    /// What did not hold.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// What was looked at.
    pub fn looked(&self) -> Looked {
        let restored = self.losses.all();
        Looked {
            digests: self.digests.compared(),
            restored: restored.len() as u64,
            lost_at_least: restored.iter().map(|one| one.updates_at_least).sum(),
            lost_told: restored.iter().map(|one| one.told_updates).sum(),
            ..self.looked.clone()
        }
    }

    /// Shards that were restored, and what was missing in each.
    pub fn restored(&self) -> &[Restored] {
        self.losses.all()
    }

    /// Whether every shard has all its holders, and nothing happens to them at the moment.
    pub fn is_whole(&self) -> bool {
        let mut shards = self.shards.values();
        !self.shards.is_empty() && shards.all(|shard| shard.holding.is_whole())
    }

    /// Something else did not hold.
    pub fn violated(&mut self, what: String) {
        if self.violations.len() < VIOLATIONS_MAX && !self.violations.contains(&what) {
            self.violations.push(what);
        }
    }

    /// A group has finished a clock, so everything at it was acknowledged.
    pub fn handle_clock(&mut self, record: &StepRecord) {
        let StepRecord { group, clock, .. } = *record;
        self.looked.clocks += 1;
        let place = self.clocks.insert(record);
        if self.clocks.begins_after(group, clock, self.updates_from) {
            self.updates = self.updates.max(record.updates);
        }
        match place {
            ClockPlace::Next => {}
            ClockPlace::Late => self.looked.late += 1,
            // Of what is lost everywhere nobody knows any more.
            ClockPlace::Again(wall) if self.shards.values().all(|shard| shard.from > wall) => {}
            ClockPlace::Again(_) => {
                self.violated(format!("group {group} finished clock {clock} twice"))
            }
        }
    }

    /// A coordinator has answered. A previous one, which has not heard that it is deposed, counts
    /// for nothing.
    pub fn handle_status(&mut self, told: &StatusReply) {
        if told.coordinator < self.coordinator {
            return;
        }
        let previous = match told.coordinator == self.coordinator {
            true => self.generation.max(self.followed),
            false => self.followed,
        };
        self.coordinator = told.coordinator;
        let generation = told.generation;
        if generation < previous {
            self.violated(format!(
                "the generation went back from {previous} to {generation}"
            ));
        }
        self.generation = previous.max(generation);
        if let Some(what) = self.losses.handle_total(told.lost()) {
            self.violated(what);
        }
    }

    /// An event was written down.
    pub fn handle_event(&mut self, told: &HolderEvent) {
        match (told.kind.as_str(), told.shard, told.server) {
            ("updates_lost", ..) => self.losses.handle_told(told),
            ("copy_removed", Some(shard), Some(server)) => {
                let shard = self.shards.entry(shard).or_default();
                shard.holding.handle_removed(server);
            }
            _ => {}
        }
    }

    /// Which life of each server is there, and when each was stopped or cut off last.
    pub fn handle_processes(
        &mut self,
        alive: BTreeMap<u32, u64>,
        silences: BTreeMap<u32, Silence>,
    ) {
        let silent = silences.iter().filter(|(_, s)| s.until.is_none());
        self.processes = Processes {
            alive,
            silent: silent.map(|(server, _)| *server).collect(),
        };
        self.silences = silences;
        for shard in self.shards.values_mut() {
            shard.holding.handle_processes(&self.processes);
        }
    }

    /// All servers were asked after what they have, between two answers of the coordinator about
    /// who holds what. Clocks that were handed in before were finished before.
    pub fn handle_round(&mut self, round: Round<'_>) {
        self.looked.rounds += 1;
        let followed = round.seen.iter().map(|seen| seen.reply.generation);
        self.followed = followed.fold(self.followed, u64::max);
        for Seen { shard, reply } in round.seen.iter().filter(|seen| seen.reply.primary) {
            self.one_primary(*shard, reply);
        }
        for (shard, holders) in round.after.iter().enumerate() {
            self.lineage(shard as u32, holders, &round);
        }
        let mut versions = Some(0);
        for (shard, holders) in round.after.iter().enumerate() {
            let stable = round.before.get(shard) == Some(holders);
            let version = self.shard(shard as u32, holders, round.seen, stable);
            versions = versions.zip(version).map(|(a, b): (u64, u64)| a.max(b));
        }
        let updates = self.updates;
        if let Some(versions) = versions.filter(|versions| *versions < updates) {
            self.violated(format!(
                "a group was answered version {updates}, but no primary has more than {versions}"
            ));
        }
    }

    /// Only one server answers for a shard in one generation.
    fn one_primary(&mut self, shard: u32, reply: &ShardStatusReply) {
        let known = self.shards.entry(shard).or_default();
        let of = known.primaries.entry(reply.generation);
        let first = *of.or_insert(reply.server);
        if first != reply.server {
            self.violated(format!(
                "servers {first} and {} both answer for shard {shard} in generation {}",
                reply.server, reply.generation
            ));
        }
    }

    /// The coordinator says of which lineage a shard is.
    fn lineage(&mut self, number: u32, holders: &Holders, round: &Round<'_>) {
        let shard = self.shards.entry(number).or_default();
        let lineage = holders.lineage.0;
        if lineage == shard.lineage {
            shard.until = round.began;
            return;
        }
        let why_not = self.may_not_restore(number, round);
        let shard = self.shards.entry(number).or_default();
        self.losses
            .restored(number, lineage, round.ended, shard.until);
        self.losses.confirmed(shard.confirmed);
        shard.lineage = lineage;
        shard.from = round.ended;
        shard.until = round.began;
        shard.confirmed = 0;
        shard.holding.restored();
        self.updates = 0;
        self.updates_from = round.ended;
        if let Some(why) = why_not {
            self.violated(format!(
                "shard {number} was restored from a snapshot, although {why}"
            ));
        }
    }

    /// Why a shard was not to be restored; `None` if it was.
    fn may_not_restore(&self, number: u32, round: &Round<'_>) -> Option<String> {
        let shard = &self.shards[&number];
        if self.rules.one_at_a_time {
            return Some("faults came one at a time".into());
        }
        let has = |decided: &[DecidedClock]| {
            let clocks = &self.clocks;
            clocks.covered(decided, shard.from, shard.until)
        };
        let silent = |server| self.was_silent(server, round);
        let mut living = shard.holding.living();
        if let Some((server, _)) = living.find(|(server, decided)| has(decided) && !silent(*server))
        {
            let life = self.processes.alive.get(&server).copied();
            return Some(format!(
                "server {server} (life {}) lives and holds everything of it",
                life.unwrap_or_default()
            ));
        }
        let one = (self.rules.replication > 1).then(|| shard.holding.one_fell());
        one.flatten().map(|fallen| match fallen {
            Some(server) => format!("of its holders only server {server} fell since it was whole"),
            None => "none of its holders fell since it was whole".into(),
        })
    }

    /// Whether a server was silent for longer than the patience, to the coordinator at least.
    fn was_silent(&self, server: u32, round: &Round<'_>) -> bool {
        let long = |server: &u32| {
            self.silences.get(server).is_some_and(|silence| {
                let until = silence.until.unwrap_or(round.ended);
                let recent = until + JUST_OVER > round.ended;
                recent && until - silence.from >= self.rules.patience
            })
        };
        long(&server) || long(&round.host)
    }

    /// What holders of a shard say; the highest version that its primary has, if it answers and nothing
    /// changes.
    fn shard(
        &mut self,
        number: u32,
        holders: &Holders,
        seen: &[Seen],
        stable: bool,
    ) -> Option<u64> {
        let lineage = holders.lineage.0;
        let of = |seen: &&Seen| seen.shard == number && seen.reply.lineage == lineage;
        let replies: BTreeMap<u32, &ShardStatusReply> = seen
            .iter()
            .filter(of)
            .map(|seen| (seen.reply.server, &seen.reply))
            .collect();
        let clocks = &self.clocks;
        let shard = self.shards.entry(number).or_default();
        let from = shard.from;
        let blocks = replies.values().map(|reply| reply.blocks);
        shard.blocks = blocks.fold(shard.blocks, u64::max);
        let none = shard.blocks == 0;
        let covers =
            |reply: &ShardStatusReply| none || clocks.covered(&reply.decided, from, f64::INFINITY);
        let now = &self.processes;
        shard.holding.handle_replies(&replies, now, covers);
        if !stable {
            return None;
        }
        shard
            .holding
            .handle_told(holders, &replies, now, self.rules.replication, covers);
        let primary = holders.primary?;
        let reply = *replies.get(&primary.server.0)?;
        if !reply.primary || reply.generation < primary.since.0 {
            return None;
        }
        self.primary(number, reply);
        let full = holders.copies.iter().filter(|copy| copy.full);
        let copies = full.filter_map(|copy| replies.get(&copy.server.0).copied());
        for reply in copies.filter(|copy| !copy.primary).chain([reply]) {
            if let Err(what) = self.digests.take((number, primary.since.0), reply) {
                self.violated(what);
            }
        }
        Some(reply.version_max)
    }

    /// What the present primary has of what was acknowledged.
    fn primary(&mut self, number: u32, reply: &ShardStatusReply) {
        self.losses.handle_primary(number, reply);
        let shard = self.shards.entry(number).or_default();
        let (confirmed, sum, server) = (shard.confirmed, reply.version_sum, reply.server);
        if reply.unconfirmed == 0 {
            shard.confirmed = confirmed.max(sum);
        }
        let from = shard.from;
        if sum < confirmed {
            self.violated(format!(
                "versions of shard {number} went back from {confirmed} to {sum} (their sum) on server {server}"
            ));
        }
        if reply.blocks > 0 {
            self.acknowledged(number, reply, from);
        }
    }

    /// Every clock that was finished in this lineage is there.
    fn acknowledged(&mut self, number: u32, reply: &ShardStatusReply, from: f64) {
        let mut missing = Vec::new();
        for group in self.clocks.groups() {
            let Some(finished) = self.clocks.last(group, from, f64::INFINITY) else {
                continue;
            };
            let of = |decided: &&DecidedClock| decided.group == group;
            let decided = reply.decided.iter().find(of).map(|decided| decided.clock);
            self.looked.acknowledged += 1;
            if decided.is_none_or(|decided| decided < finished) {
                missing.push(format!(
                    "group {group} has finished clock {finished}, but shard {number} on server {} has {}",
                    reply.server,
                    decided.map_or("nothing of it".into(), |clock| format!("only clock {clock}"))
                ));
            }
        }
        missing.into_iter().for_each(|what| self.violated(what));
    }

    /// Everything is over: whether all that was lost was told.
    pub fn finish(&mut self) {
        let wrong = self.losses.finish(&self.clocks);
        wrong.into_iter().for_each(|what| self.violated(what));
    }

    /// Servers whose shards are asked after nobody else's: those that are stopped.
    pub fn stopped(&self) -> BTreeSet<u32> {
        let stopped = self.silences.iter().filter(|(_, s)| s.stops > 0);
        stopped.map(|(server, _)| *server).collect()
    }
}
