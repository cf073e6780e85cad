//! What comes out of the coordinator, and so out of its runs.

use tradewind_common::{GroupId, RunId, ServerId};

use super::ReplyTo;
use super::answer::{Answer, Refused};
use super::event::Event;
use super::order::Order;
use super::revoked::RevokedIdentities;
use super::saved::ManifestData;

/// What the coordinator wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Answer a call.
    Reply(ReplyTo, Result<Answer, Refused>),
    /// Tell a server.
    Order(Box<Order>),
    /// Tell a server which runs there are: it forgets all others.
    Runs(ServerId, Vec<RunId>),
    /// Tell a server what is revoked, before all else; it says how many it keeps
    /// ([`Coordinator::keeps_revoked`](super::coordinator::Coordinator::keeps_revoked)).
    Revoked(ServerId, RevokedIdentities),
    /// Ranks of a group shall look whether they are still in it: a life of it is over.
    Over(RunId, GroupId),
    /// Tell people.
    Event(Event),
    /// Write the manifest of a snapshot whose parts are all there, then say so
    /// ([`Coordinator::written`](super::coordinator::Coordinator::written)).
    Manifest(Box<ManifestData>),
    /// Forget what was recorded of a run's blocks: a run of this name begins anew, or is removed.
    DropMarks(RunId),
    /// Delete a snapshot, or what there is of it.
    Delete {
        /// Of which run.
        run: RunId,
        /// Which.
        number: u64,
    },
}
