//! What servers and the coordinator say when the launcher asks them, each on a connection of its own.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc::Sender;
use tokio::time::{sleep, timeout};
use tradewind_common::RunId;
use tradewind_proto::v1::StatusReply;
use tradewind_server::store::read_address;

use tradewind_folder::cluster::Access;

/// What was heard.
#[derive(Debug)]
pub(super) enum Heard {
    /// A server's answer to a ping, from this life of it.
    Pong {
        server: u32,
        life: u64,
        coordinates: bool,
    },
    /// Whether a server that was asked to hosts the coordinator.
    Hosted { server: u32, life: u64, hosts: bool },
    /// What the coordinator says of the run; `None` if it knows no such run yet.
    Status(Option<Box<StatusReply>>),
}

/// How long a server may take to become the coordinator's host before the next one is asked.
const HOST: Duration = Duration::from_secs(3);

/// Pings a server until nobody hears it any more. An answer that takes longer than a lease is none.
pub(super) async fn ping(
    access: Access,
    (server, life, address): (u32, u64, String),
    (pause, lease): (Duration, Duration),
    to: Sender<Heard>,
) {
    let mut connection = None;
    loop {
        let asked = timeout(lease, access.ping(&address, &mut connection)).await;
        match asked {
            // The address may have become another server's.
            Ok(Ok(pong)) if (pong.server, pong.incarnation) == (server, life) => {
                let coordinates = pong.coordinates;
                let heard = Heard::Pong {
                    server,
                    life,
                    coordinates,
                };
                if to.send(heard).await.is_err() {
                    return;
                }
            }
            _ => connection = None,
        }
        sleep(pause).await;
    }
}

/// Asks a server to host the coordinator of so many servers.
pub(super) async fn host(
    access: Access,
    (server, life, address): (u32, u64, String),
    servers: u32,
    to: Sender<Heard>,
) {
    let asked = timeout(HOST, access.coordinate(&address, servers)).await;
    let hosts = matches!(asked, Ok(Ok(_)));
    let heard = Heard::Hosted {
        server,
        life,
        hosts,
    };
    let _ = to.send(heard).await;
}

/// Asks the coordinator again and again, wherever it is.
pub(super) async fn follow(
    access: Access,
    folder: PathBuf,
    run: RunId,
    pause: Duration,
    to: Sender<Heard>,
) {
    loop {
        if let Ok(Some(there)) = read_address(&folder) {
            let asked = access.status_if_known(&there.address, &run);
            if let Ok(Ok(status)) = timeout(HOST, asked).await
                && to.send(Heard::Status(status.map(Box::new))).await.is_err()
            {
                return;
            }
        }
        sleep(pause).await;
    }
}
