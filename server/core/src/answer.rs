//! What the coordinator answers to a call, and why it refuses one.

use tradewind_common::data::LeaseRefused;
use tradewind_common::spec::SpecError;
use tradewind_common::{Clock, Generation, GroupId, Incarnation, Rank, RunId, ServerId};

use super::refusal::Refusal;
use super::revoked::REVOKED_MAX;

/// Most runs that a fleet holds at once.
pub const RUNS_MAX: usize = 256;

/// Why the coordinator refuses a call.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    /// What shards refuse, too.
    #[error(transparent)]
    Refusal(#[from] Refusal),
    /// A specification that no run can follow.
    #[error("the run's specification cannot be followed: {0}")]
    Spec(#[from] SpecError),
    /// Another configuration than the run's.
    #[error(
        "the run exists with another {field}; give this run another name, or the same configuration"
    )]
    Differs {
        /// The first field that differs.
        field: String,
    },
    /// A data lease that cannot be granted.
    #[error(transparent)]
    Lease(#[from] LeaseRefused),
    /// The rank has called again, or another process in its place.
    #[error("rank {rank} of group {group} has called again; the answer goes there")]
    Replaced {
        /// Its group.
        group: GroupId,
        /// The rank.
        rank: Rank,
    },
    /// Not all servers are there yet.
    #[error("{registered} of {expected} servers have registered; try again")]
    ServersMissing {
        /// How many have.
        registered: usize,
        /// How many shall.
        expected: usize,
    },
    /// The group was asked to leave.
    #[error("group {0} was asked to leave, and does not come back")]
    Drained(GroupId),
    /// The data of `sync` are dealt to the groups that there are at the beginning.
    #[error(
        "no group can be added to a synchronous run, whose data are dealt to its configured groups; set train.consistency to bounded or async"
    )]
    FixedGroups,
    /// A run that is not over cannot be forgotten.
    #[error(
        "run {0} still has groups, or a snapshot of it is under way; ask its groups to leave first"
    )]
    StillTrains(RunId),
    /// The fleet is full.
    #[error("the fleet holds {RUNS_MAX} runs already")]
    TooManyRuns,
    /// The run cannot go on.
    #[error("the run has failed: {0}")]
    Failed(String),
    /// The run was not to go on without what was lost.
    #[error(
        "the run has stopped: {0}; resume it to go on without what is lost, or set faults.on_loss to continue"
    )]
    Stopped(String),
    /// A server that the fleet does not expect.
    #[error("the fleet has servers 0 to {last}, not {server}")]
    UnknownServer {
        /// The server that registered.
        server: ServerId,
        /// The last one there is.
        last: ServerId,
    },
    /// A later life of the server has registered.
    #[error("incarnation {given} of server {server} is fenced; the current one is {current}")]
    StaleServer {
        /// The server.
        server: ServerId,
        /// Who registered.
        given: Incarnation,
        /// Who may.
        current: Incarnation,
    },
    /// A server speaks that does not count as being there.
    #[error("server {0} is not registered, or its lease has run out; register anew")]
    NotRegistered(ServerId),
    /// A run that wants more copies than there are servers.
    #[error(
        "servers.replication is {replication}, but the fleet has {servers} servers; lower it, or start more servers"
    )]
    Replication {
        /// Holders of each shard, as configured.
        replication: u32,
        /// What there is.
        servers: u32,
    },
    /// A run cannot be resumed in this form.
    #[error(
        "the snapshot has another {field}, which a resumed run must keep; use the same configuration, or give the run another name"
    )]
    ResumeDiffers {
        /// The first field that differs.
        field: String,
    },
    /// A run that is there cannot be resumed.
    #[error("run {0} exists; only a run that the fleet does not hold can be resumed")]
    RunExists(RunId),
    /// Snapshots need a folder.
    #[error("the fleet has no folder for snapshots; start its servers with one")]
    NoFolder,
    /// A snapshot was given up.
    #[error("no snapshot was taken: {0}")]
    Snapshot(String),
    /// Nobody has a certificate.
    #[error(
        "the fleet has no certificates that could be revoked: cluster.security is not tls; to shut somebody out, end the run and resume it, which makes a new token"
    )]
    WithoutTls,
    /// What is revoked travels whole, and has a limit.
    #[error(
        "more than {REVOKED_MAX} groups, ranks, servers and people would be revoked; end the run and resume it, which makes all certificates anew"
    )]
    TooManyRevoked,
    /// The coordinator is in this server's process, and decides who is shut out.
    #[error(
        "server {0} hosts the coordinator, which cannot shut itself out; end the process of server {0}, and revoke it once another server hosts the coordinator"
    )]
    HostsCoordinator(ServerId),
    /// A server registers whose certificates are taken back.
    #[error("server {0} is shut out of the fleet, and does not come back")]
    RevokedServer(ServerId),
    /// Too many callers wait for a snapshot, or for servers to keep what is revoked.
    #[error("{0} callers wait for that already; try again later")]
    TooManyWaiting(usize),
    /// A server acknowledges what it cannot have been told.
    #[error("generation {given} of run {run} has not been given out; the run is at {current}")]
    GenerationAhead {
        /// The run.
        run: RunId,
        /// What was acknowledged.
        given: Generation,
        /// What there is.
        current: Generation,
    },
}

/// The answer to a call that waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To a join.
    Joined {
        /// The life of the group.
        incarnation: Incarnation,
        /// Where its store is: at its lowest rank.
        store_address: String,
        /// Its ranks.
        group_size: u32,
        /// The number of this one among them.
        group_rank: u32,
        /// Under `sync`: at this clock so many samples of the training data had been passed, whole
        /// epochs counted.
        origin: (Clock, u64),
    },
    /// Create the blocks of your slice and ask again.
    Create,
    /// Push from this clock on.
    Ready {
        /// The generation under which the group is live.
        generation: Generation,
        /// Its first clock.
        start: Clock,
    },
    /// Groups were added: the number of the first.
    Attached(GroupId),
    /// Groups are asked to leave.
    Draining,
    /// The run is forgotten.
    Removed,
    /// The next join of the run resumes it.
    Resumes,
    /// Somebody is shut out.
    Revoked {
        /// Servers that were given up, and have not said that they keep it: they are told before all else if they
        /// come back.
        without: Vec<ServerId>,
    },
    /// The snapshot is whole.
    Snapshot {
        /// Its number.
        number: u64,
    },
}
