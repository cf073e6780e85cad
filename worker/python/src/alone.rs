//! A run of one rank that has its servers in its own process, for a person who debugs a script.

use std::path::Path;

use anyhow::Context;
use tokio::net::TcpListener;
use tradewind_client::coordinator::CoordinatorAt;
use tradewind_common::ServerId;
use tradewind_common::exit::Exit;
use tradewind_config::command_override;
use tradewind_process::{complain, supervise_thread};
use tradewind_proto::auth::Credentials;
use tradewind_server::{Config as ServerConfig, CoordinatorAt as Coordinates, serve};

use crate::entry::{Entry, read};

/// What of a run's file is for several processes.
const OVERRIDES: [&str; 6] = [
    "cluster.groups=[1]",
    "cluster.servers=1",
    "servers.replication=1",
    "train.backup_groups=0",
    "evaluation.every_samples=0",
    "slurm.min_groups=0",
];

/// Reads a run's file for one group of one rank, and starts a server on a thread of this process. Nothing is
/// written to disk. `secret` is what this process's calls show each other.
pub fn begin(file: &Path, command: &[String], secret: &str) -> anyhow::Result<Entry> {
    let overrides = OVERRIDES.map(str::to_owned).into_iter();
    let overrides: Vec<String> = overrides.chain([command_override(command)]).collect();
    let config = read(file, &overrides)?;
    let credentials = Credentials::new(secret, None)?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")
        .context("cannot listen on the loopback interface")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?.to_string();
    let server = ServerConfig {
        server: ServerId(0),
        incarnation: 1,
        host: config.cluster.host.clone(),
        address: address.clone(),
        coordinator: Coordinates::Here { servers: 1 },
        credentials: credentials.clone(),
        folder: None,
        resume: None,
        lease_ms: config.liveness.lease_ms,
        stand_in: None,
        linger_ms: 0,
    };
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build()?;
    let run = move || {
        let served = runtime.block_on(async {
            let listener = TcpListener::from_std(listener)?;
            serve(listener, server, std::future::pending()).await
        });
        complain!("the server in this process has ended: {served:?}");
        tradewind_process::exit(Exit::Failed.number().into())
    };
    supervise_thread("the server of a rank that is alone", run)?;
    Entry::first(config, CoordinatorAt::Address(address), credentials)
}
