//! `tradewind watch`: the page of runs, on this machine.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use tokio::net::{TcpListener, lookup_host};
use tradewind_folder::found::FoundRun;
use tradewind_folder::input::{self, BadInput};
use tradewind_folder::runtime::one_thread;
use tradewind_launch::run::{Interruption, secret};
use tradewind_process::Docs;
use tradewind_process::log::say;

use crate::http::{Site, router};
use crate::observe::observe;
use crate::targets;

/// Where the page is if nobody says otherwise and nothing else is there.
const PORT: u16 = 7070;

/// What is typed behind `tradewind watch`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Folders of runs, shown side by side; of a fleet all of its runs, of an experiment those of its cells. The
    /// newest run in runs/ if none is given.
    runs: Vec<PathBuf>,
    /// Port of the page; 7070 or, if that is taken, a free one if not given.
    #[arg(long)]
    port: Option<u16>,
    /// Address of this machine to serve the page on. Only loopback is possible yet.
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    host: String,
}

/// Serves the page until Ctrl-C.
pub fn run(arguments: &Arguments) -> ExitCode {
    let served = one_thread().map_err(Into::into);
    match served.and_then(|runtime| runtime.block_on(serve(arguments))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => input::fail(&error, Docs::WATCHING).into(),
    }
}

async fn serve(arguments: &Arguments) -> anyhow::Result<()> {
    let host = loopback(&arguments.host).await?;
    let runs = targets::find(&arguments.runs)?;
    let listener = listen(host, arguments.port).await?;
    let address = listener.local_addr()?;
    let token = secret()?;
    let mut interruption = Interruption::new()?;
    say(told(&runs, address, &token));
    let site = site(runs, token)?;
    let served = axum::serve(listener, router(site));
    tokio::select! {
        ended = served => Ok(ended?),
        // Browsers keep their connections for as long as there is news: nobody waits for them.
        _ = interruption.wait() => Ok(()),
    }
}

/// The site of these runs, each looked at from now on. Call it within a runtime.
pub(crate) fn site(runs: Vec<FoundRun>, token: String) -> anyhow::Result<Site> {
    let shown = runs.into_iter().map(|place| {
        let path = place.path.clone();
        Ok((path, observe(place)?))
    });
    Ok(Site::new(
        token,
        &secret()?,
        shown.collect::<anyhow::Result<_>>()?,
    ))
}

/// The address that a host has on this machine's loopback.
async fn loopback(host: &str) -> anyhow::Result<IpAddr> {
    let found = lookup_host((host, 0)).await;
    let found: Vec<IpAddr> = match found {
        Ok(found) => found.map(|address| address.ip()).collect(),
        Err(error) => {
            return Err(BadInput(format!(
                "--host {host} is no address of this machine: {error}"
            ))
            .into());
        }
    };
    match found.first() {
        Some(first) if found.iter().all(IpAddr::is_loopback) => Ok(*first),
        _ => {
            let text = format!(
                "--host {host} can be reached from other machines, and the page is not encrypted yet (TLS), so it is \
                 served on loopback alone; from elsewhere: ssh -L {PORT}:{}:{PORT} THIS_MACHINE",
                Ipv4Addr::LOCALHOST
            );
            Err(BadInput(text).into())
        }
    }
}

async fn listen(host: IpAddr, port: Option<u16>) -> anyhow::Result<TcpListener> {
    let wanted = port.unwrap_or(PORT);
    match TcpListener::bind((host, wanted)).await {
        Err(error) if port.is_none() && error.kind() == ErrorKind::AddrInUse => {
            TcpListener::bind((host, 0)).await.context("cannot listen")
        }
        listener => listener.with_context(|| format!("cannot listen on port {wanted}")),
    }
}

/// What is said at the beginning.
fn told(runs: &[FoundRun], address: SocketAddr, token: &str) -> String {
    let names: Vec<&str> = runs.iter().map(|run| run.config.name.as_str()).collect();
    let what = match names[..] {
        [name] => format!("run {name}"),
        _ => format!("{} runs: {}", names.len(), names.join(", ")),
    };
    let port = address.port();
    format!(
        "{what}\nhttp://{address}/?token={token}\nCtrl-C ends the page, not the run; from elsewhere: ssh -L \
         {port}:{address} THIS_MACHINE, then the same address"
    )
}
