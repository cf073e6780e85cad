//! What a rank is, from the start of its process on.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tradewind_common::spec::RunSpec;
use tradewind_common::{Incarnation, Layout};

use crate::coordinator::{Coordinator, RankId};
use crate::group_key::GroupKey;
use crate::network::Reach;

/// What a rank's process keeps through all incarnations of its group.
#[derive(Clone, Debug)]
pub struct RankSettings {
    /// Who this is, as configured.
    pub id: RankId,
    /// Names this process among the lives of the rank; not 0.
    pub life: u64,
    /// What all processes of the run agree on.
    pub spec: Arc<RunSpec>,
    /// The flat vector's blocks.
    pub layout: Arc<Layout>,
    /// Where it is a member.
    pub coordinator: Coordinator,
    /// How servers are reached.
    pub reach: Reach,
    /// Pause between two heartbeats.
    pub heartbeat: Duration,
    /// A rank that has not come back from an incarnation of its group when so much time has passed since the
    /// end of that ends its process.
    pub patience: Duration,
    /// Whether a gradient is computed while the exchange before is under way.
    pub overlap: bool,
    /// Where the coordinator is spoken to.
    pub runtime: Handle,
}

impl RankSettings {
    /// By which the ranks of an incarnation of the group know what one of them has written in the store where they
    /// meet, and with what its names there begin.
    pub fn meeting(&self, incarnation: Incarnation) -> (GroupKey, String) {
        let name = format!("{}/{}/{incarnation}", self.id.run, self.id.group);
        let key = GroupKey::of(self.reach.credentials.token(), &name);
        let prefix = format!("{}/{name}", key.prefix());
        (key, prefix)
    }

    /// Length of a rank's lease. It bounds whatever a rank waits for from its peers alone.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.spec.lease_ms)
    }
}
