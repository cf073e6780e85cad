//! What must hold while faults happen, checked against what servers, the coordinator and the
//! groups say. A value: answers and records go in, violations come out. No clock is read here.

mod digests;
mod end;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use tradewind_common::holders::Holders;
use tradewind_common::record::StepRecord;
use tradewind_proto::v1::{DecidedClock, ShardStatusReply, StatusReply};

use super::ask::Seen;
use digests::Digests;
pub(crate) use end::{differs, unhealthy};

/// Violations that are remembered: the first ones tell most.
const VIOLATIONS_MAX: usize = 20;

/// What was looked at.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub(crate) struct Looked {
    /// Rounds of questions to all servers.
    pub(crate) rounds: u64,
    /// Pairs of equal versions of a shard whose digests were compared.
    pub(crate) digests: u64,
    /// Finished clocks of groups.
    pub(crate) clocks: u64,
    /// Of them, those that were written down after a later one of their group: by a process that
    /// was stopped in between.
    pub(crate) late: u64,
    /// Finished clocks that were found in the primaries.
    pub(crate) acknowledged: u64,
}

/// Looks on.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Nothing may be lost, because there is more than one copy.
    lossless: bool,
    coordinator: u64,
    generation: u64,
    clocks: BTreeMap<u32, BTreeSet<u64>>,
    updates: u64,
    shards: BTreeMap<u32, Shard>,
    digests: Digests,
    looked: Looked,
    violations: Vec<String>,
}

/// What is known of a shard.
#[derive(Debug, Default)]
struct Shard {
    lineage: u64,
    /// The highest sum of versions that all copies had confirmed.
    confirmed: u64,
    /// In which generations who said to be its primary.
    primaries: BTreeMap<u64, u32>,
}

impl Watch {
    /// Of a run with so many copies of each shard.
    pub(crate) fn new(replication: u32) -> Self {
        Self {
            lossless: replication > 1,
            coordinator: 0,
            generation: 0,
            clocks: BTreeMap::new(),
            updates: 0,
            shards: BTreeMap::new(),
            digests: Digests::default(),
            looked: Looked::default(),
            violations: Vec::new(),
        }
    }

    /// What did not hold.
    pub(crate) fn violations(&self) -> &[String] {
        &self.violations
    }

    /// What was looked at.
    pub(crate) fn looked(&self) -> Looked {
        Looked {
            digests: self.digests.compared(),
            ..self.looked.clone()
        }
    }

    /// Something else did not hold.
    pub(crate) fn violated(&mut self, what: String) {
        if self.violations.len() < VIOLATIONS_MAX && !self.violations.contains(&what) {
            self.violations.push(what);
        }
    }

    /// A group has finished a clock, so everything at it was acknowledged.
    pub(crate) fn handle_clock(&mut self, record: &StepRecord) {
        let StepRecord { group, clock, .. } = *record;
        self.looked.clocks += 1;
        self.updates = self.updates.max(record.updates);
        let clocks = self.clocks.entry(group).or_default();
        let late = clocks.last().is_some_and(|last| *last > clock);
        if !clocks.insert(clock) {
            self.violated(format!("group {group} finished clock {clock} twice"));
        } else if late {
            self.looked.late += 1;
        }
    }

    /// A coordinator has answered. A former one, which has not heard that it is deposed, counts
    /// for nothing.
    pub(crate) fn handle_status(&mut self, told: &StatusReply) {
        if told.coordinator < self.coordinator {
            return;
        }
        self.coordinator = told.coordinator;
        let (generation, former) = (told.generation, self.generation);
        if generation < former {
            self.violated(format!(
                "the generation went back from {former} to {generation}"
            ));
        }
        self.generation = former.max(generation);
        let lost = told.lost();
        if self.lossless && !lost.is_none() {
            self.violated(format!("{lost} were lost"));
        }
    }

    /// All servers were asked after what they have, between two answers of the coordinator about
    /// who holds what. Clocks that were handed in before were finished before.
    pub(crate) fn handle_round(&mut self, before: &[Holders], seen: &[Seen], after: &[Holders]) {
        self.looked.rounds += 1;
        for Seen { shard, reply } in seen.iter().filter(|seen| seen.reply.primary) {
            self.one_primary(*shard, reply);
        }
        let mut versions = Some(0);
        for (shard, holders) in before.iter().enumerate() {
            let number = shard as u32;
            let of = |server: u32| {
                let mut replies = seen.iter().filter(|seen| seen.shard == number);
                let found = replies.find(|seen| seen.reply.server == server);
                found.map(|seen| &seen.reply)
            };
            if after.get(shard) != Some(holders) {
                versions = None;
                continue;
            }
            let primary = holders.primary.and_then(|primary| {
                let reply = of(primary.server.0)?;
                let follows = reply.primary && reply.generation >= primary.since.0;
                follows.then_some((primary.since.0, reply))
            });
            let Some((log, reply)) = primary.filter(|(_, r)| r.lineage == holders.lineage.0) else {
                versions = None;
                continue;
            };
            versions = versions.map(|highest: u64| highest.max(reply.version_max));
            self.primary(number, reply);
            let full = holders.copies.iter().filter(|copy| copy.full);
            let copies = full.filter_map(|copy| of(copy.server.0));
            let replies = copies.filter(|copy| !copy.primary).chain([reply]);
            for reply in replies {
                if let Err(what) = self.digests.take((number, log), reply) {
                    self.violated(what);
                }
            }
        }
        let updates = self.updates;
        if let Some(versions) = versions.filter(|versions| *versions < updates)
            && self.lossless
        {
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

    /// What the present primary has of what was acknowledged.
    fn primary(&mut self, number: u32, reply: &ShardStatusReply) {
        let shard = self.shards.entry(number).or_default();
        if reply.lineage != shard.lineage {
            shard.lineage = reply.lineage;
            shard.confirmed = 0;
            if self.lossless {
                self.violated(format!(
                    "shard {number} was restored from a snapshot, although it had copies"
                ));
            }
            return;
        }
        let (confirmed, sum, server) = (shard.confirmed, reply.version_sum, reply.server);
        if reply.unconfirmed == 0 {
            shard.confirmed = confirmed.max(sum);
        }
        if sum < confirmed {
            self.violated(format!(
                "versions of shard {number} went back from {confirmed} to {sum} (their sum) on server {server}"
            ));
        }
        if self.lossless && reply.blocks > 0 {
            self.acknowledged(number, reply);
        }
    }

    fn acknowledged(&mut self, number: u32, reply: &ShardStatusReply) {
        let mut missing = Vec::new();
        for (group, clocks) in &self.clocks {
            let finished = *clocks.last().expect("one was inserted");
            let of = |decided: &&DecidedClock| decided.group == *group;
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
}
