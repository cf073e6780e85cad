//! Who holds one shard, and who takes over when a server is gone (rule 4).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tradewind_common::holders::{Candidate, CopyHolder, Holders, Primary, Role};
use tradewind_common::{Generation, Incarnation, ServerId, ShardId};

use crate::event::{Event, EventKind};
use crate::fleet::{Fleet, Presence};
use crate::order::{Restore, ShardReport};
use crate::run::outbox::Outbox;
use crate::run::reports::Reports;

/// Most problems of one report that are told.
const DAMAGED_MAX: usize = 8;

/// A life of a server that is gone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostServer {
    /// Which.
    pub(crate) server: ServerId,
    /// Which life of it.
    pub(crate) incarnation: Incarnation,
    /// Whether it is known to be dead, and not only out of reach.
    pub(crate) dead: bool,
}

/// What a shard misses when a server is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missed {
    /// Nobody that matters.
    Nobody,
    /// Who answers for it.
    Primary,
    /// Somebody else.
    Other,
}

/// What comes of looking for somebody who is to answer for a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::run) enum Choice {
    /// Nobody is chosen, now.
    None,
    /// Somebody who has everything is chosen.
    Heir,
    /// Nobody can come any more who has its values, or is waited for.
    StartAnew,
}

/// An heir that has acknowledged that it is to answer for a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::run) struct Ready {
    /// Who, since when.
    pub(in crate::run) heir: Primary,
    /// Whether it has every value.
    pub(in crate::run) complete: bool,
}

/// The holders of one shard.
#[derive(Clone, Debug)]
pub(in crate::run) struct Holding {
    shard: ShardId,
    holders: Holders,
    /// Who held it when its primary was missed, as far as they had everything: until an heir is chosen.
    interrupted: Option<Holders>,
    /// Copies that are missed, since which generation; removed when their primary has followed it.
    departing: BTreeMap<ServerId, Generation>,
    /// Its heir has to restore it, or has not yet been heard to have.
    restore: Option<Restore>,
    /// What its heir has said of the snapshot that it restored.
    restored: Option<ShardReport>,
}

pub(super) fn empty_copy(server: ServerId, since: Generation) -> CopyHolder {
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

impl Holding {
    /// The first holders of a shard: shard i lies on server i, its copies on the next ones, on other
    /// hosts where there are some.
    pub(super) fn first(shard: ShardId, fleet: &Fleet, replication: u32) -> Self {
        let servers = fleet.expected();
        let mut holders = Holders::alone(ServerId(shard.0));
        while holders.copies.len() + 1 < replication as usize {
            let mut others = (1..servers).map(|next| ServerId((shard.0 + next) % servers));
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
        Self::of(shard, holders)
    }

    /// A shard that is held so, of which nothing is waited for.
    pub(super) fn of(shard: ShardId, holders: Holders) -> Self {
        Self {
            shard,
            holders,
            interrupted: None,
            departing: BTreeMap::new(),
            restore: None,
            restored: None,
        }
    }

    /// The same, as far as the rest was written down.
    pub(super) fn with_written(
        mut self,
        interrupted: Option<Holders>,
        departing: BTreeMap<ServerId, Generation>,
        restore: Option<Restore>,
    ) -> Self {
        self.interrupted = interrupted;
        self.departing = departing;
        self.restore = restore;
        self
    }

    /// Its first holder alone restores it from this snapshot, and is its heir in generation `since`.
    pub(super) fn resume(&mut self, number: u64, since: Generation) {
        let heir = self.holders.primary.take();
        self.holders.heir = heir.map(|heir| Primary { since, ..heir });
        self.holders.copies.clear();
        self.restore = Some(Restore {
            shard: self.shard,
            newest: number,
            only: true,
        });
    }

    pub(in crate::run) fn holders(&self) -> &Holders {
        &self.holders
    }

    pub(super) fn interrupted(&self) -> Option<&Holders> {
        self.interrupted.as_ref()
    }

    pub(super) fn departing(&self) -> &BTreeMap<ServerId, Generation> {
        &self.departing
    }

    /// What its heir has to restore.
    pub(in crate::run) fn restore(&self) -> Option<Restore> {
        self.restore
    }

    /// Who answers for it.
    pub(in crate::run) fn primary(&self) -> Option<Primary> {
        self.holders.primary
    }

    /// Whether a server answers for it.
    pub(in crate::run) fn is_primary(&self, server: ServerId) -> bool {
        let primary = self.primary();
        primary.is_some_and(|primary| primary.server == server)
    }

    /// Whether a server is to answer for it.
    pub(super) fn is_heir(&self, server: ServerId) -> bool {
        let heir = self.holders.heir;
        heir.is_some_and(|heir| heir.server == server)
    }

    /// What a server is to it.
    pub(in crate::run) fn role(&self, server: ServerId) -> Option<Role> {
        self.holders.role(server)
    }

    /// Whether it has fewer holders than it shall have.
    pub(in crate::run) fn lacks_holders(&self, replication: u32) -> bool {
        self.holders.servers().count() < replication as usize
    }

    /// Whether something about its holders waits for a word of a server, or for time to pass.
    pub(super) fn is_unsettled(&self) -> bool {
        self.primary().is_none() || !self.departing.is_empty()
    }

    /// Whether every holder has every value.
    pub(super) fn is_complete(&self, reports: &Reports) -> bool {
        let mut servers = self.holders.servers();
        self.primary().is_some() && servers.all(|server| reports.is_complete(self.shard, server))
    }

    /// Whether its primary has every value, from a snapshot if need be.
    pub(super) fn is_restored(&self, reports: &Reports) -> bool {
        let followed = reports.followed(self.shard, self.primary());
        self.restore.is_none() && followed.is_some_and(|seen| seen.complete)
    }

    /// The generation that its primary follows.
    pub(super) fn followed(&self, reports: &Reports) -> Option<Generation> {
        let seen = reports.followed(self.shard, self.primary());
        seen.map(|seen| seen.generation)
    }

    /// A life of a server is gone. What follows from that is for later steps.
    pub(super) fn lose(&mut self, lost: LostServer, fleet: &Fleet, out: &mut Outbox) -> Missed {
        let server = lost.server;
        match self.holders.role(server) {
            Some(Role::Primary(_)) => {
                self.depose(lost, fleet);
                self.tell_orphaned(server, fleet, out);
                Missed::Primary
            }
            Some(Role::Copy(_)) => {
                self.miss_copy(server, lost.dead, out);
                Missed::Other
            }
            Some(Role::Heir(_)) => {
                self.holders.heir = None;
                self.restored = None;
                if lost.dead {
                    self.drop_candidate(server);
                }
                self.tell_orphaned(server, fleet, out);
                Missed::Other
            }
            Some(Role::Candidate) if lost.dead => {
                self.drop_candidate(server);
                Missed::Other
            }
            Some(Role::Candidate) | None => Missed::Nobody,
        }
    }

    /// Nobody that is there can take over.
    fn tell_orphaned(&self, last: ServerId, fleet: &Fleet, out: &mut Outbox) {
        let (shard, candidates) = (self.shard, &self.holders.candidates);
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
        out.tell(event.server(last).shard(shard));
    }

    /// A primary is missed: it and its full copies are candidates.
    fn depose(&mut self, lost: LostServer, fleet: &Fleet) {
        self.departing.clear();
        let holders = &mut self.holders;
        let previous = Candidate {
            server: lost.server,
            incarnation: lost.incarnation,
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
        holders.candidates = (!lost.dead)
            .then_some(previous)
            .into_iter()
            .chain(copies)
            .collect();
        holders.primary = None;
        holders.copies.clear();
        if !lost.dead {
            self.interrupted = Some(before);
        }
    }

    fn drop_candidate(&mut self, server: ServerId) {
        let candidates = &mut self.holders.candidates;
        candidates.retain(|candidate| candidate.server != server);
        if let Some(before) = &mut self.interrupted {
            before.copies.retain(|copy| copy.server != server);
        }
        let primary = |before: &mut Holders| before.primary.map(|primary| primary.server);
        self.interrupted
            .take_if(|before| primary(before) == Some(server));
    }

    /// A copy is missed. One that may have to take over is removed when the primary has been heard
    /// since; otherwise both may be out of reach of the coordinator alone.
    fn miss_copy(&mut self, server: ServerId, dead: bool, out: &mut Outbox) {
        let mut copies = self.holders.copies.iter();
        let full = copies.any(|copy| copy.server == server && copy.full);
        if dead || !full {
            self.remove_copy(server, "is gone", out);
        } else {
            self.departing.insert(server, out.next_generation());
        }
    }

    fn remove_copy(&mut self, server: ServerId, why: &str, out: &mut Outbox) {
        let shard = self.shard;
        self.holders.copies.retain(|copy| copy.server != server);
        self.stay(server);
        let text = format!("server {server} {why} and keeps no copy of shard {shard} any more");
        let event = Event::new(EventKind::CopyRemoved, text);
        out.tell(event.server(server).shard(shard));
    }

    /// A copy that was missed is there.
    pub(in crate::run) fn stay(&mut self, server: ServerId) {
        self.departing.remove(&server);
    }

    /// Removes copies whose primary confirms nothing of them, though something waits for it and they are
    /// there: one that is not heard either is missed, or will be. Whether there are any.
    pub(in crate::run) fn remove_stalled(
        &mut self,
        stalled: &[(ServerId, Generation)],
        fleet: &Fleet,
        now_ms: u64,
        out: &mut Outbox,
    ) -> bool {
        let known = |copy: &&CopyHolder| stalled.contains(&(copy.server, copy.since));
        let copies = self.holders.copies.iter().filter(known);
        let stalled = copies.map(|copy| copy.server);
        let stalled = stalled.filter(|server| fleet.was_heard_lately(*server, now_ms));
        let stalled: Vec<ServerId> = stalled.collect();
        for server in &stalled {
            self.remove_copy(*server, "has confirmed nothing for a lease", out);
        }
        !stalled.is_empty()
    }

    /// Removes the copies that were missed before their primary was heard last. Whether there are any.
    pub(in crate::run) fn remove_departed(
        &mut self,
        reports: &Reports,
        fleet: &Fleet,
        patience_ms: u64,
        out: &mut Outbox,
    ) -> bool {
        let (Some(primary), Some(heard)) = (self.primary(), self.followed(reports)) else {
            return false;
        };
        let gone = self.departing.iter().filter(|(server, missed)| {
            let silent = fleet.silent_ms(**server) >= patience_ms;
            **missed <= heard && (silent || reports.reaches_others(primary.server, **missed, fleet))
        });
        let gone: Vec<ServerId> = gone.map(|(server, _)| *server).collect();
        for server in &gone {
            self.remove_copy(*server, "is gone", out);
        }
        !gone.is_empty()
    }

    /// Its primary says which copies have everything. Those of which that is new.
    pub(in crate::run) fn copies_are_full(
        &mut self,
        full: &[(ServerId, Generation)],
    ) -> Vec<ServerId> {
        let mut filled = Vec::new();
        for copy in &mut self.holders.copies {
            if !copy.full && full.contains(&(copy.server, copy.since)) {
                copy.full = true;
                filled.push(copy.server);
            }
        }
        filled
    }

    /// The heir, if it has acknowledged that it is to be one, and nobody else may be primary without the
    /// coordinator's knowing.
    pub(in crate::run) fn heir_that_follows(
        &self,
        reports: &Reports,
        fleet: &Fleet,
        patience_ms: u64,
    ) -> Option<Ready> {
        let heir = self.holders.heir?;
        let seen = reports.of(self.shard, heir.server)?;
        if seen.generation < heir.since {
            return None;
        }
        let candidates = self.holders.candidates.iter();
        let mut others = candidates.filter(|candidate| candidate.server != heir.server);
        if others.any(|other| fleet.silent_ms(other.server) < patience_ms)
            && !reports.reaches_others(heir.server, heir.since, fleet)
        {
            return None;
        }
        Some(Ready {
            heir,
            complete: seen.complete,
        })
    }

    /// What its heir has said of the snapshot that it restored.
    pub(in crate::run) fn restored(&self) -> Option<&ShardReport> {
        self.restored.as_ref()
    }

    /// Its heir has restored it.
    pub(in crate::run) fn heir_has_restored(&mut self, report: ShardReport) {
        self.restored = Some(report);
    }

    /// What its heir has restored begins a lineage.
    pub(in crate::run) fn begin_lineage(&mut self, lineage: Generation) {
        self.holders.lineage = lineage;
        self.restore = None;
        self.restored = None;
    }

    /// Its heir, which was to have everything, has not.
    pub(in crate::run) fn heir_has_lost(&mut self, server: ServerId, out: &mut Outbox) {
        let shard = self.shard;
        let text = format!("server {server} has lost its values of shard {shard}");
        let event = Event::new(EventKind::CopyRemoved, text);
        out.tell(event.server(server).shard(shard));
        self.drop_candidate(server);
        self.holders.heir = None;
    }

    /// Makes the heir the primary; the other candidates are filled anew as its copies.
    pub(in crate::run) fn promote(
        &mut self,
        heir: Primary,
        replication: u32,
        fleet: &Fleet,
        out: &Outbox,
    ) {
        let since = out.next_generation();
        let wanted = replication.saturating_sub(1) as usize;
        self.holders.primary = Some(heir);
        self.holders.heir = None;
        let others = std::mem::take(&mut self.holders.candidates);
        let others = others.iter().filter(|c| c.server != heir.server);
        let others = others.filter(|candidate| is_there(fleet, candidate));
        let anew = others.map(|candidate| empty_copy(candidate.server, since));
        self.holders.copies = anew.take(wanted).collect();
    }

    /// Chooses who is to answer for it: of those that have everything one that is there. A snapshot is
    /// restored only when nobody can come any more, or is waited for.
    pub(in crate::run) fn choose(
        &mut self,
        trained: bool,
        fleet: &Fleet,
        patience_ms: u64,
        out: &mut Outbox,
    ) -> Choice {
        let there = self.holders.candidates.iter();
        let there = there.filter(|candidate| is_there(fleet, candidate));
        let best = there.max_by_key(|c| (fleet.until_ms(c.server), Reverse(c.server)));
        let best = best.map(|candidate| candidate.server);
        let restores = self.restore.is_some();
        match (self.holders.heir, best) {
            (Some(_), None) => Choice::None,
            (Some(_), Some(_)) if !restores => Choice::None,
            // Who was silent for too long is back before another one has taken its place.
            (Some(_) | None, Some(server)) => {
                self.restore = None;
                self.appoint(server, out);
                let shard = self.shard;
                let text = format!("server {server} is to answer for shard {shard}");
                let event = Event::new(EventKind::Heir, text);
                out.tell(event.server(server).shard(shard));
                Choice::Heir
            }
            (None, None) if self.may_start_anew(trained, fleet, patience_ms) => Choice::StartAnew,
            (None, None) => Choice::None,
        }
    }

    /// The primary was only out of reach, and nobody has been chosen in its place: its log goes on, and
    /// its copies need nothing anew. Whether that is so.
    pub(in crate::run) fn go_on(&mut self, fleet: &Fleet, out: &mut Outbox) -> bool {
        let shard = self.shard;
        let Some(primary) = self.interrupted.as_ref().and_then(|of| of.primary) else {
            return false;
        };
        let candidates = self.holders.candidates.iter();
        let mut there = candidates.filter(|candidate| is_there(fleet, candidate));
        if !there.any(|candidate| candidate.server == primary.server) {
            return false;
        }
        let before = self.interrupted.take().expect("looked up above");
        let copies = before.copies.iter().map(|copy| copy.server);
        let missed: Vec<ServerId> = copies.filter(|id| !fleet.is_up(*id)).collect();
        self.holders = before;
        for server in missed {
            self.miss_copy(server, false, out);
        }
        let server = primary.server;
        let text =
            format!("server {server} was only out of reach and answers for shard {shard} again");
        let event = Event::new(EventKind::Promoted, text);
        out.tell(event.server(server).shard(shard));
        true
    }

    fn appoint(&mut self, server: ServerId, out: &Outbox) {
        self.interrupted = None;
        let since = out.next_generation();
        self.holders.heir = Some(Primary { server, since });
        // What was said of a former choice does not count.
        self.restored = None;
    }

    /// Its values, which have not been trained, are gone: they are created again at this server.
    pub(in crate::run) fn appoint_empty(&mut self, server: ServerId, out: &Outbox) {
        self.appoint(server, out);
        self.holders.candidates.clear();
    }

    /// Its values are gone: this server restores them.
    pub(in crate::run) fn appoint_to_restore(
        &mut self,
        server: ServerId,
        restore: Restore,
        out: &Outbox,
    ) {
        self.appoint(server, out);
        self.restore = Some(restore);
    }

    /// Whether nobody can come any more who has its values, or is waited for.
    fn may_start_anew(&self, trained: bool, fleet: &Fleet, patience_ms: u64) -> bool {
        let candidates = &self.holders.candidates;
        if !trained {
            let given_up = |c: &Candidate| fleet.presence(c.server) == Some(Presence::GivenUp);
            return candidates.iter().all(given_up);
        }
        let silent = |c: &Candidate| fleet.silent_ms(c.server) >= patience_ms;
        candidates.iter().all(silent)
    }

    /// The server that a further copy is to be put on, if one is lacking: of those that are up and
    /// `allowed` one on another host, and that holds least.
    pub(super) fn place_for_copy(
        &self,
        replication: u32,
        fleet: &Fleet,
        allowed: impl Fn(ServerId) -> bool,
        held: impl Fn(ServerId) -> usize,
    ) -> Option<ServerId> {
        if self.primary().is_none() || !self.lacks_holders(replication) {
            return None;
        }
        let holders = &self.holders;
        let up = fleet.up().filter(|id| allowed(*id));
        let free = up.filter(|id| holders.role(*id).is_none());
        free.min_by_key(|id| (shares_host(fleet, holders, *id), held(*id), *id))
    }

    /// A server is to keep a copy.
    pub(super) fn add_copy(&mut self, server: ServerId, out: &mut Outbox) {
        let shard = self.shard;
        let copy = empty_copy(server, out.next_generation());
        self.holders.copies.push(copy);
        let text = format!("server {server} is to keep a copy of shard {shard}");
        let event = Event::new(EventKind::CopyAdded, text);
        out.tell(event.server(server).shard(shard));
    }

    /// The run does not go on: nobody is to take over any more.
    pub(super) fn end(&mut self) {
        self.restore = None;
        self.holders.heir = None;
    }

    /// Snapshots that were passed over.
    pub(in crate::run) fn tell_damaged(
        &self,
        server: ServerId,
        damaged: &[String],
        out: &mut Outbox,
    ) {
        let shard = self.shard;
        for damaged in damaged.iter().take(DAMAGED_MAX) {
            let text = format!("a snapshot of shard {shard} is passed over: {damaged}");
            let event = Event::new(EventKind::DamagedSnapshot, text);
            out.tell(event.server(server).shard(shard));
        }
    }

    /// For whom it waits while nobody answers for it.
    pub(super) fn waits_for(&self, fleet: &Fleet) -> Vec<String> {
        let holders = &self.holders;
        if let Some(heir) = holders.heir {
            let server = heir.server;
            return vec![match self.restore {
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
}
