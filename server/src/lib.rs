//! Sharded parameter server and coordinator: pure Rust, no libtorch.
//!
//! Wire → `rpc` → `shard_task` or `coordinator_task` → `core` → back.

mod attach;
pub mod clock;
pub mod coordinator_task;
pub mod core;
pub mod disk;
pub mod events;
pub mod registry;
pub mod rpc;
pub mod shard_task;
pub mod snapshot;
pub mod store;
pub mod telemetry;

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tradewind_common::ServerId;
use tradewind_proto::auth::{AskToken, Token};
use tradewind_proto::v1::coordinator_server::CoordinatorServer;
use tradewind_proto::{
    limits::{COORDINATOR_MESSAGE_BYTES_MAX, HTTP2_FRAME_BYTES, WINDOW_BYTES},
    socket,
};

use crate::attach::Registration;
use crate::clock::Origin;
use crate::coordinator_task::CoordinatorHandle;
use crate::core::answer::RUNS_MAX;
use crate::registry::Registry;
use crate::rpc::coordinator::CoordinatorService;
use crate::rpc::shard::ShardService;

/// How a server takes part in its fleet.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its number.
    pub server: ServerId,
    /// Which life of it, larger than all former ones.
    pub incarnation: u64,
    /// host:port under which workers reach it.
    pub address: String,
    /// Where the coordinator is.
    pub coordinator: CoordinatorAt,
    /// The fleet's token.
    pub token: Token,
}

/// Where the coordinator is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinatorAt {
    /// In this process, for a fleet of so many servers.
    Here {
        /// At least 1.
        servers: u32,
    },
    /// At host:port.
    Elsewhere(String),
}

/// Serves until `shutdown` resolves. Streams that are open then are cut.
pub async fn serve(
    listener: TcpListener,
    config: Config,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    telemetry::describe();
    let origin = Origin::start();
    // Every shard says once that it is complete, so nobody ever waits to say it.
    let (complete, completions) = mpsc::channel(RUNS_MAX);
    let registry = Arc::new(Registry::new(config.server, origin, complete));
    let ask = AskToken(config.token.clone());
    let shards = ShardService::new(registry.clone());
    let (coordinator, coordinator_address) = match config.coordinator {
        CoordinatorAt::Here { servers } => {
            let service = CoordinatorService(CoordinatorHandle::spawn(servers, origin));
            let service = CoordinatorServer::new(service)
                .max_decoding_message_size(COORDINATOR_MESSAGE_BYTES_MAX)
                .max_encoding_message_size(COORDINATOR_MESSAGE_BYTES_MAX);
            (
                Some(InterceptedService::new(service, ask.clone())),
                config.address.clone(),
            )
        }
        CoordinatorAt::Elsewhere(address) => (None, address),
    };
    let me = Registration {
        coordinator: coordinator_address,
        address: config.address,
        incarnation: config.incarnation,
        token: config.token,
    };
    let registered = tokio::spawn(attach::stay_registered(me, registry, completions));
    let serving = Server::builder()
        .max_frame_size(HTTP2_FRAME_BYTES)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .add_service(InterceptedService::new(shards, ask))
        .add_optional_service(coordinator)
        .serve_with_incoming(
            TcpIncoming::from(listener).map(|accepted| accepted.inspect(socket::tune)),
        );
    tokio::select! {
        served = serving => served?,
        () = shutdown => tracing::info!("shutting down"),
    }
    registered.abort();
    Ok(())
}
