//! When a block applies what has arrived: one small file a policy, behind one trait.

mod bounded;
mod sync;
mod window;

pub use bounded::Bounded;
pub use sync::Sync;
use tradewind_common::GroupId;
use tradewind_common::spec::{ConsistencySpec, RunSpec};
pub use window::Window;

pub use super::standings::{Gathered, Scene, Standing, Standings};

/// What a block does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// What is gathered and the waiting contributions of these groups become one update.
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

    /// While more contributions wait than a block keeps: one of them that is in the next update, whoever else
    /// comes, so that it can be gathered. `None` if that is not known of any.
    fn gathers(&self, _scene: &Scene<'_>) -> Option<GroupId> {
        None
    }

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

#[cfg(test)]
pub(crate) mod tests {
    use tradewind_common::{Clock, Incarnation};

    use super::*;

    /// `"5! 6? 7 9+"`: group 0 stands at clock 5 and has arrived, group 1 at 6 with a skip, group 2 at
    /// 7 and has not, group 3 starts at 9; the others have started long ago. `"5:"` is gathered. Of two neighbours
    /// the second one has arrived so much later.
    pub(crate) fn standings(text: &str, apart_us: u64) -> Standings {
        let mut standings = Standings::default();
        for (number, word) in (0..).zip(text.split_whitespace()) {
            let group = GroupId(number);
            let next = Clock(word.trim_end_matches(['!', '?', '+', ':']).parse().unwrap());
            let start = if word.ends_with('+') { next } else { Clock(0) };
            standings.enter(group, (Incarnation(1), start), next, false);
            if word.ends_with(['!', '?', ':']) {
                let since_us = apart_us * u64::from(number);
                standings.arrive(group, next, !word.ends_with('?'), since_us);
            }
            if word.ends_with(':') {
                standings.gather(group);
            }
        }
        standings
    }

    pub(crate) fn scene(standings: &Standings, highest: Option<u64>) -> Scene<'_> {
        Scene {
            standings,
            everybody: true,
            gathered: None,
            highest: highest.map(Clock),
            now_us: 0,
            gap_us: None,
        }
    }

    pub(crate) fn groups(numbers: &[u32]) -> Vec<GroupId> {
        numbers.iter().map(|group| GroupId(*group)).collect()
    }
}
