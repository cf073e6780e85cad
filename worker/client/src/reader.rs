//! Parameters of a run for somebody who takes no part in it.

use std::sync::Arc;

use tradewind_common::{BlockId, Clock, GroupId, Incarnation, Layout, RunId};

use crate::coordinator::{Coordinator, CoordinatorAt};
use crate::core::session::{Identity, Session};
use crate::directory::Directory;
use crate::exchange::{Exchange, placed};
use crate::network::Reach;

/// Reads the flat vector of a run from its servers.
///
/// # Errors
/// What the coordinator or a shard refuses, or blocks of another model.
pub async fn pull(
    run: &RunId,
    coordinator: &CoordinatorAt,
    reach: &Reach,
    layout: &Arc<Layout>,
    values: &mut [f32],
) -> anyhow::Result<()> {
    let mut coordinator = Coordinator::new(coordinator.clone(), reach.clone());
    let (placement, holding) = coordinator.placement(run).await?;
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
        pulled = exchange.pull(values) => pulled?,
        never = coordinator.follow(run, &news) => match never {},
    };
    Ok(())
}
