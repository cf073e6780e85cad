//! A server that runs: in this process, or as one of its own.

use std::process::Child;

use rustix::process::Signal;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};
use tradewind_common::{RunId, environment};
use tradewind_programs::SERVER;
use tradewind_programs::server::ServerArguments;
use tradewind_server::Config;

use crate::cluster::disk::Disks;
use crate::cluster::process::signal;
use crate::cluster::{programs, wait_for};

pub(super) enum Serving {
    /// Threads of this process.
    Here {
        runtime: Runtime,
        stop: oneshot::Sender<()>,
        ended: JoinHandle<anyhow::Result<()>>,
    },
    /// A process.
    Apart(Child),
}

impl Serving {
    /// Starts the program, and waits until it listens; host:port.
    pub(super) fn start(disks: &Disks, config: &Config, token: &str) -> (Self, String) {
        let server = config.server.0;
        let told = disks.address(server);
        let _ = std::fs::remove_file(&told);
        let arguments = ServerArguments {
            folder: config.folder.clone(),
            resume: config.resume.as_ref().map(RunId::to_string),
            host: Some(config.host.clone()),
            lease_ms: config.lease_ms,
            address_file: Some(told.clone()),
            stand_in: config.stand_in,
            linger_ms: config.linger_ms,
            incarnation: config.incarnation,
            ..ServerArguments::plain(server, config.coordinator.clone())
        };
        let mut command = arguments.to_command(&programs().join(SERVER));
        command.env(environment::TOKEN, token);
        command.env_remove(environment::LOG);
        disks.under(server, &mut command);
        let mut child = command.spawn().expect("the program starts");
        let address = wait_for("a server's address", || {
            let ended = child.try_wait().expect("a child");
            assert!(ended.is_none(), "server {server}: {}", disks.log(server));
            std::fs::read_to_string(&told).ok()
        });
        (Self::Apart(child), address)
    }

    /// Ends it where it is.
    pub(super) fn kill(self) {
        match self {
            Self::Here { runtime, .. } => runtime.shutdown_background(),
            Self::Apart(mut child) => {
                let _ = child.kill();
                child.wait().expect("a child");
            }
        }
    }

    /// Whether it has ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        match self {
            Self::Here { ended, .. } => ended.is_finished(),
            Self::Apart(child) => child.try_wait().expect("a child").is_some(),
        }
    }

    /// Tells it to end, and waits until it has; whether it ended well.
    pub(super) async fn terminate(self) -> bool {
        match self {
            Self::Here {
                runtime,
                stop,
                ended,
            } => {
                let _ = stop.send(());
                let ended = ended.await;
                runtime.shutdown_background();
                matches!(ended, Ok(Ok(())))
            }
            Self::Apart(mut child) => {
                signal(child.id(), Signal::TERM);
                let ended = move || child.try_wait().expect("a child");
                let ended = move || wait_for("a server to end", ended);
                let ended = spawn_blocking(ended).await;
                ended.is_ok_and(|status| status.success())
            }
        }
    }
}
