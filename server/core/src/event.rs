//! What happened to the fleet and its runs, in words: for the status page and the run's folder.

use serde::Serialize;
use tradewind_common::loss::Loss;
use tradewind_common::{Generation, GroupId, Rank, RunId, ServerId, ShardId};

/// Events that are kept for the status page.
pub const EVENTS_MAX: usize = 64;

/// How it is told of a server or a rank that it was silent, not cut off; programs look for it.
pub const LEASE_RAN_OUT: &str = "its lease ran out";

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A server registered.
    ServerUp,
    /// A server is gone.
    ServerLost,
    /// A server is to answer for a shard.
    Heir,
    /// Another server answers for a shard, or the same one again.
    Promoted,
    /// A server shall keep a copy of a shard.
    CopyAdded,
    /// A copy has everything.
    CopyFull,
    /// A server's copy of a shard counts no more.
    CopyRemoved,
    /// Nobody answers for a shard.
    Orphaned,
    /// A shard has its values from a snapshot.
    Restored,
    /// A snapshot could not be used.
    DamagedSnapshot,
    /// A restored shard lacks updates that had been acknowledged.
    UpdatesLost,
    /// The ranks of a group are together.
    GroupFormed,
    /// A group lost a rank and forms again.
    RankLost,
    /// A group forms again because a rank has joined that was not there, or saw it break.
    GroupReforms,
    /// A group is done.
    GroupLeft,
    /// Groups may join on top of those that are configured.
    GroupAttached,
    /// Groups are asked to leave.
    GroupDrained,
    /// The certificates of a group are revoked.
    GroupRevoked,
    /// The certificates of a rank, a server or a person are revoked.
    CertificateRevoked,
    /// A run may train.
    RunReady,
    /// A run cannot go on.
    RunFailed,
    /// A run is not to go on without what was lost.
    RunStopped,
    /// A run is forgotten.
    RunRemoved,
    /// A snapshot is whole.
    Snapshot,
    /// A snapshot was given up.
    SnapshotFailed,
    /// A coordinator took over.
    Coordinator,
    /// The coordinator's state cannot be written down, or can be again.
    Disk,
}

impl EventKind {
    /// The word for programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::ServerUp => "server_up",
            Self::ServerLost => "server_lost",
            Self::Heir => "heir",
            Self::Promoted => "promoted",
            Self::CopyAdded => "copy_added",
            Self::CopyFull => "copy_full",
            Self::CopyRemoved => "copy_removed",
            Self::Orphaned => "orphaned",
            Self::Restored => "restored",
            Self::DamagedSnapshot => "damaged_snapshot",
            Self::UpdatesLost => "updates_lost",
            Self::GroupFormed => "group_formed",
            Self::RankLost => "rank_lost",
            Self::GroupReforms => "group_reforms",
            Self::GroupLeft => "group_left",
            Self::GroupAttached => "group_attached",
            Self::GroupDrained => "group_drained",
            Self::GroupRevoked => "group_revoked",
            Self::CertificateRevoked => "certificate_revoked",
            Self::RunReady => "run_ready",
            Self::RunFailed => "run_failed",
            Self::RunStopped => "run_stopped",
            Self::RunRemoved => "run_removed",
            Self::Snapshot => "snapshot",
            Self::SnapshotFailed => "snapshot_failed",
            Self::Coordinator => "coordinator",
            Self::Disk => "disk",
        }
    }
}

/// Something that happened, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// From 1 in the life of the coordinator; 0 until it is told.
    pub number: u64,
    /// When, by the coordinator's `now`.
    pub at_ms: u64,
    /// What.
    pub kind: EventKind,
    /// A sentence for people.
    pub text: String,
    /// The run it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The server it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerId>,
    /// The group it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupId>,
    /// The rank it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<Rank>,
    /// The shard it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<ShardId>,
    /// Which life of the rank, group or server; 0 where none is meant.
    pub life: u64,
    /// The lineage of the shard's values that begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lineage: Option<Generation>,
    /// Updates of blocks that are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_updates: Option<u64>,
    /// The most samples that a block misses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_samples: Option<u64>,
}

impl Event {
    /// Something that happened.
    pub fn new(kind: EventKind, text: impl Into<String>) -> Self {
        Self {
            number: 0,
            at_ms: 0,
            kind,
            text: text.into(),
            run: None,
            server: None,
            group: None,
            rank: None,
            shard: None,
            life: 0,
            lineage: None,
            lost_updates: None,
            lost_samples: None,
        }
    }

    pub(super) fn server(mut self, server: ServerId) -> Self {
        self.server = Some(server);
        self
    }

    pub(super) fn shard(mut self, shard: ShardId) -> Self {
        self.shard = Some(shard);
        self
    }

    pub(super) fn group(mut self, group: GroupId) -> Self {
        self.group = Some(group);
        self
    }

    pub(super) fn rank(mut self, rank: Rank) -> Self {
        self.rank = Some(rank);
        self
    }

    pub(super) fn life(mut self, life: u64) -> Self {
        self.life = life;
        self
    }

    pub(super) fn lineage(mut self, lineage: Generation) -> Self {
        self.lineage = Some(lineage);
        self
    }

    pub(super) fn lost(mut self, lost: Loss) -> Self {
        self.lost_updates = Some(lost.updates);
        self.lost_samples = Some(lost.samples);
        self
    }
}
