//! What a run came to.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use tradewind_common::GroupId;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How often what has happened.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl AddAssign<&Counts> for Counts {
            fn add_assign(&mut self, other: &Counts) {
                $(self.$name += other.$name;)*
            }
        }

        impl Counts {
            /// Every count with its name.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counts! {
    /// Contributions that were decided.
    decided,
    /// Contributions that a policy left out, as groups were told.
    dropped,
    /// Frames whose verdict was repeated.
    repeated,
    /// Answers that were differences to what their group holds.
    differences,
    /// Malformed frames that were refused and changed nothing.
    malformed,
    /// Processes of ranks that began after a death, or after they were taken for dead.
    rank_restarts,
    /// Groups that came on top of those that were configured.
    attached,
    /// Orders that said what had changed, and were followed.
    changes_followed,
    /// Orders that would have left a gap: all was asked for.
    orders_refused,
    /// Ranks that left because they were asked to.
    drained,
    /// Ranks killed.
    ranks_killed,
    /// Ranks that hung for a while.
    ranks_hung,
    /// Groups that went on with fewer ranks than configured.
    reformed_smaller,
    /// Groups that formed again in a later life.
    reformed,
    /// Servers killed.
    servers_killed,
    /// Servers that hung for a while.
    servers_hung,
    /// Copies that stopped confirming.
    muted,
    /// Ways between two servers that became slow in one direction.
    slowed,
    /// Records of logs that are nobody's, which copies were sent.
    rogue,
    /// Shards restored though a process had everything: one that had been removed as a copy, or that
    /// another had taken over from, before that one fell.
    kept_in_vain,
    /// Full copies that took over.
    promoted,
    /// Decisions that were never answered and that a promoted copy did not have.
    rolled_back,
    /// Answers that a primary gave after another one had taken over.
    late_answers,
    /// Copies that became full.
    filled,
    /// Records that a copy had applied before, and confirmed again.
    records_repeated,
    /// Records that a copy refused.
    records_refused,
    /// Copies compared bit for bit with their primary.
    compared,
    /// Ways between servers, or to the coordinator, that broke.
    links_broken,
    /// Partitions.
    cuts,
    /// Coordinators killed.
    coordinators_killed,
    /// Coordinators that hung for a while.
    coordinators_hung,
    /// Coordinators that were started, the first one not counted.
    coordinators_started,
    /// Coordinators that ended because a later one had claimed.
    deposed,
    /// Writes of the coordinator's state that failed.
    writes_failed,
    /// Writes of the coordinator's state that a crash cut off.
    writes_torn,
    /// Snapshots that became whole.
    snapshots,
    /// Snapshots that were given up.
    snapshots_failed,
    /// Files of snapshots that were damaged.
    damaged,
    /// Damaged snapshots that were passed over.
    passed_over,
    /// Shards restored from a snapshot.
    restored,
    /// Updates of blocks lost by restoring, as told.
    lost,
    /// Runs that ended because of a loss.
    stopped,
    /// Runs resumed as a whole.
    resumed,
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Hash of everything that happened, in order.
    pub trace: u64,
    /// Events.
    pub events: u64,
    /// Virtual time, microseconds.
    pub end_us: u64,
    /// Clocks that each group has finished, over all its lives.
    pub clocks: BTreeMap<GroupId, u64>,
    /// The longest that a shard held a block of each group back, microseconds.
    pub waited_us: BTreeMap<GroupId, u64>,
    /// The largest lag that a block held between two of its groups.
    pub lag_max: u64,
    /// How often what has happened.
    pub counts: Counts,
    /// The run failed, loudly, where it may: why.
    pub failed: Option<String>,
}
