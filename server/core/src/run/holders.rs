//! Who holds each shard, and who takes over when a server is gone (rule 4).
//!
//! While a primary answers, a copy is removed once the primary has followed an order of after the
//! copy was missed: a coordinator that reaches neither of them decides nothing about either.
//!
//! When the primary is missed, nobody answers. It and its full copies are candidates, as long as they
//! are not known to be dead. One that is there is chosen as the heir, and acknowledges: from then on it
//! refuses what its predecessor sends, so that the predecessor, whose answers wait for all its
//! copies, answers nothing more. Only then, and when that is written down, it is the primary.

use std::cmp::Reverse;

use tradewind_common::holders::{Candidate, CopyHolder, Holders, Primary, Role};
use tradewind_common::{Generation, Incarnation, ServerId, ShardId};

use super::{Phase, Run};
use crate::event::{Event, EventKind};
use crate::fleet::{Fleet, Presence};
use crate::order::{Restore, ShardReport};

/// Most problems of one report that are told.
const DAMAGED_MAX: usize = 8;

/// The first holders of a run's shards: shard i lies on server i, its copies on the next ones, on
/// other hosts where there are some.
pub(super) fn spread(fleet: &Fleet, replication: u32) -> Vec<Holders> {
    let servers = fleet.expected();
    let place = |shard: u32| {
        let mut holders = Holders::alone(ServerId(shard));
        while holders.copies.len() + 1 < replication as usize {
            let mut others = (1..servers).map(|next| ServerId((shard + next) % servers));
            let mut free = others.by_ref().filter(|id| holders.role(*id).is_none());
            let first = free.next();
            let mut apart = first.into_iter().chain(free);
            let Some(server) = apart
                .find(|id| !shares_host(fleet, &holders, *id))
                .or(first)
            else {
                break;
            };
            holders.copies.push(empty_copy(server, Generation(0)));
        }
        holders
    };
    (0..servers).map(place).collect()
}

fn empty_copy(server: ServerId, since: Generation) -> CopyHolder {
    CopyHolder {
        server,
        since,
        full: false,
    }
}

fn shares_host(fleet: &Fleet, holders: &Holders, server: ServerId) -> bool {
    let host = fleet.host(server);
    holders.servers().any(|holder| fleet.host(holder) == host)
}

fn is_there(fleet: &Fleet, candidate: &Candidate) -> bool {
    fleet.is_up(candidate.server)
        && fleet.incarnation(candidate.server) == Some(candidate.incarnation)
}

impl Run {
    pub(super) fn primary(&self, shard: ShardId) -> Option<Primary> {
        self.holders[shard.0 as usize].primary
    }

    pub(super) fn heir(&self, shard: ShardId) -> Option<Primary> {
        self.holders[shard.0 as usize].heir
    }

    /// Whether every shard has a primary.
    pub(super) fn answers_everywhere(&self) -> bool {
        self.holders.iter().all(|holders| holders.primary.is_some())
    }

    /// Whether something about holders waits for a word of a server, or for time to pass.
    pub(crate) fn is_unsettled(&self) -> bool {
        !self.answers_everywhere() || !self.departing.is_empty()
    }

    /// Whether what shards hold has been trained, and cannot be created again.
    fn is_trained(&self) -> bool {
        matches!(self.phase, Phase::Ready | Phase::Restoring)
    }

    /// A life of a server is gone; whether it is known to be `dead`, and not only out of reach. What
    /// follows from that is for [`place`](Self::place).
    pub(crate) fn server_lost(
        &mut self,
        (server, incarnation): (ServerId, Incarnation),
        dead: bool,
        fleet: &Fleet,
    ) {
        if self.is_over() {
            return;
        }
        self.acknowledged.retain(|(_, holder), _| *holder != server);
        let (mut changed, mut disturbed) = (false, false);
        for shard in self.shards() {
            match self.holders[shard.0 as usize].role(server) {
                Some(Role::Primary(_)) => {
                    disturbed |= self.snapshots.capture(shard).is_some();
                    self.depose(shard, (server, incarnation), dead, fleet);
                    self.tell_orphaned(shard, server, fleet);
                }
                Some(Role::Copy(_)) => self.miss_copy(shard, server, dead),
                Some(Role::Heir(_)) => {
                    self.holders[shard.0 as usize].heir = None;
                    self.restored.remove(&shard);
                    if dead {
                        self.drop_candidate(shard, server);
                    }
                    self.tell_orphaned(shard, server, fleet);
                }
                Some(Role::Candidate) if dead => self.drop_candidate(shard, server),
                Some(Role::Candidate) | None => continue,
            }
            changed = true;
        }
        if changed {
            self.change();
        }
        if disturbed {
            self.disturb_snapshots();
        }
    }

    /// Nobody that is there can take over.
    fn tell_orphaned(&mut self, shard: ShardId, last: ServerId, fleet: &Fleet) {
        let candidates = &self.holders[shard.0 as usize].candidates;
        if candidates
            .iter()
            .any(|candidate| is_there(fleet, candidate))
        {
            return;
        }
        let names = candidates.iter().map(|c| format!("server {}", c.server));
        let waits = match names.collect::<Vec<_>>().join(" or ") {
            nobody if nobody.is_empty() => "nobody else has its values".to_owned(),
            names => format!("it waits for {names}"),
        };
        let text = format!("nobody answers for shard {shard}: server {last} is gone, and {waits}");
        let event = Event::new(EventKind::Orphaned, text);
        self.tell(event.server(last).shard(shard));
    }

    /// A primary is missed: it and its full copies are candidates.
    fn depose(
        &mut self,
        shard: ShardId,
        (server, incarnation): (ServerId, Incarnation),
        dead: bool,
        fleet: &Fleet,
    ) {
        self.departing.remove(&shard);
        let holders = &mut self.holders[shard.0 as usize];
        let former = Candidate {
            server,
            incarnation,
        };
        let full = holders.copies.iter().filter(|copy| copy.full);
        let copies = full.filter_map(|copy| {
            let incarnation = fleet.incarnation(copy.server)?;
            Some(Candidate {
                server: copy.server,
                incarnation,
            })
        });
        let full = |copy: &&CopyHolder| copy.full;
        let before = Holders {
            copies: holders.copies.iter().filter(full).copied().collect(),
            ..holders.clone()
        };
        holders.candidates = (!dead)
            .then_some(former)
            .into_iter()
            .chain(copies)
            .collect();
        holders.primary = None;
        holders.copies.clear();
        if !dead {
            self.interrupted.insert(shard, before);
        }
    }

    fn drop_candidate(&mut self, shard: ShardId, server: ServerId) {
        let candidates = &mut self.holders[shard.0 as usize].candidates;
        candidates.retain(|candidate| candidate.server != server);
        if let Some(before) = self.interrupted.get_mut(&shard) {
            before.copies.retain(|copy| copy.server != server);
        }
        let primary = |before: &Holders| before.primary.map(|primary| primary.server);
        self.interrupted
            .retain(|of, before| *of != shard || primary(before) != Some(server));
    }

    /// A copy is missed. One that may have to take over is removed when the primary has been heard
    /// since; otherwise both may be out of reach of the coordinator alone.
    fn miss_copy(&mut self, shard: ShardId, server: ServerId, dead: bool) {
        let holders = &self.holders[shard.0 as usize];
        let full = holders.copies.iter().any(|c| c.server == server && c.full);
        if dead || !full {
            self.remove_copy(shard, server, "is gone");
        } else {
            let next = self.generation.next();
            let departing = self.departing.entry(shard).or_default();
            departing.insert(server, next);
        }
    }

    fn remove_copy(&mut self, shard: ShardId, server: ServerId, why: &str) {
        let copies = &mut self.holders[shard.0 as usize].copies;
        copies.retain(|copy| copy.server != server);
        self.stay(shard, server);
        let text = format!("server {server} {why} and keeps no copy of shard {shard} any more");
        let event = Event::new(EventKind::CopyRemoved, text);
        self.tell(event.server(server).shard(shard));
    }

    fn stay(&mut self, shard: ShardId, server: ServerId) {
        if let Some(departing) = self.departing.get_mut(&shard) {
            departing.remove(&server);
            if departing.is_empty() {
                self.departing.remove(&shard);
            }
        }
    }

    /// Removes copies whose primary confirms nothing of them, though something waits for it and they are
    /// there: one that is not heard either is missed, or will be.
    pub(super) fn remove_stalled(
        &mut self,
        shard: ShardId,
        stalled: &[(ServerId, Generation)],
        (fleet, now_ms): (&Fleet, u64),
    ) {
        let holders = &self.holders[shard.0 as usize];
        let known = |copy: &&CopyHolder| stalled.contains(&(copy.server, copy.since));
        let stalled = holders.copies.iter().filter(known).map(|copy| copy.server);
        let stalled = stalled.filter(|server| fleet.was_heard_lately(*server, now_ms));
        let stalled: Vec<ServerId> = stalled.collect();
        for server in &stalled {
            self.remove_copy(shard, *server, "has confirmed nothing for a lease");
        }
        if !stalled.is_empty() {
            self.change();
        }
    }

    /// Takes every step about holders whose conditions are met: after a server has come, when one has
    /// said something, or when one is not waited for any more.
    pub(crate) fn place(&mut self, came: Option<ServerId>, fleet: &Fleet, now_ms: u64) {
        if self.is_over() {
            return;
        }
        let mut changed = false;
        for shard in self.shards() {
            if let Some(came) = came {
                self.stay(shard, came);
            }
            changed |= self.remove_departed(shard, fleet);
            if self.primary(shard).is_none() {
                changed |= self.settle_heir(shard, fleet);
            }
            if self.is_over() {
                return;
            }
            if self.primary(shard).is_none() {
                changed |= self.go_on(shard, fleet) || self.choose(shard, fleet);
            }
            if self.is_over() {
                return;
            }
        }
        changed |= self.add_copies(came, fleet);
        if changed {
            self.change();
        }
        self.advance(now_ms);
    }

    /// Whether what a server has acknowledged of a generation shows that the coordinator is not cut off:
    /// for the one that it runs on, another one has to have acknowledged it as well.
    fn reaches_others(&self, server: ServerId, generation: Generation, fleet: &Fleet) -> bool {
        let mut others = self
            .acknowledged
            .iter()
            .filter(|((_, of), _)| *of != server);
        !fleet.is_heard_anyway(server) || others.any(|(_, seen)| seen.generation >= generation)
    }

    /// Removes the copies that were missed before their primary was heard last.
    fn remove_departed(&mut self, shard: ShardId, fleet: &Fleet) -> bool {
        let heard = self.followed(shard).map(|seen| seen.generation);
        let primary = self.primary(shard).map(|primary| primary.server);
        let departing = self.departing.get(&shard);
        let (Some(departing), Some(heard), Some(primary)) = (departing, heard, primary) else {
            return false;
        };
        let patience_ms = self.spec.faults.patience_ms;
        let gone = departing.iter().filter(|(server, missed)| {
            let silent = fleet.silent_ms(**server) >= patience_ms;
            **missed <= heard && (silent || self.reaches_others(primary, **missed, fleet))
        });
        let gone: Vec<ServerId> = gone.map(|(server, _)| *server).collect();
        for server in &gone {
            self.remove_copy(shard, *server, "is gone");
        }
        !gone.is_empty()
    }

    /// Makes the heir the primary, if it has acknowledged that it is to be.
    fn settle_heir(&mut self, shard: ShardId, fleet: &Fleet) -> bool {
        let Some(heir) = self.heir(shard) else {
            return false;
        };
        let seen = self.acknowledged.get(&(shard, heir.server));
        let Some(seen) = seen.filter(|seen| seen.generation >= heir.since) else {
            return false;
        };
        let complete = seen.complete;
        let candidates = self.holders[shard.0 as usize].candidates.iter();
        let mut others = candidates.filter(|candidate| candidate.server != heir.server);
        let patience_ms = self.spec.faults.patience_ms;
        if others.any(|other| fleet.silent_ms(other.server) < patience_ms)
            && !self.reaches_others(heir.server, heir.since, fleet)
        {
            return false;
        }
        let restores = self.restoring.contains_key(&shard);
        if restores {
            let Some(report) = self.restored.get(&shard).cloned() else {
                return false;
            };
            self.take_restored(shard, heir, report);
            if self.is_over() {
                return false;
            }
        } else if self.is_trained() && !complete {
            let text = format!(
                "server {} has lost its values of shard {shard}",
                heir.server
            );
            let event = Event::new(EventKind::CopyRemoved, text);
            self.tell(event.server(heir.server).shard(shard));
            self.drop_candidate(shard, heir.server);
            self.holders[shard.0 as usize].heir = None;
            return true;
        }
        let since = self.generation.next();
        let wanted = self.spec.faults.replication.saturating_sub(1) as usize;
        let holders = &mut self.holders[shard.0 as usize];
        holders.primary = holders.heir.take();
        let others = std::mem::take(&mut holders.candidates);
        let others = others.iter().filter(|c| c.server != heir.server);
        let others = others.filter(|candidate| is_there(fleet, candidate));
        let anew = others.map(|candidate| empty_copy(candidate.server, since));
        holders.copies = anew.take(wanted).collect();
        if !restores {
            let text = format!("server {} answers for shard {shard}", heir.server);
            let event = Event::new(EventKind::Promoted, text);
            self.tell(event.server(heir.server).shard(shard));
        }
        true
    }

    /// A shard has its values from a snapshot, and lacks what was told after that.
    fn take_restored(&mut self, shard: ShardId, heir: Primary, report: ShardReport) {
        self.tell_damaged(shard, heir.server, &report.damaged);
        let lost = self.newly_lost(shard, report.lost);
        let number = report.restored.unwrap_or_default();
        if self.ends_over(lost) {
            return self.stop(format!(
                "shard {shard} could be restored from snapshot {number} only without {lost} that were acknowledged"
            ));
        }
        self.holders[shard.0 as usize].lineage = heir.since;
        self.restoring.remove(&shard);
        self.restored.remove(&shard);
        let what = match lost.is_none() {
            true => "nothing that was acknowledged is missing".to_owned(),
            false => format!("without {lost}"),
        };
        let text = format!(
            "server {} has restored shard {shard} from snapshot {number}: {what}",
            heir.server
        );
        let event = Event::new(EventKind::Restored, text).lineage(heir.since);
        self.tell(event.server(heir.server).shard(shard));
        self.add_loss(shard, heir.since, report.lost);
        self.prune();
    }

    /// Snapshots that were passed over.
    pub(super) fn tell_damaged(&mut self, shard: ShardId, server: ServerId, damaged: &[String]) {
        for damaged in damaged.iter().take(DAMAGED_MAX) {
            let text = format!("a snapshot of shard {shard} is passed over: {damaged}");
            let event = Event::new(EventKind::DamagedSnapshot, text);
            self.tell(event.server(server).shard(shard));
        }
    }

    /// Chooses who is to answer for a shard: of those that have everything one that is there. A
    /// snapshot is restored only when nobody can come any more, or is waited for.
    fn choose(&mut self, shard: ShardId, fleet: &Fleet) -> bool {
        let holders = &self.holders[shard.0 as usize];
        let there = holders.candidates.iter().filter(|c| is_there(fleet, c));
        let best = there.max_by_key(|c| (fleet.until_ms(c.server), Reverse(c.server)));
        let best = best.map(|candidate| candidate.server);
        let restores = self.restoring.contains_key(&shard);
        match (holders.heir, best) {
            (Some(_), None) => false,
            (Some(_), Some(_)) if !restores => false,
            // Who was silent for too long is back before another one has taken its place.
            (_, Some(server)) => {
                self.restoring.remove(&shard);
                self.appoint(shard, server);
                let text = format!("server {server} is to answer for shard {shard}");
                let event = Event::new(EventKind::Heir, text);
                self.tell(event.server(server).shard(shard));
                true
            }
            (None, None) if self.may_start_anew(shard, fleet) => {
                let free = fleet.up().min_by_key(|id| (self.holdings(*id), *id));
                free.is_some_and(|server| self.start_anew(shard, server))
            }
            (None, None) => false,
        }
    }

    /// The primary was only out of reach, and nobody has been chosen in its place: its log goes on, and
    /// its copies need nothing anew.
    fn go_on(&mut self, shard: ShardId, fleet: &Fleet) -> bool {
        let Some(primary) = self.interrupted.get(&shard).and_then(|of| of.primary) else {
            return false;
        };
        let candidates = &self.holders[shard.0 as usize].candidates;
        let mut there = candidates.iter().filter(|c| is_there(fleet, c));
        if !there.any(|candidate| candidate.server == primary.server) {
            return false;
        }
        let before = self.interrupted.remove(&shard).expect("looked up above");
        let copies = before.copies.iter().map(|copy| copy.server);
        let missed: Vec<ServerId> = copies.filter(|id| !fleet.is_up(*id)).collect();
        self.holders[shard.0 as usize] = before;
        for server in missed {
            self.miss_copy(shard, server, false);
        }
        let server = primary.server;
        let text =
            format!("server {server} was only out of reach and answers for shard {shard} again");
        let event = Event::new(EventKind::Promoted, text);
        self.tell(event.server(server).shard(shard));
        true
    }

    fn appoint(&mut self, shard: ShardId, server: ServerId) {
        self.interrupted.remove(&shard);
        let since = self.generation.next();
        self.holders[shard.0 as usize].heir = Some(Primary { server, since });
        // What was said of a former choice does not count.
        self.acknowledged.retain(|(of, _), _| *of != shard);
        self.restored.remove(&shard);
    }

    /// Whether nobody can come any more who has the values of a shard, or is waited for.
    fn may_start_anew(&self, shard: ShardId, fleet: &Fleet) -> bool {
        let candidates = &self.holders[shard.0 as usize].candidates;
        if !self.is_trained() {
            let given_up = |c: &Candidate| fleet.presence(c.server) == Some(Presence::GivenUp);
            return candidates.iter().all(given_up);
        }
        if candidates.is_empty() {
            return true;
        }
        let patience_ms = self.spec.faults.patience_ms;
        let silent = |c: &Candidate| fleet.silent_ms(c.server) >= patience_ms;
        candidates.iter().all(silent)
    }

    /// For whom a shard waits that nobody answers for.
    pub fn waits_for(&self, shard: ShardId, fleet: &Fleet) -> Vec<String> {
        let holders = &self.holders[shard.0 as usize];
        if let Some(heir) = holders.heir {
            let server = heir.server;
            return vec![match self.restoring.get(&shard) {
                Some(_) => format!("server {server}, which restores it from a snapshot"),
                None => format!("server {server}, which is to take over"),
            }];
        }
        if holders.primary.is_some() {
            return Vec::new();
        }
        if holders.candidates.is_empty() {
            return vec!["a server that can restore it from a snapshot".into()];
        }
        let candidate = |candidate: &Candidate| {
            let Candidate {
                server,
                incarnation,
            } = candidate;
            let silent = fleet.silent_ms(*server) / 1_000;
            format!("server {server}, incarnation {incarnation} (silent for {silent} s)")
        };
        holders.candidates.iter().map(candidate).collect()
    }

    /// The values of a shard are gone: a server restores them, or they are created again where no
    /// training has happened.
    fn start_anew(&mut self, shard: ShardId, server: ServerId) -> bool {
        let former = self.restoring.get(&shard).copied();
        let restore = former.or_else(|| {
            self.snapshots.newest().map(|newest| Restore {
                shard,
                newest,
                only: false,
            })
        });
        if !self.is_trained() {
            self.appoint(shard, server);
            self.holders[shard.0 as usize].candidates.clear();
            self.create_again();
            return true;
        }
        let Some(restore) = restore else {
            self.fail(format!(
                "shard {shard} is lost: every server that had its values is gone, and there is no snapshot"
            ));
            return false;
        };
        self.appoint(shard, server);
        self.restoring.insert(shard, restore);
        true
    }

    /// What has been created is gone in part. The creator joins anew, so that what it said of the
    /// first time is not taken for the second.
    fn create_again(&mut self) {
        self.disturb_snapshots();
        if let Phase::Creating(creator, ..) = self.phase {
            let text =
                format!("group {creator} forms again: what it created is lost with a server");
            let event = Event::new(EventKind::GroupReforms, text);
            self.tell(event.group(creator));
            self.gather(creator);
        }
    }

    /// Adds copies on the server that has come; on others only when nobody is waited for, because
    /// whoever comes back would find its place taken.
    fn add_copies(&mut self, came: Option<ServerId>, fleet: &Fleet) -> bool {
        let since = self.generation.next();
        let mut changed = false;
        for shard in self.shards() {
            loop {
                let holders = &self.holders[shard.0 as usize];
                let lacks = holders.servers().count() < self.spec.faults.replication as usize;
                if holders.primary.is_none() || !lacks {
                    break;
                }
                let up = fleet.up().filter(|id| came == Some(*id) || !fleet.waits());
                let free = up.filter(|id| holders.role(*id).is_none());
                let order =
                    |id: &ServerId| (shares_host(fleet, holders, *id), self.holdings(*id), *id);
                let Some(server) = free.min_by_key(order) else {
                    break;
                };
                let holders = &mut self.holders[shard.0 as usize];
                holders.copies.push(empty_copy(server, since));
                changed = true;
                let text = format!("server {server} is to keep a copy of shard {shard}");
                let event = Event::new(EventKind::CopyAdded, text);
                self.tell(event.server(server).shard(shard));
            }
        }
        changed
    }

    /// How many shards of the run a server holds.
    fn holdings(&self, server: ServerId) -> usize {
        let roles = self.holders.iter().map(|holders| holders.role(server));
        roles.flatten().count()
    }
}
