//! What the coordinator answers to a call, and why it refuses one.

use tradewind_common::data::LeaseRefused;
use tradewind_common::spec::SpecError;
use tradewind_common::{Clock, Generation, GroupId, Incarnation, RunId, ServerId};

use super::refusal::Refusal;

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
        field: &'static str,
    },
    /// A data lease that cannot be granted.
    #[error(transparent)]
    Lease(#[from] LeaseRefused),
    /// Another process holds the rank.
    #[error("group {0} is running; wait until it has left or its lease has run out")]
    GroupRunning(GroupId),
    /// Not all servers are there yet.
    #[error("{registered} of {expected} servers have registered; try again")]
    ServersMissing {
        /// How many have.
        registered: usize,
        /// How many shall.
        expected: usize,
    },
    /// The fleet is full.
    #[error("the fleet holds {RUNS_MAX} runs already")]
    TooManyRuns,
    /// The run cannot go on.
    #[error("the run has failed: {0}")]
    Failed(String),
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
        /// Where its store is.
        store_address: String,
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
}
