//! `tradewind watch`: the page of runs, on loopback or for other machines.

use std::fmt::Display;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use rustix::system::uname;
use tokio::net::{TcpListener, lookup_host};
use tradewind_folder::found::FoundRun;
use tradewind_folder::input::{self, BadInput};
use tradewind_folder::runtime::one_thread;
use tradewind_launch::run::{Interruption, secret};
use tradewind_process::Docs;
use tradewind_process::log::say;

use crate::certificate::Certificate;
use crate::connections;
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
    /// Name or address of this machine to serve the page on. Beyond loopback it is served under TLS.
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    host: String,
    /// Certificate of the host, PEM, for a page under TLS; one that is made for this page if not given.
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Private key of the certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
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
    let host = address(&arguments.host).await?;
    let certificate = certificate(arguments, host)?;
    let runs = targets::find(&arguments.runs)?;
    let listener = listen(arguments, host).await?;
    let address = listener.local_addr()?;
    let token = secret()?;
    let mut interruption = Interruption::new()?;
    say(told(
        &runs,
        &Address {
            host: &arguments.host,
            address,
            certificate: certificate.as_ref(),
        },
        &token,
    ));
    let site = router(site(runs, token)?);
    tokio::select! {
        () = connections::serve(listener, certificate, site) => Ok(()),
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

/// An address of this host: one that other machines reach, if it has one.
async fn address(host: &str) -> anyhow::Result<IpAddr> {
    let found = lookup_host((host, 0)).await;
    let found: Vec<IpAddr> = match found {
        Ok(found) => found.map(|address| address.ip()).collect(),
        Err(why) => return Err(not_here(host, &why)),
    };
    let beyond = found.iter().find(|ip| !ip.is_loopback());
    match (beyond, found.first()) {
        (Some(ip), _) => Ok(*ip),
        (None, Some(ip)) if host == "localhost" || host.parse::<IpAddr>().is_ok() => Ok(*ip),
        // As many systems have it in /etc/hosts.
        (None, Some(ip)) => Err(BadInput(format!(
            "--host {host} is {ip} on this machine, which others do not reach: give an address that they do, or 0.0.0.0"
        ))
        .into()),
        (None, None) => Err(not_here(host, &"it has none")),
    }
}

fn not_here(host: &str, why: &dyn Display) -> anyhow::Error {
    BadInput(format!(
        "--host {host} is no address of this machine: {why}"
    ))
    .into()
}

/// The user's certificate, or one that is made for this page where other machines reach it.
fn certificate(arguments: &Arguments, host: IpAddr) -> anyhow::Result<Option<Certificate>> {
    match (&arguments.certificate, &arguments.key) {
        (Some(certificate), Some(key)) => Certificate::of_files(certificate, key).map(Some),
        _ if host.is_loopback() => Ok(None),
        _ => Certificate::for_hosts(vec![shown(&arguments.host, host), host.to_string()]).map(Some),
    }
}

/// What others call the host: this machine's name for one that stands for all of its addresses.
fn shown(named: &str, host: IpAddr) -> String {
    match host.is_unspecified() {
        true => uname().nodename().to_string_lossy().into_owned(),
        false => named.to_owned(),
    }
}

async fn listen(arguments: &Arguments, host: IpAddr) -> anyhow::Result<TcpListener> {
    let wanted = arguments.port.unwrap_or(PORT);
    match TcpListener::bind((host, wanted)).await {
        Err(why) if arguments.port.is_none() && why.kind() == ErrorKind::AddrInUse => {
            TcpListener::bind((host, 0)).await.context("cannot listen")
        }
        Err(why) if why.kind() == ErrorKind::AddrNotAvailable => {
            Err(not_here(&arguments.host, &why))
        }
        listener => listener.with_context(|| format!("cannot listen on port {wanted}")),
    }
}

/// Where a page is.
struct Address<'a> {
    /// As it was asked for.
    host: &'a str,
    address: SocketAddr,
    certificate: Option<&'a Certificate>,
}

/// What is said at the beginning.
fn told(runs: &[FoundRun], at: &Address<'_>, token: &str) -> String {
    let names: Vec<&str> = runs.iter().map(|run| run.config.name.as_str()).collect();
    let what = match names[..] {
        [name] => format!("run {name}"),
        _ => format!("{} runs: {}", names.len(), names.join(", ")),
    };
    let (address, port) = (at.address, at.address.port());
    let ends = "Ctrl-C ends the page, not the run";
    match at.certificate {
        None => format!(
            "{what}\nhttp://{address}/?token={token}\n{ends}; from elsewhere: ssh -L {port}:{address} THIS_MACHINE, then \
             the same address"
        ),
        Some(Certificate { fingerprint, .. }) => {
            let host = match shown(at.host, address.ip()) {
                ip if ip.contains(':') => format!("[{ip}]"),
                host => host,
            };
            format!(
                "{what}\nhttps://{host}:{port}/?token={token}\nSHA-256 of its certificate, which a browser shows when it \
                 does not know it:\n{fingerprint}\n{ends}"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::*;
    use tradewind_folder::runtime::one_thread;

    fn asked(words: &[&str]) -> Result<Arguments, clap::Error> {
        let words = std::iter::once("watch").chain(words.iter().copied());
        let matches = Arguments::augment_args(Command::new("watch")).try_get_matches_from(words)?;
        Arguments::from_arg_matches(&matches)
    }

    #[test]
    fn beyond_loopback_a_page_has_a_certificate() {
        let told_of = |words: &[&str]| {
            let arguments = asked(words).unwrap();
            let host = one_thread().unwrap().block_on(address(&arguments.host))?;
            let certificate = certificate(&arguments, host)?;
            let at = Address {
                host: &arguments.host,
                address: (host, 7070).into(),
                certificate: certificate.as_ref(),
            };
            anyhow::Ok(told(&[], &at, "secret"))
        };
        let clear = told_of(&[]).unwrap();
        assert!(
            clear.contains("\nhttp://127.0.0.1:7070/?token=secret\n"),
            "{clear}"
        );
        let v6 = told_of(&["--host", "::1"]).unwrap();
        assert!(v6.contains("\nhttp://[::1]:7070/"), "{v6}");
        // Of a network for documentation, RFC 5737 and 3849: nothing is listened on.
        let other = told_of(&["--host", "192.0.2.1"]).unwrap();
        assert!(
            other.contains("\nhttps://192.0.2.1:7070/?token=secret\n"),
            "{other}"
        );
        let (_, fingerprint) = other.split_once("SHA-256").unwrap();
        assert_eq!(
            fingerprint.lines().nth(1).unwrap().split(':').count(),
            32,
            "{other}"
        );
        let v6 = told_of(&["--host", "2001:db8::1"]).unwrap();
        assert!(v6.contains("\nhttps://[2001:db8::1]:7070/"), "{v6}");
        let any = told_of(&["--host", "0.0.0.0"]).unwrap();
        let name = uname().nodename().to_string_lossy().into_owned();
        assert!(any.contains(&format!("\nhttps://{name}:7070/")), "{any}");
        let nowhere = told_of(&["--host", "nowhere.invalid"])
            .unwrap_err()
            .to_string();
        assert!(
            nowhere.starts_with("--host nowhere.invalid is no address of this machine: "),
            "{nowhere}"
        );
        let files = [
            "--certificate",
            "/nowhere/own.pem",
            "--key",
            "/nowhere/own.key",
        ];
        let missing = told_of(&files).unwrap_err().to_string();
        assert!(
            missing.starts_with("--certificate /nowhere/own.pem: "),
            "{missing}"
        );
        assert!(asked(&files[..2]).is_err());
    }
}
