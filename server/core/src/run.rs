//! The coordinator's knowledge of one run: who is in it and who holds it, which life of whom may
//! push, and when.
//!
//! A group goes Gathering → Joined (its former life is fenced) → Admitting → Live → Left, and back
//! to Gathering whenever it loses a rank or gets one. Each arrow that shards must know about is a
//! new generation, and the next step is taken only when every shard's primary has acknowledged it
//! (rule 2).
//!
//! Each part of a run owns what it decides about, in a file of its own, and appends what comes of it to
//! the `Outbox`. [`Run`] passes inputs on to the parts, and tells each what it needs to know of the
//! others.

use std::sync::Arc;

use tradewind_common::data::Chunk;
use tradewind_common::holders::Holders;
use tradewind_common::loss::Loss;
use tradewind_common::placement::Placement;
use tradewind_common::spec::RunSpec;
use tradewind_common::{Generation, GroupId, Incarnation, Rank, RunId, ServerId, ShardId};

mod admission;
mod advance;
mod bases;
mod calls;
mod capture;
mod data;
mod group;
mod holders;
mod losses;
mod member;
mod membership;
mod outbox;
mod phase;
mod place;
mod reports;
pub(super) mod resume;
mod roster;
mod rows;
mod snapshots;
mod written;

use self::admission::Admission;
use self::bases::Bases;
pub use self::calls::{Beat, Beaten, Caller, Join};
use self::data::{DataLeases, Worker};
pub use self::group::{Group, GroupState};
pub(super) use self::holders::LostServer;
use self::holders::ShardHolders;
use self::losses::Losses;
use self::membership::{LostRank, Membership};
pub(super) use self::outbox::Changes;
use self::outbox::Outbox;
pub use self::phase::Phase;
use self::phase::Progress;
use self::reports::Reports;
pub use self::roster::Drained;
use self::roster::Roster;
pub use self::rows::{GroupRow, RankRow};
use self::snapshots::Snapshots;
pub use self::written::{RunChange, WrittenRun};
use super::ReplyTo;
use super::answer::{Answer, Refused};
use super::event::{Event, EventKind, LEASE_RAN_OUT};
use super::fleet::Fleet;
use super::order::{Capture, Order};
use super::saved::Passed;
use super::view::{OrderedView, View, ViewChange};

/// What a run is: it never changes.
#[derive(Clone, Debug)]
struct Identity {
    name: RunId,
    spec: Arc<RunSpec>,
    placement: Arc<Placement>,
}

/// One run. What is not written down is what callers and servers say again, and times.
#[derive(Debug)]
pub struct Run {
    identity: Identity,
    progress: Progress,
    roster: Roster,
    membership: Membership,
    admission: Admission,
    data: DataLeases,
    holders: ShardHolders,
    reports: Reports,
    bases: Bases,
    losses: Losses,
    snapshots: Snapshots,
    out: Outbox,
    /// It is, as far as it has not changed since.
    is_written: bool,
}

impl Run {
    /// A run that nobody has joined, placed on the fleet's servers, all of which are up.
    pub(super) fn new(
        name: RunId,
        spec: Arc<RunSpec>,
        placement: Placement,
        fleet: &Fleet,
        snapshots: bool,
        now_ms: u64,
    ) -> Self {
        let mut out = Outbox::new(name.clone(), Generation(0));
        out.touch();
        Self {
            progress: Progress::new(Phase::Forming, None),
            roster: Roster::new(spec.clone(), Vec::new(), Drained::default()),
            membership: Membership::default(),
            admission: Admission::since(false, now_ms),
            data: DataLeases::new(&spec),
            holders: ShardHolders::first(fleet, spec.faults.replication),
            reports: Reports::default(),
            bases: Bases::since(Generation(0)),
            losses: Losses::default(),
            snapshots: Snapshots::new(snapshots),
            out,
            is_written: false,
            identity: Identity {
                name,
                spec,
                placement: Arc::new(placement),
            },
        }
    }

    /// How far it has come in generations and lives.
    pub(super) fn passed(&self) -> Passed {
        Passed {
            generation: self.generation(),
            incarnation: self.membership.last_incarnation(),
        }
    }

    /// A run that has just been made begins past these.
    pub(super) fn begin_past(&mut self, passed: Passed) {
        self.out.begin_past(passed.generation);
        self.bases = Bases::since(self.out.generation());
        self.membership.begin_past(passed.incarnation);
    }

    /// Its name.
    pub fn name(&self) -> &RunId {
        &self.identity.name
    }

    /// The specification that the first joiner brought.
    pub fn spec(&self) -> &Arc<RunSpec> {
        &self.identity.spec
    }

    /// Which shard each block belongs to.
    pub fn placement(&self) -> &Arc<Placement> {
        &self.identity.placement
    }

    /// Who holds each shard, in shard order.
    pub fn holders(&self) -> impl ExactSizeIterator<Item = &Holders> {
        self.holders.iter()
    }

    /// For whom a shard waits that nobody answers for.
    pub fn waits_for(&self, shard: ShardId, fleet: &Fleet) -> Vec<String> {
        self.holders.waits_for(shard, fleet)
    }

    /// Where the run stands.
    pub fn phase(&self) -> &Phase {
        self.progress.phase()
    }

    /// The present generation.
    pub fn generation(&self) -> Generation {
        self.out.generation()
    }

    /// The number of the newest whole snapshot.
    pub fn newest_snapshot(&self) -> Option<u64> {
        self.snapshots.newest()
    }

    /// What was acknowledged and is missing: the updates of all blocks, and the most samples of any
    /// shard, for every sample is in all of them.
    pub fn lost(&self) -> Loss {
        self.losses.total()
    }

    /// Samples of finished chunks that filled no batch.
    pub fn samples_unused(&self) -> u64 {
        self.data.ledger().unused()
    }

    /// Ranks of each group there may be: of those that are configured, then of those that came on top.
    pub fn sizes(&self) -> impl Iterator<Item = u32> + '_ {
        self.roster.sizes()
    }

    /// Whether all groups were asked to leave.
    pub fn is_draining(&self) -> bool {
        self.roster.is_draining()
    }

    /// The groups for the status page.
    pub fn rows(&self, now_ms: u64) -> Vec<GroupRow> {
        self.membership.rows(&self.roster, now_ms)
    }

    /// Whether nobody trains, and no snapshot is wanted or under way.
    pub(super) fn is_idle(&self) -> bool {
        !self.membership.is_there() && self.snapshots.is_idle()
    }

    /// Whether something about holders waits for a word of a server, or for time to pass.
    pub(super) fn is_unsettled(&self) -> bool {
        self.holders.are_unsettled()
    }

    /// The first field in which the specification of a joiner differs.
    pub(super) fn difference(&self, other: &RunSpec) -> Option<String> {
        self.roster.difference(other)
    }

    /// The present view.
    pub fn view(&self) -> View {
        // Of a run that is over nobody is there any more; what it has can still be read.
        let (live, joined) = match self.progress.is_over() {
            true => Default::default(),
            false => (self.membership.live(), self.membership.joined()),
        };
        View {
            generation: self.generation(),
            live,
            joined,
            creator: self.progress.may_create(),
            groups: self.roster.count() as u32,
        }
    }

    /// What of the present view a server is told: what has changed since a view that it has followed, or all.
    fn view_for(&mut self, server: ServerId) -> OrderedView {
        let generation = self.generation();
        self.membership.groups_mut().note_changes(generation);
        // In a run that is over nobody is there.
        let base = self.bases.of(server).filter(|_| !self.progress.is_over());
        let Some(base) = base else {
            return OrderedView::Whole(self.view());
        };
        OrderedView::Since(ViewChange {
            base,
            generation,
            changed: self.membership.changed_since(base),
            creator: self.progress.may_create(),
            groups: self.roster.count() as u32,
        })
    }

    /// A server says which generation of the view it has followed, or that it has none from which it could go on.
    /// Whether it has to be told all.
    pub(super) fn followed(&mut self, server: ServerId, generation: Option<Generation>) -> bool {
        match generation {
            Some(generation) => self.bases.follows(server, generation),
            None => self.bases.forget(server),
        }
        generation.is_none()
    }

    /// What a server has followed is not known any more: it begins anew, or may have.
    pub(super) fn forget_base(&mut self, server: ServerId) {
        self.bases.forget(server);
    }

    /// The run as `server` has to hold it.
    pub(super) fn order(&mut self, server: ServerId, fleet: &Fleet) -> Order {
        let view = self.view_for(server);
        let captures = self
            .holders
            .ids()
            .filter_map(|shard| self.snapshots.capture(shard));
        let own = |capture: &Capture| self.holders.of(capture.shard).is_primary(server);
        Order {
            server,
            run: self.name().clone(),
            spec: self.spec().clone(),
            placement: self.placement().clone(),
            holders: self.holders.iter().cloned().collect(),
            servers: fleet.endpoints(),
            view,
            restore: self.holders.to_restore(server).collect(),
            capture: captures.filter(own).collect(),
        }
    }

    /// How many groups were looked at so far.
    pub(super) fn groups_looked_at(&self) -> u64 {
        self.membership.groups().looked_at()
    }

    /// Whether servers must be told something; from now on they are.
    pub(super) fn take_order_due(&mut self) -> bool {
        self.out.take_order_due()
    }

    /// What has come up since this was last asked.
    pub(super) fn take_changes(&mut self) -> Changes {
        self.out.take_changes()
    }

    /// A rank joins; answered when its group is together and its former life fenced.
    pub(super) fn join(&mut self, join: Join, to: ReplyTo, now_ms: u64) {
        if let Err(refused) = self.try_join(join, to, now_ms) {
            self.out.reply(to, Err(refused));
        }
        self.advance(now_ms);
    }

    fn try_join(&mut self, join: Join, to: ReplyTo, now_ms: u64) -> Result<(), Refused> {
        let group = join.group;
        self.progress.may_go_on()?;
        self.roster.check(group, join.rank)?;
        if self.membership.asks_again(&join, to, &mut self.out) {
            return Ok(());
        }
        if self.roster.is_drained(group) {
            return Err(Refused::Drained(group));
        }
        if self.membership.breaks(&join, &mut self.out) {
            self.gather(group);
        }
        let spec = &self.identity.spec;
        self.membership
            .enter(join, to, (spec, now_ms), &mut self.out);
        Ok(())
    }

    /// A rank asks to push; answered when it may, or when it shall create.
    pub(super) fn await_ready(&mut self, caller: Caller, created: bool, to: ReplyTo, now_ms: u64) {
        // Who was not told to create has created nothing: it may have to, later.
        let creator = self.progress.creator();
        let creates =
            creator.is_some_and(|c| (c.group, c.incarnation) == (caller.group, caller.incarnation));
        match self.check_caller(caller) {
            Ok(_) => {
                let out = &mut self.out;
                let has_created = created && creates;
                let waits = self
                    .membership
                    .await_ready(caller, has_created, to, now_ms, out);
                waits.expect("it was checked");
                if created {
                    self.out.touch();
                }
            }
            Err(refused) => self.out.reply(to, Err(refused)),
        }
        self.advance(now_ms);
    }

    /// Renews a rank's lease.
    pub(super) fn heartbeat(
        &mut self,
        caller: Caller,
        beat: Beat,
        now_ms: u64,
    ) -> Result<Beaten, Refused> {
        // A rank whose sibling has left first is not lost: the group is done.
        if !self.membership.has_left(caller) {
            self.check_caller(caller)?;
            self.membership.beat(caller, beat, now_ms);
        }
        Ok(Beaten {
            generation: self.generation(),
            steps_per_second_max: self.membership.fastest_beside(caller.group),
            leave: self.roster.is_drained(caller.group),
        })
    }

    /// Whether a rank's life of its group is still the one; nothing is renewed.
    pub(super) fn check(&self, caller: Caller) -> Result<Generation, Refused> {
        if !self.membership.has_left(caller) {
            self.check_caller(caller)?;
        }
        Ok(self.generation())
    }

    /// Its process, if it may call.
    fn check_caller(&self, caller: Caller) -> Result<u64, Refused> {
        self.progress.may_go_on()?;
        self.roster.check(caller.group, caller.rank)?;
        Ok(self.membership.check(caller)?)
    }

    /// The connection that held a rank's lease has broken.
    pub(super) fn rank_lost(&mut self, caller: Caller, now_ms: u64) {
        let Ok(life) = self.check_caller(caller) else {
            return;
        };
        let Caller { group, rank, .. } = caller;
        let lost = LostRank { group, rank, life };
        lost.tell("its heartbeat connection broke", &mut self.out);
        self.gather(group);
        self.advance(now_ms);
    }

    /// The coordinator itself was held up for so long.
    pub(super) fn forgive(&mut self, gap_ms: u64) {
        self.membership.forgive(gap_ms);
    }

    /// Leases a chunk of training data to a group; any of its ranks may ask for it.
    pub(super) fn lease_chunk(
        &mut self,
        owner: (GroupId, Incarnation),
        finished: &[u64],
        holds: &[u64],
    ) -> Result<Chunk, Refused> {
        self.progress.may_go_on()?;
        self.roster.check(owner.0, Rank(0))?;
        let worker = self.identity.worker(owner, &self.membership)?;
        self.data.lease(worker, finished, holds, &mut self.out)
    }

    /// A rank of a group that is done; the first one takes the group out of the view.
    pub(super) fn leave(
        &mut self,
        caller: Caller,
        finished: &[u64],
        now_ms: u64,
    ) -> Result<(), Refused> {
        if !self.membership.has_left(caller) {
            self.check_caller(caller)?;
            let owner = (caller.group, caller.incarnation);
            let worker = self.identity.worker(owner, &self.membership)?;
            self.data.finish(worker, finished, &mut self.out);
            self.take_out(caller.group);
            self.is_done(caller.group);
            self.advance(now_ms);
        }
        Ok(())
    }

    /// Adds groups of so many ranks each; answered with the number of the first.
    pub(super) fn attach(&mut self, sizes: &[u32], to: ReplyTo) {
        let added = match self.progress.may_go_on() {
            Ok(()) => self.roster.attach(sizes, &mut self.out),
            Err(over) => Err(over),
        };
        self.out.reply(to, added.map(Answer::Attached));
    }

    /// Asks groups to leave, or where none is named all of them and whoever comes later.
    pub(super) fn drain(&mut self, groups: &[GroupId], to: ReplyTo, now_ms: u64) {
        let asked = self.try_drain(groups);
        self.out.reply(to, asked.map(|()| Answer::Draining));
        self.advance(now_ms);
    }

    fn try_drain(&mut self, groups: &[GroupId]) -> Result<(), Refused> {
        self.progress.may_go_on()?;
        if self.roster.drain(groups, &mut self.out)? {
            for id in self.membership.drained_early(&self.roster) {
                self.membership.dismiss(id, &mut self.out);
                self.is_done(id);
            }
        }
        Ok(())
    }

    /// Groups do not come back, whether the run can go on or not; with a rank where it is that one for whose sake.
    ///
    /// # Errors
    /// If there is one that is not there; then nothing is changed.
    pub(super) fn shut_out(
        &mut self,
        groups: &[(GroupId, Option<Rank>)],
        now_ms: u64,
    ) -> Result<(), Refused> {
        for (group, rank) in groups {
            self.roster.check(*group, rank.unwrap_or_default())?;
        }
        let groups: Vec<_> = groups.iter().map(|(group, _)| *group).collect();
        // Of a run that is over nobody is left to be asked.
        let _ = self.try_drain(&groups);
        self.advance(now_ms);
        Ok(())
    }

    /// Takes a group out of the view until its ranks have joined anew.
    fn gather(&mut self, id: GroupId) {
        self.take_out(id);
        self.membership.gather(id);
        if self.roster.is_drained(id) {
            // Ranks that are left of this life may wait for one that is lost: it is over for them.
            self.membership.end_life(id);
            self.is_done(id);
        }
    }

    fn take_out(&mut self, id: GroupId) {
        self.membership.take_out(id, &mut self.out);
        self.out.is_over(id);
        self.data.give_back(id);
        self.progress.is_out(id);
        self.out.change();
    }

    /// A group that is out of the view does not come back.
    fn is_done(&mut self, id: GroupId) {
        let asked = self.roster.is_drained(id);
        self.membership.leave(id, asked, &mut self.out);
        if self.progress.is_ready() && !self.membership.is_there() {
            self.snapshots.want_last(&mut self.out);
        }
    }

    /// Finds ranks whose leases have run out.
    fn expire(&mut self, now_ms: u64) {
        let expired = self.membership.expired(now_ms);
        for lost in &expired {
            lost.tell(LEASE_RAN_OUT, &mut self.out);
        }
        let mut broken: Vec<GroupId> = expired.into_iter().map(|lost| lost.group).collect();
        broken.dedup();
        for group in broken {
            self.gather(group);
        }
    }

    /// Time has passed: leases run out, graces end, snapshots are due.
    pub(super) fn tick(&mut self, now_ms: u64) {
        self.expire(now_ms);
        self.data.tick(now_ms, &mut self.out);
        self.advance(now_ms);
    }

    /// As after leases in which no group has said that it holds data which were forgotten.
    #[cfg(test)]
    pub(super) fn settle(&mut self) {
        self.data.settle(&mut self.out);
    }

    /// The run cannot go on: every call is told why.
    fn fail(&mut self, reason: String) {
        let text = format!("run {} cannot go on: {reason}", self.name());
        let event = Event::new(EventKind::RunFailed, text);
        self.end(Phase::Failed(reason), event);
    }

    /// The run does not go on without what was lost, unless a person resumes it.
    fn stop(&mut self, reason: String) {
        let text = format!("run {} stops: {reason}", self.name());
        let event = Event::new(EventKind::RunStopped, text);
        self.end(Phase::Stopped(reason), event);
    }

    fn end(&mut self, phase: Phase, event: Event) {
        if self.progress.is_over() {
            return;
        }
        self.out.tell(event);
        self.progress.end(phase);
        let refused = self.progress.over().expect("it has just ended");
        self.membership.refuse_all(&refused, &mut self.out);
        self.snapshots.stop(refused, &mut self.out);
        self.holders.end();
        self.out.change();
    }
}

impl Identity {
    /// A life of a group that works on data of the run, if it holds leases.
    fn worker(
        &self,
        owner: (GroupId, Incarnation),
        membership: &Membership,
    ) -> Result<Worker<'_>, Refused> {
        Ok(Worker {
            owner,
            ranks: membership.ranks(owner.0, owner.1)? as u64,
            spec: &self.spec,
        })
    }
}
