//! How the authorities of a run or a fleet are found and asked. With a launcher there is one. Under Slurm there are up to
//! [`KEEPERS`], which have the same key: each says in a small file of its own where it is, all of them in one folder, and
//! whoever asks tries them in turn.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tower_service::Service;
use tradewind_common::ServerId;

use crate::connector::Connector;

/// How many of the first nodes of servers have a task that keeps the authority's key. Three: the key outlives two nodes, and
/// is in the memory of no more nodes than that, each of which could issue certificates of any name if it were taken over.
pub const KEEPERS: u32 = 3;

/// Which servers have a task that keeps the key: the first one of each of the first [`KEEPERS`] nodes, where each node but the
/// last has so many.
#[derive(Clone, Copy, Debug)]
pub struct Keepers {
    /// At least one.
    pub servers_per_node: u32,
}

impl Keepers {
    /// Which keeper it is, from 0 on, if it is one. The first one founds the authority.
    pub fn number(self, server: ServerId) -> Option<u32> {
        let is_first = server.0.is_multiple_of(self.servers_per_node);
        let number = server.0 / self.servers_per_node;
        (is_first && number < KEEPERS).then_some(number)
    }

    /// Whether it has the key handed on, once there is one.
    pub fn succeeds(self, server: ServerId) -> bool {
        self.number(server).is_some_and(|number| number > 0)
    }
}

/// How long an answer may take, of the last one that is asked.
pub const ANSWER: Duration = Duration::from_secs(10);

/// How long one is asked behind which another one could be: of a node without power nothing ever comes.
const EACH: Duration = Duration::from_secs(3);

/// Longest message of either side: a key, two certificates, or a key with one.
pub const MESSAGE_BYTES_MAX: u64 = 16 << 10;

/// Where an authority is, as its file says it. No secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whereabouts {
    /// host:port
    pub address: String,
    /// Its own certificate, PEM.
    pub certificate: String,
}

/// The file of the keeper of this number, in the folder where they are listed.
pub fn file(listing: &Path, keeper: u32) -> PathBuf {
    listing.join(format!("{keeper}.json"))
}

/// The authorities of one start that are listed in a folder, in the order of their numbers.
///
/// The first one's file is written before all others of a start: one with another certificate is not of this start,
/// and is passed over, as is one that cannot be read.
///
/// # Errors
/// The first one's file cannot be read.
pub fn listed(listing: &Path) -> io::Result<Vec<Whereabouts>> {
    let read = |keeper| -> io::Result<Whereabouts> {
        let path = file(listing, keeper);
        let named = |error: io::Error| {
            let text = format!("cannot read {}: {error}", path.display());
            io::Error::new(error.kind(), text)
        };
        let text = fs::read_to_string(&path).map_err(named)?;
        serde_json::from_str(&text).map_err(|error| named(error.into()))
    };
    let first = read(0)?;
    let others: Vec<_> = (1..KEEPERS)
        .filter_map(|keeper| read(keeper).ok())
        .filter(|other| other.certificate == first.certificate)
        .collect();
    Ok([first].into_iter().chain(others).collect())
}

/// Where somebody's certificates are renewed, as it was told with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RenewedAt {
    /// At this host:port.
    Address(String),
    /// At those that are listed in this folder by then.
    Listing(PathBuf),
}

impl RenewedAt {
    /// As it is written: no host begins like an absolute path.
    pub(crate) fn of(text: &str) -> Self {
        match Path::new(text).is_absolute() {
            true => Self::Listing(text.into()),
            false => Self::Address(text.to_owned()),
        }
    }

    /// Whom to ask now, in this order.
    pub(crate) async fn addresses(&self) -> io::Result<Vec<String>> {
        match self {
            Self::Address(address) => Ok(vec![address.clone()]),
            Self::Listing(listing) => {
                let listing = listing.clone();
                let listed = spawn_blocking(move || listed(&listing));
                let late = |_| io::Error::from(ErrorKind::TimedOut);
                let listed = timeout(ANSWER, listed).await.map_err(late)?;
                let listed = listed.map_err(io::Error::other)??;
                Ok(listed.into_iter().map(|there| there.address).collect())
            }
        }
    }
}

/// What an authority answers who asks for `T`, as JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply<T = String> {
    /// What was asked for: of certificates PEM, the new one and the authority's.
    Issued(T),
    /// Nothing was issued, and nothing will be.
    Refused(Refused),
    /// Nothing could be issued now, and why: it may be asked again.
    Failed(String),
}

/// That an authority gives nothing, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// A word of [`Reason`](crate::refusal::Reason).
    pub reason: String,
    /// The same for people.
    pub text: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text, self.reason)
    }
}

/// No authority has answered; why not, of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAnswer(Vec<(String, String)>);

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (address, why)) in self.0.iter().enumerate() {
            let between = if number == 0 { "" } else { "; " };
            write!(f, "{between}the authority at {address}: {why}")?;
        }
        Ok(())
    }
}

impl std::error::Error for NoAnswer {}

/// Asks those at these addresses in turn, until one gives what is asked for or refuses it.
///
/// # Errors
/// None has: each could not be reached, was too slow, or failed.
pub async fn ask<T: DeserializeOwned>(
    connector: &Connector,
    addresses: &[String],
    question: &impl Serialize,
) -> Result<Result<T, Refused>, NoAnswer> {
    let mut why = Vec::new();
    for (number, address) in addresses.iter().enumerate() {
        let is_last = number + 1 == addresses.len();
        let within = if is_last { ANSWER } else { EACH };
        let failed = match timeout(within, ask_one(connector, address, question)).await {
            Ok(Ok(Reply::Issued(issued))) => return Ok(Ok(issued)),
            Ok(Ok(Reply::Refused(refused))) => return Ok(Err(refused)),
            Ok(Ok(Reply::Failed(why))) => why,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it does not answer within {} s", within.as_secs()),
        };
        why.push((address.clone(), failed));
    }
    Err(NoAnswer(why))
}

/// A line of JSON, and what is answered.
async fn ask_one<T: DeserializeOwned>(
    connector: &Connector,
    address: &str,
    question: &impl Serialize,
) -> io::Result<Reply<T>> {
    let line = serde_json::to_string(question)? + "\n";
    let uri = format!("http://{address}").parse();
    let uri = uri.map_err(io::Error::other)?;
    let mut stream = connector.clone().call(uri).await?.into_inner();
    stream.write_all(line.as_bytes()).await?;
    stream.flush().await?;
    let mut reply = String::new();
    let mut limited = stream.take(MESSAGE_BYTES_MAX);
    limited.read_to_string(&mut reply).await?;
    Ok(serde_json::from_str(&reply)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_server_of_each_of_the_first_nodes_keeps_the_key() {
        let keeping = |servers_per_node| {
            let keepers = Keepers { servers_per_node };
            let numbers = (0..12).map(move |server| keepers.number(ServerId(server)));
            let kept = (0..12).zip(numbers);
            let kept = kept.filter_map(|(server, number)| Some((server, number?)));
            kept.collect::<Vec<(u32, u32)>>()
        };
        assert_eq!(keeping(1), [(0, 0), (1, 1), (2, 2)]);
        assert_eq!(keeping(4), [(0, 0), (4, 1), (8, 2)]);
        assert_eq!(keeping(1024), [(0, 0)]);
        let keepers = Keepers {
            servers_per_node: 4,
        };
        let succeed = [0, 1, 4, 12].map(|server| keepers.succeeds(ServerId(server)));
        assert_eq!(succeed, [false, false, true, false]);
    }

    fn write(listing: &Path, keeper: u32, address: &str, certificate: &str) {
        let there = Whereabouts {
            address: address.into(),
            certificate: certificate.into(),
        };
        fs::write(
            file(listing, keeper),
            serde_json::to_string(&there).unwrap(),
        )
        .unwrap();
    }

    #[test]
    fn those_of_one_start_are_listed_in_order_and_what_is_left_of_others_is_not() {
        let listing = tempfile::tempdir().unwrap();
        let listing = listing.path();
        let addresses = || -> Vec<String> {
            let listed = listed(listing).unwrap();
            listed.into_iter().map(|there| there.address).collect()
        };
        let missing = listed(listing).unwrap_err().to_string();
        assert!(missing.contains("0.json"), "{missing}");
        write(listing, 2, "c:3", "own");
        write(listing, 0, "a:1", "own");
        assert_eq!(addresses(), ["a:1", "c:3"]);
        write(listing, 1, "b:2", "of an earlier start");
        assert_eq!(addresses(), ["a:1", "c:3"]);
        write(listing, 1, "b:2", "own");
        write(listing, KEEPERS, "d:4", "own");
        assert_eq!(addresses(), ["a:1", "b:2", "c:3"]);
        fs::write(file(listing, 2), "{").unwrap();
        assert_eq!(addresses(), ["a:1", "b:2"]);
        fs::write(file(listing, 0), "").unwrap();
        assert!(listed(listing).is_err());
    }

    #[test]
    fn where_it_is_renewed_is_an_address_or_a_listing() {
        for address in ["10.0.0.1:7", "[::1]:7", "node-1:7"] {
            assert_eq!(RenewedAt::of(address), RenewedAt::Address(address.into()));
        }
        let listing = "/runs/climate/slurm/authorities";
        assert_eq!(RenewedAt::of(listing), RenewedAt::Listing(listing.into()));
    }

    #[tokio::test]
    async fn why_nobody_answers_is_told_of_each() {
        // Nobody listens there.
        let addresses = ["127.0.0.1:1", "127.0.0.1:2"].map(str::to_owned);
        let asked = ask::<String>(&Connector::new(None), &addresses, &"?").await;
        let why = asked.unwrap_err().to_string();
        let parts: Vec<_> = why.split("; ").collect();
        assert_eq!(parts.len(), 2, "{why}");
        for (part, address) in parts.iter().zip(&addresses) {
            let begins = format!("the authority at {address}: ");
            assert!(part.starts_with(&begins), "{why}");
        }
    }
}
