//! A block whole, as copies, snapshots and restored shards take it over.

use std::collections::BTreeMap;
use std::sync::Arc;

use tradewind_common::{BlockId, GroupId, Incarnation};

use super::decided::Decided;

/// Everything of a block that outlives the server that holds it. What waits to be decided does not:
/// whoever sent it was not answered and sends it again.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockState {
    /// Which block.
    pub id: BlockId,
    /// Its values; shared, and copied when the block changes.
    pub values: Arc<Vec<f32>>,
    /// What the optimizer keeps, each as long as the values; shared like them.
    pub slots: Vec<Arc<Vec<f32>>>,
    /// Updates applied.
    pub version: u64,
    /// Samples applied.
    pub samples_applied: u64,
    /// What was decided last of each group, and of which life of it.
    pub decided: BTreeMap<GroupId, (Incarnation, Decided)>,
}
