//! When a block applies what has arrived: one small file a policy, behind one trait.

mod bounded;
mod sync;
mod window;

pub use bounded::Bounded;
pub use sync::Sync;
use tradewind_common::spec::{ConsistencySpec, RunSpec};
use tradewind_common::{Clock, GroupId};
pub use window::Window;

/// Where a group that is live, or has joined and will be, stands at one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The group.
    pub group: GroupId,
    /// The first clock of its life; the earliest possible one if it has joined.
    pub start: Clock,
    /// The clock that the block decides next for it, or a later one.
    pub next: Clock,
    /// Whether its contribution of that clock, a gradient or a skip, is here and waits.
    pub arrived: bool,
    /// Whether that is a gradient.
    pub gradient: bool,
    /// When it arrived, microseconds; 0 if it has not.
    pub since_us: u64,
}

/// A block as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// In GroupId order.
    pub standing: &'a [Standing],
    /// The highest clock that was decided of any group, live or not.
    pub highest: Option<Clock>,
    /// The present time, microseconds.
    pub now_us: u64,
    /// The mean gap between arrivals at the block, microseconds; `None` before the second one.
    pub gap_us: Option<u64>,
}

/// What a block does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The waiting contributions of these groups become one update.
    Merge(Vec<GroupId>),
    /// Those of these groups come too late, and are left out.
    LeaveOut(Vec<GroupId>),
    /// Nothing, until something has changed.
    Wait,
    /// Nothing, until something has changed or this time has come, microseconds.
    WaitUntil(u64),
}

/// Decides which contributions make the block's next update.
pub trait Consistency: Send {
    /// What the block does. Called again after every arrival, update and change of membership, and
    /// when the time has come that it named, until it answers that the block waits.
    fn decide(&self, scene: &Scene<'_>) -> Decision;

    /// Whether an update stands for all groups, so that buffers move by the mean of what is in;
    /// otherwise it is one group's, and moves them by its part of the live groups.
    fn averages(&self) -> bool {
        false
    }

    /// Whether the block may go on without a group. Answers then tell the clock that is next, and a
    /// group may go on there, leaving a gap.
    fn leaves_behind(&self) -> bool {
        false
    }
}

/// The policy that the run asks for.
pub fn from_spec(spec: &RunSpec) -> Box<dyn Consistency> {
    match spec.consistency {
        ConsistencySpec::Sync => Box::new(Sync {
            backup_groups: spec.policies.backup_groups as usize,
        }),
        ConsistencySpec::Bounded { .. } | ConsistencySpec::Async => {
            let bound = spec.consistency.bound();
            match spec.policies.merge {
                Some(merge) => Box::new(Window::new(bound, merge)),
                None => Box::new(Bounded { bound }),
            }
        }
    }
}

/// The clock that a block makes next: past every one that was decided of anybody, and no group
/// that could contribute to an earlier one. `None` while nobody is there.
pub fn present(scene: &Scene<'_>) -> Option<Clock> {
    let min = scene.standing.iter().map(|s| s.next).min()?;
    Some(scene.highest.map_or(min, |highest| highest.tick().max(min)))
}
