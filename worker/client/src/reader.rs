//! Parameters of a run for somebody who takes no part in it.

use std::sync::Arc;

use tradewind_common::spec::RunSpec;
use tradewind_common::{BlockId, Clock, GroupId, Incarnation, Layout, RunId};

use crate::coordinator::{Coordinator, CoordinatorAt, Placed};
use crate::core::session::{Identity, Session};
use crate::directory::Directory;
use crate::exchange::{Exchange, placed};
use crate::network::Reach;

/// What the servers have of a run.
pub struct Pulled {
    /// Its flat vector.
    pub layout: Arc<Layout>,
    /// All elements of it.
    pub values: Vec<f32>,
}

/// Reads the flat vector of a run from its servers.
///
/// # Errors
/// What the coordinator or a shard refuses, or blocks of another model.
pub async fn pull(
    run: &RunId,
    coordinator: &CoordinatorAt,
    reach: &Reach,
    spec: &RunSpec,
) -> anyhow::Result<Pulled> {
    let mut coordinator = Coordinator::new(coordinator.clone(), reach.clone());
    let Placed {
        placement,
        holding,
        bucket_bytes,
    } = coordinator.placement(run).await?;
    let layout = Arc::new(spec.layout_within(bucket_bytes)?);
    let mut values = vec![0.0; layout.elements()];
    let (directory, news) = Directory::new(holding);
    let all: Vec<BlockId> = layout.blocks.iter().map(|block| block.id).collect();
    // A bare pull may come from nobody.
    let nobody = Identity {
        run: run.clone(),
        group: GroupId(0),
        incarnation: Incarnation(0),
    };
    let session = Session::new(nobody, Clock(0), placed(&all, &placement)?);
    let mut exchange = Exchange::new(layout.clone(), session, &directory, reach);
    tokio::select! {
        pulled = exchange.pull(&mut values) => pulled?,
        never = coordinator.follow(run, &news) => match never {},
    };
    Ok(Pulled { layout, values })
}
