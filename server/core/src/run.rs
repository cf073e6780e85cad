//! The coordinator's knowledge of one run: who is in it and who holds it, which life of whom may
//! push, and when.
//!
//! A group goes Gathering → Joined (its former life is fenced) → Admitting → Live → Left, and back
//! to Gathering whenever it loses a rank or gets one. Each arrow that shards must know about is a
//! new generation, and the next step is taken only when every shard's primary has acknowledged it
//! (rule 2).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tradewind_common::data::{Chunking, Ledger};
use tradewind_common::holders::{Holders, Primary};
use tradewind_common::loss::Loss;
use tradewind_common::placement::Placement;
use tradewind_common::spec::RunSpec;
use tradewind_common::{Clock, Generation, GroupId, Incarnation, Rank, RunId, ServerId, ShardId};

mod advance;
mod attach;
mod group;
mod holders;
mod membership;
mod reports;
pub(super) mod resume;
mod snapshots;

pub use self::attach::Drained;
use self::group::Member;
pub use self::group::{Beat, Beaten, Caller, Group, GroupRow, GroupState, Join, RankRow};
use self::snapshots::Snapshots;
use super::ReplyTo;
use super::answer::{Answer, Refused};
use super::event::{Event, EventKind};
use super::fleet::Fleet;
use super::order::{Capture, Order, Restore, ShardReport};
use super::output::Output;
use super::refusal::Refusal;
use super::saved::Passed;
use super::shared;
use super::view::{Acknowledge, View};

/// Who creates the initial values, or that they exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// No group has gathered yet.
    Forming,
    /// This incarnation creates; shards know it since this generation.
    Creating(GroupId, Incarnation, Generation),
    /// The run is resumed: its shards restore a snapshot.
    Restoring,
    /// Every shard is complete; no creation is accepted any more (rule 6).
    Ready,
    /// The run cannot go on, and why.
    Failed(String),
    /// The run was not to go on without what was lost, and why; it can be resumed.
    Stopped(String),
}

impl Phase {
    /// The word of the status page.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Forming => "forming",
            Self::Creating(..) => "creating",
            Self::Restoring => "restoring",
            Self::Ready => "ready",
            Self::Failed(_) => "failed",
            Self::Stopped(_) => "stopped",
        }
    }
}

/// One run. What is not written down is what callers and servers say again, and times.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    name: RunId,
    #[serde(with = "shared")]
    spec: Arc<RunSpec>,
    #[serde(with = "shared")]
    placement: Arc<Placement>,
    generation: Generation,
    phase: Phase,
    /// Whether the first clock has been released.
    formed: bool,
    /// The generation that made the run ready.
    ready_at: Option<Generation>,
    /// By shard.
    holders: Vec<Holders>,
    /// Who held a shard whose primary is missed, as far as they had everything: until an heir is chosen.
    #[serde(default)]
    interrupted: BTreeMap<ShardId, Holders>,
    /// Copies that are missed, since which generation; removed when their primary has followed it.
    #[serde(default)]
    departing: BTreeMap<ShardId, BTreeMap<ServerId, Generation>>,
    /// Shards whose heir has to restore them, or has not yet been heard to have.
    restoring: BTreeMap<ShardId, Restore>,
    /// The highest clock that any holder of a shard has ever reported.
    clock_seen: Option<Clock>,
    /// By shard and lineage: what restored values lacked of what had been acknowledged; and what the run
    /// had lost before it was resumed.
    #[serde(default)]
    losses: BTreeMap<ShardId, BTreeMap<Generation, Loss>>,
    #[serde(default)]
    lost_earlier: Loss,
    groups: BTreeMap<GroupId, Group>,
    /// Ranks of the groups that came on top of those that are configured.
    attached: Vec<u32>,
    /// Who was asked to leave.
    drained: Drained,
    /// Groups begin past this life.
    lives_before: Incarnation,
    ledger: Ledger,
    /// Where the data of `sync` begin: at this clock so many samples had been passed.
    origin: (Clock, u64),
    snapshots: Snapshots,
    #[serde(skip)]
    acknowledged: BTreeMap<(ShardId, ServerId), Acknowledge>,
    /// What heirs have said of the snapshots that they restored.
    #[serde(skip)]
    restored: BTreeMap<ShardId, ShardReport>,
    #[serde(skip)]
    since_ms: u64,
    /// When every group has had its say about data that a former coordinator leased.
    #[serde(skip)]
    settle_at_ms: Option<u64>,
    #[serde(skip)]
    pub(super) outputs: VecDeque<Output>,
    /// Whether servers must be told.
    #[serde(skip)]
    pub(super) order_due: bool,
    /// Whether something has changed that is not written down.
    #[serde(skip)]
    pub(super) dirty: bool,
    /// Data have been leased, which may be written down later.
    #[serde(skip)]
    pub(super) leased: bool,
}

/// How many leases groups have to say what data a former coordinator has leased to them.
const SETTLE_LEASES: u64 = 4;

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
        let chunking = Chunking {
            epoch_samples: spec.epoch_samples,
            chunk_samples: spec.chunk_samples,
        };
        Self {
            name,
            holders: holders::spread(fleet, spec.faults.replication),
            spec,
            placement: Arc::new(placement),
            generation: Generation(0),
            phase: Phase::Forming,
            formed: false,
            ready_at: None,
            interrupted: BTreeMap::new(),
            departing: BTreeMap::new(),
            restoring: BTreeMap::new(),
            clock_seen: None,
            losses: BTreeMap::new(),
            lost_earlier: Loss::default(),
            groups: BTreeMap::new(),
            attached: Vec::new(),
            drained: Drained::default(),
            lives_before: Incarnation(0),
            ledger: Ledger::new(chunking),
            origin: (Clock(0), 0),
            snapshots: Snapshots::new(snapshots),
            acknowledged: BTreeMap::new(),
            restored: BTreeMap::new(),
            since_ms: now_ms,
            settle_at_ms: None,
            outputs: VecDeque::new(),
            order_due: false,
            dirty: true,
            leased: false,
        }
    }

    /// Takes a run over from a former coordinator: every rank has one lease to show up, and calls
    /// that waited are made again.
    pub(super) fn recover(&mut self, snapshots: bool, now_ms: u64) {
        self.since_ms = now_ms;
        let lease_ms = self.spec.lease_ms;
        for group in self.groups.values_mut() {
            group.recover(now_ms, lease_ms);
        }
        self.ledger.take_over();
        // Groups ask for data when they step again, which may be after failovers.
        self.settle_at_ms = Some(now_ms.saturating_add(SETTLE_LEASES * lease_ms));
        self.recover_snapshots(snapshots, now_ms);
    }

    /// How far it has come in generations and lives.
    pub(super) fn passed(&self) -> Passed {
        let lives = self.groups.values().map(|group| group.incarnation);
        Passed {
            generation: self.generation,
            incarnation: lives.fold(self.lives_before, Incarnation::max),
        }
    }

    /// A run that has just been made begins past these.
    pub(super) fn begin_past(&mut self, passed: Passed) {
        self.generation = self.generation.max(passed.generation);
        self.lives_before = self.lives_before.max(passed.incarnation);
    }

    /// Its name.
    pub fn name(&self) -> &RunId {
        &self.name
    }

    /// The specification that the first joiner brought.
    pub fn spec(&self) -> &Arc<RunSpec> {
        &self.spec
    }

    /// Which shard each block belongs to.
    pub fn placement(&self) -> &Arc<Placement> {
        &self.placement
    }

    /// Who holds each shard.
    pub fn holders(&self) -> &[Holders] {
        &self.holders
    }

    /// Where the run stands.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The present generation.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The number of the newest whole snapshot.
    pub fn newest_snapshot(&self) -> Option<u64> {
        self.snapshots.newest()
    }

    /// What was acknowledged and is missing: the updates of all blocks, and the most samples of any
    /// shard, for every sample is in all of them.
    pub fn lost(&self) -> Loss {
        let of_shard =
            |losses: &BTreeMap<_, Loss>| losses.values().copied().fold(Loss::default(), Loss::plus);
        let losses = || self.losses.values().map(of_shard);
        self.lost_earlier.plus(Loss {
            updates: losses().map(|lost| lost.updates).sum(),
            samples: losses().map(|lost| lost.samples).max().unwrap_or(0),
        })
    }

    /// Samples of finished chunks that filled no batch.
    pub fn samples_unused(&self) -> u64 {
        self.ledger.unused()
    }

    /// The present view.
    pub fn view(&self) -> View {
        // Of a run that is over nobody is there any more; what it has can still be read.
        let groups = || self.groups.iter().filter(|_| !self.is_over());
        let live = groups()
            .filter(|(_, g)| matches!(g.state, GroupState::Live | GroupState::Admitting(_)));
        let joined = groups().filter(|(_, g)| matches!(g.state, GroupState::Joined(_)));
        View {
            generation: self.generation,
            live: live
                .map(|(id, g)| (*id, (g.incarnation, g.start)))
                .collect(),
            joined: joined.map(|(id, g)| (*id, g.incarnation)).collect(),
            creator: match &self.phase {
                Phase::Creating(group, life, _) => Some((*group, *life)),
                // Nobody: group 0 has no life 0.
                Phase::Failed(_) | Phase::Stopped(_) if self.ready_at.is_some() => None,
                Phase::Forming | Phase::Restoring | Phase::Failed(_) | Phase::Stopped(_) => {
                    Some((GroupId(0), Incarnation(0)))
                }
                Phase::Ready => None,
            },
            groups: self.sizes().count() as u32,
        }
    }

    /// The groups for the status page.
    pub fn rows(&self, now_ms: u64) -> Vec<GroupRow> {
        let row = |(id, group): (&GroupId, &Group)| {
            let size = self.size(*id).expect("a known group");
            group.row((*id, size), self.drained.has(*id), now_ms)
        };
        self.groups.iter().map(row).collect()
    }

    /// The run as `server` has to hold it.
    pub(super) fn order(&self, server: ServerId, fleet: &Fleet) -> Order {
        let is = |who: Option<Primary>| who.is_some_and(|who| who.server == server);
        let restore = self.restoring.values().copied();
        Order {
            server,
            run: self.name.clone(),
            spec: self.spec.clone(),
            placement: self.placement.clone(),
            holders: self.holders.clone(),
            servers: fleet.endpoints(),
            view: self.view(),
            restore: restore.filter(|r| is(self.heir(r.shard))).collect(),
            capture: self
                .captures()
                .filter(|c| is(self.primary(c.shard)))
                .collect(),
        }
    }

    /// The run cannot go on: every call is told why.
    pub(super) fn fail(&mut self, reason: String) {
        let text = format!("run {} cannot go on: {reason}", self.name);
        self.end(
            Phase::Failed(reason),
            Event::new(EventKind::RunFailed, text),
        );
    }

    /// The run does not go on without what was lost, unless a person resumes it.
    pub(super) fn stop(&mut self, reason: String) {
        let text = format!("run {} stops: {reason}", self.name);
        self.end(
            Phase::Stopped(reason),
            Event::new(EventKind::RunStopped, text),
        );
    }

    /// Whether it does not go on.
    pub(super) fn is_over(&self) -> bool {
        self.over().is_some()
    }

    /// What every call is told, if the run does not go on.
    pub(super) fn over(&self) -> Option<Refused> {
        match &self.phase {
            Phase::Failed(reason) => Some(Refused::Failed(reason.clone())),
            Phase::Stopped(reason) => Some(Refused::Stopped(reason.clone())),
            Phase::Forming | Phase::Creating(..) | Phase::Restoring | Phase::Ready => None,
        }
    }

    fn end(&mut self, phase: Phase, event: Event) {
        if self.is_over() {
            return;
        }
        self.tell(event);
        self.phase = phase;
        let refused = self.over().expect("it has just ended");
        let groups = self.groups.values_mut();
        let members = groups.flat_map(|group| group.members.values_mut());
        let waiting: Vec<ReplyTo> = members.flat_map(Member::take_waiting).collect();
        self.reply_all(waiting, Err(refused.clone()));
        self.stop_snapshots(refused);
        self.restoring.clear();
        self.holders
            .iter_mut()
            .for_each(|holders| holders.heir = None);
        self.change();
    }

    fn check_rank(&self, group: GroupId, rank: Rank) -> Result<u32, Refused> {
        if let Some(over) = self.over() {
            return Err(over);
        }
        let last = GroupId(self.sizes().count() as u32 - 1);
        let size = self
            .size(group)
            .ok_or(Refusal::UnknownGroup { group, last })?;
        if rank.0 >= size {
            return Err(Refusal::UnknownRank {
                group,
                rank,
                last: Rank(size - 1),
            }
            .into());
        }
        Ok(size)
    }

    /// A new generation of membership and holders.
    fn change(&mut self) {
        self.generation = self.generation.next();
        self.order_due = true;
        self.dirty = true;
    }

    fn tell(&mut self, mut event: Event) {
        event.run = Some(self.name.clone());
        self.outputs.push_back(Output::Event(event));
    }

    fn reply(&mut self, to: ReplyTo, answer: Result<Answer, Refused>) {
        self.outputs.push_back(Output::Reply(to, answer));
    }

    fn reply_all(
        &mut self,
        to: impl IntoIterator<Item = ReplyTo>,
        answer: Result<Answer, Refused>,
    ) {
        let replies = to.into_iter().map(|to| Output::Reply(to, answer.clone()));
        self.outputs.extend(replies);
    }

    fn shards(&self) -> impl Iterator<Item = ShardId> + use<> {
        (0..self.holders.len() as u32).map(ShardId)
    }

    fn captures(&self) -> impl Iterator<Item = Capture> + '_ {
        self.shards()
            .filter_map(|shard| self.snapshots.capture(shard))
    }
}
