//! Sharded parameter server and coordinator: pure Rust, no libtorch.
//!
//! Wire → `rpc` → `shard_task` or `coordinator_task` → `tradewind_core` → back. What is on disk is in
//! `snapshot` and `store`.

mod admission;
mod attach;
mod budget;
pub mod clock;
pub mod coordinator_task;
mod disk;
mod durable;
pub mod events;
pub mod hosting;
pub mod limits;
mod linger;
pub mod marks;
pub mod milestone;
mod newest;
mod orders;
mod pages;
mod queue;
pub mod record;
pub mod refuse;
pub mod registry;
pub mod rpc;
mod serving;
pub mod shard_task;
pub mod snapshot;
mod stand_in;
mod status;
pub mod store;
pub mod surroundings;
pub mod telemetry;
mod turn;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tradewind_common::{RunId, ServerId};
use tradewind_process::supervise;
pub use tradewind_programs::server::CoordinatorAt;
use tradewind_proto::auth::Credentials;
use tradewind_proto::limits::COORDINATOR_MESSAGE_BYTES_MAX;
use tradewind_proto::tls::Tls;
use tradewind_proto::v1::coordinator_server::CoordinatorServer;
use tradewind_proto::v1::host_server::HostServer;

use crate::admission::{Admit, Connections, accept};
use crate::attach::{Found, Registration};
use crate::budget::Budget;
use crate::clock::Origin;
use crate::events::{EventLog, EventWriter};
use crate::hosting::{Host, Hosting};
use crate::limits::Notices;
use crate::registry::Registry;
use crate::rpc::coordinator::CoordinatorService;
use crate::rpc::host::HostService;
use crate::rpc::shard::ShardService;
use crate::serving::Services;
use crate::stand_in::StandIn;
use crate::surroundings::{REPORTS_MAX, Surroundings};

/// How long a process that ends waits for its coordinator to end, which may be waiting for a disk.
const ENDING: Duration = Duration::from_secs(1);

/// How a server takes part in its fleet.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its number.
    pub server: ServerId,
    /// Which life of it, larger than all former ones.
    pub incarnation: u64,
    /// host:port under which workers reach it.
    pub address: String,
    /// Names its machine: copies of a shard go to different ones.
    pub host: String,
    /// Where the coordinator is.
    pub coordinator: CoordinatorAt,
    /// What it shows, and asks of others.
    pub credentials: Credentials,
    /// The fleet's folder: snapshots, and what the coordinator must not forget. Without one nothing
    /// outlives the processes.
    pub folder: Option<PathBuf>,
    /// Go on with this run from its newest whole snapshot, unless the coordinator's state in the folder
    /// has got it already; all servers of a fleet say the same. Needs a folder.
    pub resume: Option<RunId>,
    /// A server that has been silent for so long is dead, milliseconds.
    pub lease_ms: u64,
    /// Host the coordinator of a fleet of so many servers when nobody else does; needs a folder.
    pub stand_in: Option<u32>,
    /// How long to wait for groups to leave and for a last snapshot once it shall shut down,
    /// milliseconds.
    pub linger_ms: u64,
}

/// A server that was shut out of its fleet, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this server's certificates are revoked: it was shut out, and does not come back")]
pub struct ShutOut;

/// Names an authority by its certificate.
fn authority(tls: &Tls) -> String {
    blake3::hash(tls.authority()).to_hex().to_string()
}

/// Serves until `shutdown` resolves. Streams that are open then are cut.
pub async fn serve(
    listener: TcpListener,
    config: Config,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    telemetry::describe();
    let room = config.folder.clone().map(telemetry::watch_room);
    let room = room.map(|watching| supervise("the look at the room on the disk", watching));
    let origin = Origin::start();
    let (sender, reports) = mpsc::channel(REPORTS_MAX);
    let events = config.folder.as_deref().map(EventLog::within);
    let events = events.map(EventWriter::start).transpose()?;
    let notices = Arc::new(Notices::new(config.server, origin, events));
    let renewing = config.credentials.renewing().map(|renewing| {
        let notices = notices.clone();
        let keeping = renewing.keep(move |attempt| notices.renewal(attempt));
        supervise("the renewal of the certificate", keeping)
    });
    let connections = Connections::new(notices.clone(), origin);
    let registry = Arc::new(Registry::new(Surroundings {
        server: config.server,
        origin,
        credentials: config.credentials.clone(),
        folder: config.folder.clone(),
        reports: sender,
        arriving: Budget::new(notices.clone()),
    }));
    let hosting = Hosting::new(Host {
        server: config.server,
        address: config.address.clone(),
        folder: config.folder.clone(),
        lease_ms: config.lease_ms,
        resume: config.resume.clone(),
        origin,
        authority: config.credentials.tls().map(authority),
        connections: connections.clone(),
    });
    let mut hosts_later = None;
    let coordinator = match (&config.coordinator, &config.folder) {
        (CoordinatorAt::Here { servers }, folder) => {
            // Whoever reads a snapshot answers pings meanwhile.
            match config.resume {
                Some(_) => hosts_later = Some((hosting.clone(), *servers)),
                None => _ = hosting.begin(*servers)?,
            }
            let own = || Found::At(config.address.clone());
            folder.clone().map_or_else(own, Found::In)
        }
        (CoordinatorAt::Elsewhere(address), _) => Found::At(address.clone()),
        (CoordinatorAt::InFolder, Some(folder)) => Found::In(folder.clone()),
        (CoordinatorAt::InFolder, None) => {
            anyhow::bail!("no folder is given that says where the coordinator is")
        }
    };
    let (bond, bonded) = watch::channel(false);
    let shut_out = Arc::new(Notify::new());
    let standing_in = match (config.stand_in, &config.folder) {
        (Some(servers), Some(folder)) => Some(supervise(
            "the watch over the coordinator",
            StandIn {
                server: config.server,
                servers,
                lease: Duration::from_millis(config.lease_ms),
                folder: folder.clone(),
                hosting: hosting.clone(),
                bonded: bonded.clone(),
            }
            .watch(),
        )),
        (Some(_), None) => {
            anyhow::bail!("no folder is given from which another coordinator could be followed")
        }
        (None, _) => None,
    };
    let me = Registration {
        coordinator,
        address: config.address,
        host: config.host,
        incarnation: config.incarnation,
        credentials: config.credentials.clone(),
        lease: Duration::from_millis(config.lease_ms),
    };
    let here = (registry.clone(), connections.clone());
    let staying = attach::stay_registered(me, here, reports, (bond, shut_out.clone()));
    let registered = supervise("the bond with the coordinator", staying);
    let (lingering, patience) = (hosting.clone(), Duration::from_millis(config.linger_ms));
    let admit = Admit::new(&config.credentials, notices.clone());
    let coordinator = CoordinatorServer::new(CoordinatorService(hosting.clone(), notices))
        .max_decoding_message_size(COORDINATOR_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(COORDINATOR_MESSAGE_BYTES_MAX);
    let host = HostServer::new(HostService {
        hosting,
        registry: registry.clone(),
        incarnation: config.incarnation,
    });
    let shards = ShardService::new(registry);
    let services = Services {
        shards: admit.before(shards),
        coordinator: admit.before(coordinator),
        host: admit.before(host),
    };
    let incoming = accept(listener, connections, config.credentials);
    let serving = serving::serve(incoming, services);
    let hosts = async {
        if let Some((hosting, servers)) = hosts_later {
            spawn_blocking(move || hosting.begin(servers)).await??;
        }
        std::future::pending::<anyhow::Result<()>>().await
    };
    tokio::select! {
        () = serving => anyhow::bail!("nobody is accepted any more"),
        failed = hosts => failed?,
        // What it holds is for others to serve now, and nobody takes anything of it.
        () = shut_out.notified() => return Err(ShutOut.into()),
        () = async {
            shutdown.await;
            if !patience.is_zero() {
                linger::linger(&lingering, bonded, patience).await;
            }
            // Before anybody's connection is closed, so that it tells of nobody's loss.
            if let Ok(coordinator) = lingering.current() {
                let _ = timeout(ENDING, coordinator.end()).await;
            }
        } => tracing::info!("shutting down"),
    }
    if let Some(standing_in) = standing_in {
        standing_in.abort();
    }
    if let Some(room) = room {
        room.abort();
    }
    if let Some(renewing) = renewing {
        renewing.abort();
    }
    registered.abort();
    Ok(())
}
