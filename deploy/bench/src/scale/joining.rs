//! Ranks that join a real coordinator over the network, each on a connection of its own, and keep their
//! leases.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tradewind_client::away::Away;
use tradewind_client::network::{Authorized, Reach};
use tradewind_client::stopwatch::Stopwatch;
use tradewind_launch::{Process, Role, beside, environment, wait_for_address};
use tradewind_programs::SERVER;
use tradewind_programs::server::{CoordinatorAt, ServerArguments};
use tradewind_programs::worker::THREADS;
use tradewind_proto::auth::Credentials;
use tradewind_proto::v1::coordinator_client::CoordinatorClient;
use tradewind_proto::v1::{Beat, JoinReply, JoinRequest};

use super::coordinator::spec;
use crate::Stop;
use crate::folder::measured;
use tradewind_launch::run::secret;

/// As `liveness.lease_ms` is by default.
const LEASE: Duration = Duration::from_secs(20);

/// Beats in a lease.
const BEATS: u32 = 6;

/// How long ranks are watched after all have joined: none may be lost in that time.
const WATCHED: Duration = Duration::from_secs(5);

/// How long a rank tries to reach the coordinator.
const RETRY: Duration = Duration::from_secs(60);

/// The run that they are in.
pub(super) const RUN: &str = "scale";

/// Connections to one address of this machine: by default a system has 28,232 ports for them.
pub(super) const CONNECTIONS_AN_ADDRESS: u32 = 20_000;

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct JoiningReport {
    groups: u32,
    /// In each.
    ranks: u32,
    /// From the first connection to the last rank that has heard that it has joined.
    seconds: f64,
    /// From a beat to its answer, the latest of all.
    beat_seconds_max: f64,
    /// Ranks of which the coordinator says that they were lost.
    lost: usize,
    /// What the server has written to disk.
    written_bytes: u64,
    written_bytes_a_rank: f64,
    /// Processor time of the server.
    server_cpu_seconds: f64,
    /// The most memory that it has held.
    server_peak_bytes: u64,
}

impl JoiningReport {
    pub(super) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and names")
    }

    /// For people.
    pub(super) fn table(&self) -> String {
        let ranks = u64::from(self.groups) * u64::from(self.ranks);
        format!(
            "{} groups of {} joined in {:.2} s; the latest answer to a beat took {:.2} s; {} lost\n\
             the server took {:.1} s of processor time, {:.0} kB of memory a rank at most, and wrote {:.2} kB a rank",
            self.groups,
            self.ranks,
            self.seconds,
            self.beat_seconds_max,
            self.lost,
            self.server_cpu_seconds,
            self.server_peak_bytes as f64 / 1e3 / ranks as f64,
            self.written_bytes_a_rank / 1e3,
        )
    }
}

/// What all ranks share.
struct Shared {
    reach: Reach,
    reached: Reached,
    join: JoinRequest,
    joined: AtomicU64,
    /// Microseconds.
    latest_beat: AtomicU64,
}

pub(super) fn measure(
    groups: u32,
    ranks: u32,
    server_threads: usize,
) -> Result<JoiningReport, Stop> {
    measured(async |folder| joining(folder, groups, ranks, server_threads).await)
}

/// The threads of all ranks; the other half of the cores is the server's.
struct Threads(Option<Runtime>);

impl Threads {
    fn start() -> anyhow::Result<Self> {
        let cores = available_parallelism().map_or(1, NonZero::get);
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads((cores / 2).max(1)).enable_all();
        Ok(Self(Some(builder.build()?)))
    }

    fn spawn<T: Send + 'static>(
        &self,
        tasks: &mut JoinSet<T>,
        task: impl Future<Output = T> + Send + 'static,
    ) {
        let runtime = self.0.as_ref().expect("until it is dropped");
        tasks.spawn_on(task, runtime.handle());
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // A runtime that is just dropped waits for its threads, which a task of another one must not.
        let runtime = self.0.take().expect("until it is dropped");
        runtime.shutdown_background();
    }
}

async fn joining(
    folder: &Path,
    groups: u32,
    ranks: u32,
    server_threads: usize,
) -> anyhow::Result<JoiningReport> {
    let token = secret()?;
    let all = u64::from(groups) * u64::from(ranks);
    let (mut server, reached) = start(Some(folder), folder, &token, server_threads, all)?;
    let mut spec = spec(1, groups);
    spec.group_sizes = vec![ranks; groups as usize];
    spec.lease_ms = LEASE.as_millis() as u64;
    spec.start_grace_ms = RETRY.as_millis() as u64;
    let shared = Arc::new(Shared {
        reach: Reach {
            credentials: Credentials::new(&token, None)?,
            retry: RETRY,
            connections: 1,
        },
        reached,
        join: JoinRequest {
            run: RUN.into(),
            life: 1,
            spec: Some((&spec).into()),
            ..JoinRequest::default()
        },
        joined: AtomicU64::new(0),
        latest_beat: AtomicU64::new(0),
    });
    let threads = Threads::start()?;
    let watch = Stopwatch::start();
    let mut tasks = JoinSet::new();
    for group in 0..groups {
        for rank in 0..ranks {
            threads.spawn(&mut tasks, shared.clone().rank(group, rank, ranks));
        }
    }
    let bar = crate::progress(all as usize);
    let mut seconds = None;
    let mut ended = Stopwatch::start();
    loop {
        let joined = shared.joined.load(Ordering::Relaxed);
        bar.set_position(joined);
        if joined < all {
            ended = Stopwatch::start();
        } else {
            seconds = seconds.or_else(|| Some(watch.elapsed().as_secs_f64()));
            if ended.elapsed() >= WATCHED {
                break;
            }
        }
        if let Some(end) = server.0.poll()? {
            return Err(end.into());
        }
        tokio::select! {
            Some(failed) = tasks.join_next() => failed?.context("a rank does not stay")?,
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
    }
    bar.finish_and_clear();
    let pid = server.0.pid();
    let written_bytes = written(pid)?;
    let events = std::fs::read_to_string(folder.join("events.jsonl")).unwrap_or_default();
    Ok(JoiningReport {
        groups,
        ranks,
        seconds: seconds.expect("all have joined"),
        beat_seconds_max: shared.latest_beat.load(Ordering::Relaxed) as f64 / 1e6,
        lost: events.matches("\"rank_lost\"").count(),
        written_bytes,
        written_bytes_a_rank: written_bytes as f64 / all as f64,
        server_cpu_seconds: crate::usage::cpu_seconds(pid)?,
        server_peak_bytes: crate::usage::peak_rss_bytes(pid)?,
    })
}

/// Ends when it is dropped.
pub(super) struct Server(Process);

impl Server {
    pub(super) fn pid(&self) -> u32 {
        self.0.pid()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        Process::stop_all(vec![&mut self.0]);
    }
}

/// Where a server is reached from its own machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reached {
    /// Where it says that it is.
    address: SocketAddr,
    /// At every other address of this machine, too: one has not enough ports for all connections.
    everywhere: bool,
}

impl Reached {
    /// At this address alone.
    pub(super) fn at(address: &str) -> anyhow::Result<Self> {
        let address = address.parse();
        Ok(Self {
            address: address.context("a server writes no address")?,
            everywhere: false,
        })
    }

    /// For the connection of this number.
    pub(super) fn by(&self, number: u64) -> String {
        let mut address = self.address;
        if self.everywhere {
            // The first is left to those who are told where it is.
            let nth = 2 + number / u64::from(CONNECTIONS_AN_ADDRESS);
            let [high, low] = (nth as u16).to_be_bytes();
            address.set_ip(Ipv4Addr::new(127, 0, high, low).into());
        }
        address.to_string()
    }
}

/// A server with the coordinator, its log in `folder`, for so many connections. Without a place where it keeps things
/// nothing is written.
pub(super) fn start(
    kept: Option<&Path>,
    folder: &Path,
    token: &str,
    threads: usize,
    connections: u64,
) -> anyhow::Result<(Server, Reached)> {
    let file = folder.join("address");
    let everywhere = connections > u64::from(CONNECTIONS_AN_ADDRESS);
    let mut arguments = ServerArguments {
        folder: kept.map(Path::to_owned),
        address_file: Some(file.clone()),
        threads,
        ..ServerArguments::plain(0, CoordinatorAt::Here { servers: 1 })
    };
    if everywhere {
        arguments.listen = "0.0.0.0:0".into();
        arguments.advertise = Some(Ipv4Addr::LOCALHOST.to_string());
    }
    let environment: BTreeMap<_, _> = environment(token, None, THREADS);
    let role = Role::Bench("server", 0);
    let log = folder.join("server.log");
    let words = arguments.words();
    let mut process = Process::start(role, &beside(SERVER)?, &words, &environment, &log)?;
    let address = wait_for_address(&mut process, &file);
    let process = Server(process);
    let reached = Reached {
        everywhere,
        ..Reached::at(&address?)?
    };
    Ok((process, reached))
}

impl Shared {
    /// Joins, and beats until it is dropped.
    async fn rank(self: Arc<Self>, group: u32, rank: u32, ranks: u32) -> anyhow::Result<()> {
        let number = u64::from(group) * u64::from(ranks) + u64::from(rank);
        let address = self.reached.by(number);
        let mut away = Away::new(number);
        away.begin();
        let (mut client, joined) = loop {
            match self.try_join(&address, group, rank).await {
                Ok(joined) => break joined,
                // As ranks do: the server may not have registered yet, or had to close a connection for others.
                Err(error) if away.so_far() >= RETRY => return Err(error),
                Err(_) => tokio::time::sleep(away.pause()).await,
            }
        };
        self.joined.fetch_add(1, Ordering::Relaxed);
        let beat = Beat {
            run: RUN.into(),
            group,
            incarnation: joined.incarnation,
            rank,
            ..Beat::default()
        };
        let (beats, out) = mpsc::channel(1);
        let out = futures_util::stream::unfold(out, async |mut out: mpsc::Receiver<Beat>| {
            Some((out.recv().await?, out))
        });
        let mut sent = Stopwatch::start();
        beats.send(beat.clone()).await?;
        let mut replies = client.keep_lease(Box::pin(out)).await?.into_inner();
        loop {
            if replies.message().await?.is_none() {
                bail!("the coordinator has ended the beats of rank {rank} of group {group}");
            }
            let took = sent.elapsed().as_micros() as u64;
            self.latest_beat.fetch_max(took, Ordering::Relaxed);
            tokio::time::sleep(LEASE / BEATS).await;
            sent = Stopwatch::start();
            beats.send(beat.clone()).await?;
        }
    }
}

impl Shared {
    /// Over a connection of its own.
    async fn try_join(
        &self,
        address: &str,
        group: u32,
        rank: u32,
    ) -> anyhow::Result<(CoordinatorClient<Authorized>, JoinReply)> {
        let mut client = CoordinatorClient::new(self.reach.connect(address).await?);
        let request = JoinRequest {
            group,
            rank,
            ..self.join.clone()
        };
        let joined = client.join(request).await?.into_inner();
        Ok((client, joined))
    }
}

/// Bytes that a process has had written to disk.
fn written(pid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/io");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let mut lines = text.lines();
    let bytes = lines.find_map(|line| line.strip_prefix("write_bytes: "));
    let bytes = bytes.with_context(|| format!("{path} names no bytes that were written"))?;
    Ok(bytes.trim().parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_connections_are_spread_over_addresses_of_this_machine() {
        let mut reached = Reached {
            address: ([127, 0, 0, 1], 4000).into(),
            everywhere: false,
        };
        assert_eq!(reached.by(1_000_000), "127.0.0.1:4000");
        reached.everywhere = true;
        for (number, want) in [
            (0, "127.0.0.2:4000"),
            (19_999, "127.0.0.2:4000"),
            (20_000, "127.0.0.3:4000"),
            (6_000_000, "127.0.1.46:4000"),
        ] {
            assert_eq!(reached.by(number), want);
        }
    }
}
