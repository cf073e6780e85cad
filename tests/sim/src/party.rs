//! Who sends and receives.

use tradewind_common::{GroupId, ServerId};

/// Who sends and receives: everybody in one place of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Party {
    /// A server.
    Server(ServerId),
    /// The coordinators.
    Coordinator,
    /// The ranks of a group.
    Group(GroupId),
}
