//! Strangers who connect to the servers of a run and show nothing: they take no place from it.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;
use tonic::transport::Endpoint;
use tradewind_history::check;
use tradewind_proto::v1::PingRequest;
use tradewind_proto::v1::host_client::HostClient;
use tradewind_recorded::{Plan, Recorded};

/// Descriptors of a server: fewer than strangers come.
const DESCRIPTORS: u64 = 128;

/// Who connects to each server and says nothing.
const STRANGERS: usize = 300;

/// Connections that may be open without a token there: a quarter of those that so many descriptors are for.
const STRANGERS_OPEN_MAX: usize = 21;

/// For a slow and noisy machine: who is shut out is so for good.
const ANSWER: Duration = Duration::from_secs(60);

/// One server could take the whole run down: it hosts the coordinator and all blocks, and writes snapshots.
fn plan(seed: u64) -> Plan {
    Plan {
        seed,
        groups: 2,
        blocks: 4,
        servers: 2,
        replication: 2,
        bound: None,
        snapshot_ms: 500,
        patience_ms: 60_000,
        descriptors: Some(DESCRIPTORS),
    }
}

/// Whether the other end has not closed it.
fn is_open(mut connection: &TcpStream) -> bool {
    connection.set_nonblocking(true).unwrap();
    let read = connection.read(&mut [0; 1024]);
    matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// A call on a connection of its own.
async fn ping(address: &str) {
    let endpoint = Endpoint::try_from(format!("http://{address}")).unwrap();
    // As clients do, it connects again where it was turned away.
    let asked = async {
        loop {
            let mut host = HostClient::new(endpoint.connect_lazy());
            match host.ping(PingRequest {}).await {
                Ok(_) => return,
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    };
    let answered = timeout(ANSWER, asked).await;
    answered.unwrap_or_else(|_| panic!("{address} answers nobody who comes now"));
}

/// Waits until at most so many are open.
fn few(recorded: &Recorded, most: usize, open: impl Fn() -> usize) {
    for _ in 0..1_200 {
        if open() <= most {
            return;
        }
        recorded.pause(Duration::from_millis(100));
    }
    panic!("{} are open, and not {most}", open());
}

/// The limits that servers have told that were reached.
fn limits(recorded: &Recorded) -> Vec<String> {
    let path = recorded.servers.folder().join("events.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let events = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let limit = |event: Value| event["limit"].as_str().map(str::to_owned);
    events.filter_map(limit).collect()
}

#[test]
fn idle_strangers_do_not_stop_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let recorded = Recorded::start(plan(33), folder.path());
    recorded.goes_on(5);
    let addresses = recorded.addresses();
    assert_eq!(addresses.len(), 2);
    let connect = |address: &String| TcpStream::connect(address).unwrap();
    let strangers: Vec<(&String, TcpStream)> = addresses
        .iter()
        .flat_map(|address| (0..STRANGERS).map(move |_| (address, connect(address))))
        .collect();
    recorded.goes_on(20);
    // Somebody new behind all of them, too.
    recorded.block_on(async {
        for address in &addresses {
            ping(address).await;
        }
    });
    for address in &addresses {
        let open = || {
            let of_it = strangers.iter().filter(|(at, _)| *at == address);
            of_it.filter(|(_, stranger)| is_open(stranger)).count()
        };
        few(&recorded, STRANGERS_OPEN_MAX, open);
    }
    recorded.goes_on(20);
    // Those that gave no way are closed when they have had their time.
    let open = || strangers.iter().filter(|(_, one)| is_open(one)).count();
    few(&recorded, 0, open);
    recorded.goes_on(5);
    let told = limits(&recorded);
    let is_told = |limit: &str| told.iter().any(|told| told == limit);
    assert!(is_told("strangers") && is_told("unshown"), "{told:?}");
    assert!(!is_told("descriptors"), "{told:?}");
    check(&recorded.end()).unwrap();
}
