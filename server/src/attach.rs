//! A server's side of its bond with the coordinator: registers, follows views, acknowledges.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use tradewind_common::placement::Placement;
use tradewind_common::spec::RunSpec;
use tradewind_common::{RunId, ServerId};
use tradewind_proto::auth::{ShowToken, Token};
use tradewind_proto::convert;
use tradewind_proto::limits::COORDINATOR_MESSAGE_BYTES_MAX;
use tradewind_proto::v1::coordinator_client::CoordinatorClient;
use tradewind_proto::v1::server_report::Report;
use tradewind_proto::v1::{self, ServerReport};

use crate::core::coordinator::Order;
use crate::core::view::Acknowledge;
use crate::registry::Registry;
use crate::rpc::coordinator::decode_view;

/// Reports that wait for the connection.
const REPORTS_MAX: usize = 64;

/// Pause before the coordinator is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// Shards that have become complete.
pub(crate) type Completions = mpsc::Receiver<(RunId, Acknowledge)>;

/// Who registers.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    /// host:port of the coordinator.
    pub(crate) coordinator: String,
    /// host:port under which workers reach this server.
    pub(crate) address: String,
    /// Which life of the server.
    pub(crate) incarnation: u64,
    /// The fleet's token.
    pub(crate) token: Token,
}

/// Stays registered for as long as the process lives. A broken connection is made again, and the
/// coordinator then sends all views anew.
pub(crate) async fn stay_registered(
    me: Registration,
    registry: Arc<Registry>,
    completions: Completions,
) {
    let completions = Mutex::new(completions);
    loop {
        match follow(&me, &registry, &completions).await {
            Ok(()) => tracing::warn!("the coordinator closed the connection; trying again"),
            Err(error) => tracing::warn!("no bond with the coordinator: {error:#}; trying again"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn follow(
    me: &Registration,
    registry: &Registry,
    completions: &Mutex<Completions>,
) -> anyhow::Result<()> {
    let channel = Endpoint::try_from(format!("http://{}", me.coordinator))?
        .http2_keep_alive_interval(Duration::from_secs(5))
        .connect()
        .await?;
    let mut client = CoordinatorClient::with_interceptor(channel, ShowToken(me.token.clone()))
        .max_decoding_message_size(COORDINATOR_MESSAGE_BYTES_MAX);
    let (reports, outgoing) = mpsc::channel(REPORTS_MAX);
    let register = v1::Register {
        server: registry.server().0,
        incarnation: me.incarnation,
        address: me.address.clone(),
    };
    reports
        .send(ServerReport {
            report: Some(Report::Register(register)),
        })
        .await?;
    let mut orders = client
        .serve(ReceiverStream::new(outgoing))
        .await?
        .into_inner();
    tracing::info!("registered with the coordinator at {}", me.coordinator);
    let mut completions = completions.lock().await;
    loop {
        let (run, seen) = tokio::select! {
            order = orders.message() => match order? {
                Some(order) => obey(registry, order).await?,
                None => return Ok(()),
            },
            Some(complete) = completions.recv() => complete,
        };
        reports.send(acknowledge(&run, seen)).await?;
    }
}

async fn obey(registry: &Registry, order: v1::ServerOrder) -> anyhow::Result<(RunId, Acknowledge)> {
    let missing = |field: &str| anyhow::anyhow!("an order without {field}");
    let spec: RunSpec = order.spec.ok_or_else(|| missing("spec"))?.try_into()?;
    let layout = spec.check()?;
    let order = Order {
        server: registry.server(),
        run: convert::run_id(&order.run)?,
        spec: Arc::new(spec),
        placement: Placement::from_owners(order.owners.into_iter().map(ServerId).collect()),
        view: decode_view(order.view.ok_or_else(|| missing("view"))?),
    };
    let shard = registry.find_or_create(&order, Arc::new(layout));
    let generation = order.view.generation;
    let live = order.view.live.len();
    let seen = shard.follow(order.view).await?;
    tracing::info!(run = %order.run, %generation, live, complete = seen.complete, "view followed");
    Ok((order.run, seen))
}

fn acknowledge(run: &RunId, seen: Acknowledge) -> ServerReport {
    ServerReport {
        report: Some(Report::Acknowledge(v1::Acknowledge {
            run: run.to_string(),
            generation: seen.generation.0,
            clock_seen: seen.clock_seen.map(|clock| clock.0),
            complete: seen.complete,
        })),
    }
}
