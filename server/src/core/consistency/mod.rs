//! When a block applies what has arrived: one small file a policy, behind one trait.

mod bounded;
mod sync;

pub use bounded::Bounded;
pub use sync::Sync;
use tradewind_common::spec::ConsistencySpec;
use tradewind_common::{Clock, GroupId};

/// Where a group that is live, or has joined and will be, stands at one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The group.
    pub group: GroupId,
    /// The clock that the block decides next for it; the earliest first clock if it has joined.
    pub next: Clock,
    /// Whether its contribution of that clock, a gradient or a skip, is here and waits.
    pub arrived: bool,
}

/// Decides which contributions make the block's next update.
pub trait Consistency: Send {
    /// Given the groups in GroupId order, the groups whose waiting contributions are merged
    /// into one update now; `None` if the block has to wait. Called again after every arrival,
    /// update and change of membership, until it answers `None`.
    fn decide(&self, standing: &[Standing]) -> Option<Vec<GroupId>>;

    /// Whether an update stands for all groups, so that buffers move by the mean of what is in;
    /// otherwise it is one group's, and moves them by its part of the live groups.
    fn averages(&self) -> bool {
        false
    }
}

/// The policy that the run asks for.
pub fn from_spec(spec: ConsistencySpec) -> Box<dyn Consistency> {
    match spec {
        ConsistencySpec::Sync => Box::new(Sync),
        ConsistencySpec::Bounded { .. } | ConsistencySpec::Async => Box::new(Bounded {
            bound: spec.bound(),
        }),
    }
}
