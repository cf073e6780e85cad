//! What the servers of a run tell about it.

use anyhow::Context;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tradewind_common::{RunId, ShardId};
use tradewind_proto::auth::{ShowToken, Token};
use tradewind_proto::holding::placement_from_wire;
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
    let placement = status.placement.clone().unwrap_or_default();
    let (_, holding) = placement_from_wire(placement)?;
    for shard in (0..holding.holders.len() as u32).map(ShardId) {
        let primary = holding.primary(shard);
        let server = primary.with_context(|| format!("nobody answers for shard {shard}"))?;
        let mut client = ShardClient::new(connect(&server.address, token).await?);
        let request = ShardStatusRequest {
            run: run.to_string(),
            shard: shard.0,
        };
        let told = client.shard_status(request).await;
        shards.push(
            told.with_context(|| format!("asking server {}", server.server))?
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
