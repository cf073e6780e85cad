//! What the servers of a run tell about it.

use anyhow::Context;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tradewind_common::RunId;
use tradewind_proto::auth::{ShowToken, Token};
use tradewind_proto::v1::coordinator_client::CoordinatorClient;
use tradewind_proto::v1::shard_client::ShardClient;
use tradewind_proto::v1::{ShardStatusReply, ShardStatusRequest, StatusReply, StatusRequest};

/// The coordinator's and every shard's status.
#[derive(Clone, Debug)]
pub(crate) struct ClusterStatus {
    pub(crate) run: StatusReply,
    pub(crate) shards: Vec<ShardStatusReply>,
}

/// Asks the coordinator, and every server that it names.
pub(crate) async fn status(
    coordinator: &str,
    token: &str,
    run: &RunId,
) -> anyhow::Result<ClusterStatus> {
    let token = &Token::new(token)?;
    let mut client = CoordinatorClient::new(connect(coordinator, token).await?);
    let status = client
        .status(StatusRequest {
            run: run.to_string(),
        })
        .await;
    let status = status
        .context("asking the coordinator for the status")?
        .into_inner();
    let mut shards = Vec::new();
    for server in status
        .placement
        .iter()
        .flat_map(|placement| &placement.servers)
    {
        let mut client = ShardClient::new(connect(&server.address, token).await?);
        let request = ShardStatusRequest {
            run: run.to_string(),
        };
        let shard = client.shard_status(request).await;
        shards.push(
            shard
                .with_context(|| format!("asking server {}", server.server))?
                .into_inner(),
        );
    }
    Ok(ClusterStatus {
        run: status,
        shards,
    })
}

async fn connect(
    address: &str,
    token: &Token,
) -> anyhow::Result<InterceptedService<Channel, ShowToken>> {
    let channel = Endpoint::try_from(format!("http://{address}"))?
        .connect()
        .await
        .with_context(|| format!("cannot reach {address}"))?;
    Ok(InterceptedService::new(channel, ShowToken(token.clone())))
}
