//! `tradewind-server`: shards of many runs, and on one server the coordinator.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_blocking;
use tradewind_common::exit::Exit;
use tradewind_common::{RunId, ServerId};
use tradewind_process::{log, supervise, whole};
use tradewind_programs::server::{CoordinatorAt, ServerArguments};
use tradewind_proto::auth::Credentials;
use tradewind_server::{Config, ShutOut, serve, telemetry};
use tradewind_traces::Tracer;

/// Memory of finished transfers is used again: fresh pages cost more than the copies into them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How often it is tried again to write where there was no room.
const ROOM_PAUSE: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    tradewind_process::run(|| {
        log::start(telemetry::log_lost);
        begin()
    })
}

fn begin() -> ExitCode {
    let arguments = ServerArguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(arguments.threads.max(1))
        .enable_all()
        .build();
    let ran = runtime
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(run(arguments)));
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            match error.is::<ShutOut>() {
                true => Exit::Left.into(),
                false => ExitCode::FAILURE,
            }
        }
    }
}

/// A file that a limit (`ulimit -f`) lets grow no further is an error as a full disk is: by default the
/// signal that comes with it ends the process.
fn survive_file_limits() -> std::io::Result<()> {
    /// On Linux for x86-64, ARM and RISC-V.
    const SIGXFSZ: i32 = 25;
    // A handler stays when its receiver is dropped.
    signal(SignalKind::from_raw(SIGXFSZ)).map(drop)
}

async fn run(arguments: ServerArguments) -> anyhow::Result<()> {
    survive_file_limits().context("cannot handle SIGXFSZ")?;
    let listener = TcpListener::bind(&arguments.listen)
        .await
        .with_context(|| format!("cannot listen on {}", arguments.listen))?;
    let bound = listener.local_addr()?;
    let address = match arguments.advertise {
        Some(host) if host.contains(':') => format!("[{host}]:{}", bound.port()),
        Some(host) => format!("{host}:{}", bound.port()),
        None => bound.to_string(),
    };
    if let Some(metrics) = arguments.metrics {
        serve_metrics(metrics).with_context(|| format!("cannot serve metrics on {metrics}"))?;
    }
    let credentials = Credentials::from_env()?;
    if let Some(collector) = &arguments.otlp {
        let process = format!("server {}", arguments.server);
        let runtime = Handle::current();
        telemetry::traced(Tracer::start(
            collector,
            process,
            credentials.token().secret(),
            &runtime,
        )?);
    }
    if arguments.coordinator == (CoordinatorAt::Here { servers: 0 }) {
        anyhow::bail!("--coordinate 0: a fleet has at least 1 server");
    }
    if let Some(path) = &arguments.address_file {
        write_address(path, &address).await?;
    }
    tracing::info!(server = arguments.server, %address, "listening");
    let config = Config {
        server: ServerId(arguments.server),
        incarnation: arguments.incarnation,
        host: arguments
            .host
            .unwrap_or_else(|| host_of(&address).to_owned()),
        address: arguments.reached_at.unwrap_or(address),
        coordinator: arguments.coordinator,
        credentials,
        folder: arguments.folder,
        resume: arguments.resume.map(RunId::new).transpose()?,
        lease_ms: arguments.lease_ms,
        stand_in: arguments.stand_in,
        linger_ms: arguments.linger_ms,
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let served = serve(listener, config, async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
    .await;
    spawn_blocking(telemetry::flush_traces).await?;
    served
}

fn serve_metrics(at: SocketAddr) -> anyhow::Result<()> {
    let builder = metrics_exporter_prometheus::PrometheusBuilder::new().with_http_listener(at);
    let (recorder, exporter) = builder.build()?;
    metrics::set_global_recorder(recorder)?;
    telemetry::served();
    supervise("the exporter of metrics", async {
        let ended = exporter.await;
        panic!("it serves no metrics any more: {ended:?}")
    });
    Ok(())
}

/// The host of host:port.
fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// Writes the address once there is room for it: a server that was killed while the disk is full is
/// needed again as soon as there is.
async fn write_address(path: &Path, address: &str) -> anyhow::Result<()> {
    let mut told = false;
    loop {
        let written = whole::write(path, address);
        if !written.as_ref().is_err_and(lacks_room) {
            let cannot = || format!("cannot write the address to {}", path.display());
            return written.with_context(cannot);
        }
        if !std::mem::replace(&mut told, true) {
            let path = path.display();
            tracing::warn!("there is no room to write the address to {path}; waiting for some");
        }
        tokio::time::sleep(ROOM_PAUSE).await;
    }
}

fn lacks_room(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), FileTooLarge | QuotaExceeded | StorageFull)
}
