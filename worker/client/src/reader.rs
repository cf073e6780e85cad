//! Parameters of a run for somebody who takes no part in it.

use std::sync::Arc;

use tradewind_common::placement::Placement;
use tradewind_common::spec::RunSpec;
use tradewind_common::{BlockId, Clock, GroupId, Incarnation, Layout, RunId};
use tradewind_proto::holding::Holding;

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
    let reader = Reader::find(run, coordinator, reach, spec).await?;
    let layout = reader.layout.clone();
    let mut values = vec![0.0; layout.elements()];
    let all: Vec<BlockId> = layout.blocks.iter().map(|block| block.id).collect();
    reader.pull(&all, &mut values).await?;
    Ok(Pulled { layout, values })
}

/// Knows where the blocks of a run are.
pub struct Reader<'a> {
    /// The run's flat vector.
    pub layout: Arc<Layout>,
    run: &'a RunId,
    reach: &'a Reach,
    coordinator: Coordinator,
    placement: Placement,
    holding: Holding,
}

impl<'a> Reader<'a> {
    /// Asks the coordinator.
    ///
    /// # Errors
    /// What it refuses, or a layout that `spec` does not have.
    pub async fn find(
        run: &'a RunId,
        coordinator: &CoordinatorAt,
        reach: &'a Reach,
        spec: &RunSpec,
    ) -> anyhow::Result<Self> {
        let mut coordinator = Coordinator::new(coordinator.clone(), reach.clone());
        let Placed {
            placement,
            holding,
            bucket_bytes,
        } = coordinator.placement(run).await?;
        Ok(Self {
            layout: Arc::new(spec.layout_within(bucket_bytes)?),
            run,
            reach,
            coordinator,
            placement,
            holding,
        })
    }

    /// Reads these blocks into their places in the flat vector `values`, and leaves the rest of it alone.
    ///
    /// # Errors
    /// What a shard refuses, blocks of another model, or a coordinator that cannot be reached any more.
    pub async fn pull(mut self, blocks: &[BlockId], values: &mut [f32]) -> anyhow::Result<()> {
        let (directory, news) = Directory::new(self.holding);
        // A bare pull may come from nobody.
        let nobody = Identity {
            run: self.run.clone(),
            group: GroupId(0),
            incarnation: Incarnation(0),
        };
        let session = Session::new(nobody, Clock(0), placed(blocks, &self.placement)?);
        let mut exchange = Exchange::new(self.layout, session, &directory, self.reach);
        tokio::select! {
            pulled = exchange.pull(values) => pulled?,
            error = self.coordinator.follow(self.run, &news) => Err(error)?,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;
    use tradewind_common::ShardId;
    use tradewind_proto::auth::Credentials;

    use super::*;
    use crate::directory::testing::holding;
    use crate::testing::{Does, FakeShard, spec};

    /// For a slow and noisy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A server's process that hangs, and the coordinator in it: connections are made, and nothing is said.
    #[tokio::test]
    async fn it_ends_when_all_hang() {
        let run = RunId::new("r").unwrap();
        let shard = FakeShard::new(|_| Does::Waits).run();
        let hangs = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let coordinator = hangs.local_addr().unwrap().to_string();
        let reach = Reach {
            credentials: Credentials::default(),
            retry: Duration::ZERO,
            connections: 1,
        };
        let reader = Reader {
            layout: Arc::new(spec().check().unwrap()),
            run: &run,
            reach: &reach,
            coordinator: Coordinator::new(
                CoordinatorAt::Address(coordinator.clone()),
                reach.clone(),
            ),
            placement: Placement::from_shards(vec![ShardId(0)]),
            holding: holding(3, Some((0, &shard.address))),
        };
        let mut values = [0.0; 4];
        let pull = timeout(PATIENCE, reader.pull(&[BlockId(0)], &mut values));
        let error = pull.await.expect("it ends").unwrap_err().to_string();
        assert!(error.contains(&coordinator), "{error}");
    }
}
