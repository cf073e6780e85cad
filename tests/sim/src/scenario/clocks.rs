//! Runs whose values are vector clocks, so that a checker that knows nothing of the servers can judge
//! what groups are answered.

use tradewind_common::compress::Compression;
use tradewind_common::policy::{Policies, StalenessSpec};
use tradewind_common::schedule::Schedule;
use tradewind_common::spec::DecayExempt;

use super::{OPTIMIZERS, Scenario};
use crate::values::Brought;

/// Values of a block, and groups there may be.
pub const CLOCKS: usize = 4;

impl Scenario {
    /// The same with plain SGD at rate 1 from zeros, to which each group brings 1 at its own element;
    /// what else would change values is left out.
    pub fn with_vector_clocks(mut self) -> Self {
        assert!(self.groups.len() <= CLOCKS, "an element for each group");
        self.clocks = true;
        (self.optimizer, self.rate) = OPTIMIZERS[0];
        self.schedule = Schedule::constant(1.0);
        self.decay_exempt = DecayExempt::None;
        self.down = Compression::None;
        let staleness = match self.policies.staleness {
            drops @ StalenessSpec::Drop(_) => drops,
            _ => StalenessSpec::default(),
        };
        self.policies = Policies {
            staleness,
            backup_groups: self.policies.backup_groups,
            merge: self.policies.merge,
            ..Policies::default()
        };
        self
    }

    /// What groups bring.
    pub(crate) fn brought(&self) -> Brought {
        Brought {
            skip_one_in: self.skip_one_in,
            clocks: self.clocks,
        }
    }
}
