//! Who holds everything of a shard that was acknowledged, and who of them has fallen: from what
//! servers say themselves, from whose processes have died, and from the coordinator's word that a copy
//! is full or counts no more.

use std::collections::{BTreeMap, BTreeSet};

use tradewind_common::holders::Holders;
use tradewind_proto::v1::{DecidedClock, ShardStatusReply};

/// Present processes of servers, and those of them that are stopped or cut off.
#[derive(Clone, Debug, Default)]
pub(super) struct Processes {
    /// Which life of each server is there.
    pub(super) alive: BTreeMap<u32, u64>,
    pub(super) silent: BTreeSet<u32>,
}

/// What servers say of a shard, of its present lineage.
pub(super) type Replies<'a> = BTreeMap<u32, &'a ShardStatusReply>;

/// What is known of who holds a shard.
#[derive(Debug, Default)]
pub(super) struct Holding {
    /// Who answered for the shard last, and in which generation.
    head: Option<(u32, u64)>,
    /// Servers that hold everything.
    full: BTreeMap<u32, Holder>,
    /// Those that did when the shard was whole last, each with its life; none before it was.
    at_whole: BTreeMap<u32, u64>,
    /// The servers among them, and of those that have come to hold everything since, that have fallen.
    fallen: BTreeSet<u32>,
    whole: bool,
}

#[derive(Clone, Debug)]
struct Holder {
    /// Which life of the server.
    life: u64,
    /// What it said last that it has.
    decided: Vec<DecidedClock>,
}

impl Holding {
    /// Processes may have ended or fallen silent.
    pub(super) fn handle_processes(&mut self, now: &Processes) {
        let dead = |(server, life): &(u32, u64)| now.alive.get(server) != Some(life);
        // Whoever was removed before may have been so because it had fallen.
        let full = self
            .full
            .iter()
            .map(|(server, holder)| (*server, holder.life));
        let all: BTreeMap<u32, u64> = full.chain(self.at_whole.clone()).collect();
        let silent = |(server, _): &(u32, u64)| now.silent.contains(server);
        let fallen = all.into_iter().filter(|one| dead(one) || silent(one));
        self.fallen.extend(fallen.map(|(server, _)| server));
        self.full
            .retain(|server, holder| !dead(&(*server, holder.life)));
        self.whole &= self.fallen.is_empty();
    }

    /// The coordinator has removed a copy. A previous primary is none.
    pub(super) fn handle_removed(&mut self, server: u32) {
        if self.head.is_none_or(|(head, _)| head != server) {
            self.full.remove(&server);
            self.whole = false;
        }
    }

    /// Servers have said what they have; `covers` is whether that are all clocks that groups had
    /// finished before.
    pub(super) fn handle_replies(
        &mut self,
        replies: &Replies<'_>,
        now: &Processes,
        covers: impl Fn(&ShardStatusReply) -> bool,
    ) {
        for (server, reply) in replies {
            let generation = reply.generation;
            let follows = |(head, last): (u32, u64)| head != *server && generation > last;
            if reply.primary && self.head.is_none_or(follows) {
                // From now on it may acknowledge what the others do not get.
                self.full.clear();
                self.head = Some((*server, generation));
            }
            if let Some(head) = self.head.as_mut().filter(|(head, _)| head == server)
                && reply.primary
            {
                head.1 = head.1.max(generation);
                if covers(reply) {
                    self.insert(*server, reply, now);
                }
            } else if let Some(holder) = self.full.get_mut(server) {
                holder.decided.clone_from(&reply.decided);
            }
        }
    }

    /// The coordinator said the same before servers were asked and after it.
    pub(super) fn handle_told(
        &mut self,
        holders: &Holders,
        replies: &Replies<'_>,
        now: &Processes,
        replication: u32,
        covers: impl Fn(&ShardStatusReply) -> bool,
    ) {
        self.whole = false;
        let Some(primary) = holders.primary else {
            return;
        };
        let (server, since) = (primary.server.0, primary.since.0);
        let answers = replies.get(&server);
        if self.head.is_none_or(|(head, _)| head != server)
            || !answers.is_some_and(|reply| reply.primary && reply.generation >= since)
        {
            // Until the heir answers, its predecessor and all full copies hold everything.
            return;
        }
        let copies = holders.copies.iter().filter(|copy| copy.full);
        let copies: BTreeSet<u32> = copies.map(|copy| copy.server.0).collect();
        self.full
            .retain(|id, _| *id == server || copies.contains(id));
        for copy in &copies {
            let reply = replies.get(copy);
            if let Some(reply) = reply.filter(|reply| !reply.primary && covers(reply)) {
                self.insert(*copy, reply, now);
            }
        }
        let heard = |id: &u32| replies.contains_key(id) && !now.silent.contains(id);
        if self.full.keys().filter(|id| heard(id)).count() >= replication as usize {
            self.fallen.clear();
            let full = self.full.iter();
            self.at_whole = full.map(|(id, holder)| (*id, holder.life)).collect();
            self.whole = true;
        }
    }

    fn insert(&mut self, server: u32, reply: &ShardStatusReply, now: &Processes) {
        if let Some(life) = now.alive.get(&server) {
            let holder = Holder {
                life: *life,
                decided: reply.decided.clone(),
            };
            self.full.insert(server, holder);
        }
    }

    /// The shard begins anew from a snapshot.
    pub(super) fn restored(&mut self) {
        self.full.clear();
        self.head = None;
        self.whole = false;
    }

    /// Whether as many servers as there shall be hold everything, and none of them suffers.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Servers whose present processes hold everything, and what each has.
    pub(super) fn living(&self) -> impl Iterator<Item = (u32, &[DecidedClock])> {
        let full = self.full.iter();
        full.map(|(server, holder)| (*server, &holder.decided[..]))
    }

    /// The server that has fallen, if it was one at most since the shard was whole; `None` if several
    /// have, or it has never been whole.
    pub(super) fn one_fell(&self) -> Option<Option<u32>> {
        let one = !self.at_whole.is_empty() && self.fallen.len() <= 1;
        one.then(|| self.fallen.first().copied())
    }
}
