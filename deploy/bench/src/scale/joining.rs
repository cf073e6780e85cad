//! Ranks that join a real coordinator over the network, each on a connection of its own or those of a group on one, and keep
//! their leases.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZero;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{available_parallelism, spawn};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
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

/// The ranks of the first groups, of so many and at least of one group, have a thread to themselves: they wait for the server, as
/// ranks of a real run do, and not for thousands of others. They beat more often.
const PROBES: u32 = 16;
const PROBES_BEAT: Duration = Duration::from_millis(50);

/// How long ranks are watched after all have joined: none may be lost in that time.
const WATCHED: Duration = Duration::from_secs(5);

/// How long a rank tries to reach the coordinator.
const RETRY: Duration = Duration::from_secs(60);

/// So many connect at a time until they have joined, or for [`CONNECTS`]: as many as a server lets in that have shown no token
/// yet. It would close others before this process, which is many ranks, had found the time to send theirs.
const AT_A_TIME: usize = 256;
const CONNECTS: Duration = Duration::from_millis(250);

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
    /// From a beat to its answer, the latest of all. Most ranks share a few threads, and wait for each other.
    beat_seconds_max: f64,
    /// The latest of those that have a thread to themselves.
    probe_beat_seconds_max: f64,
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
            "{} groups of {} joined in {:.2} s; the latest answer to a beat took {:.2} s, and {:.2} s of a few ranks that \
             have a thread to themselves; {} lost\n\
             the server took {:.1} s of processor time, {:.0} kB of memory a rank at most, and wrote {:.2} kB a rank",
            self.groups,
            self.ranks,
            self.seconds,
            self.beat_seconds_max,
            self.probe_beat_seconds_max,
            self.lost,
            self.server_cpu_seconds,
            self.server_peak_bytes as f64 / 1e3 / ranks as f64,
            self.written_bytes_a_rank / 1e3,
        )
    }
}

/// A rank.
#[derive(Clone, Copy)]
struct One {
    group: u32,
    rank: u32,
    /// Among all ranks.
    number: u64,
    /// Over which it joins.
    connection: u64,
    /// Has a thread with few others.
    is_probe: bool,
}

/// What all ranks share.
struct Shared {
    reach: Reach,
    reached: Reached,
    join: JoinRequest,
    at_a_time: Semaphore,
    /// One for each rank, or for each group.
    connections: Vec<Mutex<Option<Authorized>>>,
    joined: AtomicU64,
    /// Microseconds.
    latest_beat: AtomicU64,
    latest_probe: AtomicU64,
}

pub(super) fn measure(
    groups: u32,
    ranks: u32,
    shared: bool,
    server_threads: usize,
) -> Result<JoiningReport, Stop> {
    measured(async |folder| joining(folder, (groups, ranks), shared, server_threads).await)
}

/// Threads of ranks, each with a runtime of its own: one for all threads would let tasks wait that are not its newest.
struct Threads(Vec<(Handle, oneshot::Sender<()>)>);

impl Threads {
    fn start(threads: usize) -> anyhow::Result<Self> {
        let thread = |_| {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (ends, ended) = oneshot::channel::<()>();
            let handle = runtime.handle().clone();
            spawn(move || runtime.block_on(ended));
            Ok((handle, ends))
        };
        let threads: anyhow::Result<_> = (0..threads).map(thread).collect();
        threads.map(Self)
    }

    /// On the thread for this number.
    fn spawn<T: Send + 'static>(
        &self,
        tasks: &mut JoinSet<T>,
        number: u64,
        task: impl Future<Output = T> + Send + 'static,
    ) {
        let (runtime, _) = &self.0[number as usize % self.0.len()];
        tasks.spawn_on(task, runtime);
    }
}

async fn joining(
    folder: &Path,
    (groups, ranks): (u32, u32),
    shared_connections: bool,
    server_threads: usize,
) -> anyhow::Result<JoiningReport> {
    let token = secret()?;
    let all = u64::from(groups) * u64::from(ranks);
    let connections = if shared_connections {
        groups.into()
    } else {
        all
    };
    let (mut server, reached) = start(Some(folder), folder, &token, server_threads, connections)?;
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
        at_a_time: Semaphore::new(AT_A_TIME),
        connections: (0..connections).map(|_| Mutex::default()).collect(),
        joined: AtomicU64::new(0),
        latest_beat: AtomicU64::new(0),
        latest_probe: AtomicU64::new(0),
    });
    // The other half of the cores is the server's.
    let cores = available_parallelism().map_or(1, NonZero::get);
    let (threads, probes) = (Threads::start((cores / 2).max(1))?, Threads::start(1)?);
    let watch = Stopwatch::start();
    let mut tasks = JoinSet::new();
    for group in 0..groups {
        for rank in 0..ranks {
            let number = u64::from(group) * u64::from(ranks) + u64::from(rank);
            let connection = match shared_connections {
                true => group.into(),
                false => number,
            };
            let one = One {
                group,
                rank,
                number,
                connection,
                is_probe: group < PROBES.div_ceil(ranks),
            };
            let threads = if one.is_probe { &probes } else { &threads };
            let shared = shared.clone();
            let rank = async move { shared.rank(one).await };
            threads.spawn(&mut tasks, connection, rank);
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
        probe_beat_seconds_max: shared.latest_probe.load(Ordering::Relaxed) as f64 / 1e6,
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
    async fn rank(&self, one: One) -> anyhow::Result<()> {
        let One { group, rank, .. } = one;
        let mut away = Away::new(one.number);
        let (mut client, joined) = loop {
            match self.try_join(one).await {
                Ok(joined) => break joined,
                // As ranks do: the server may not have registered yet, or had to close a connection for others.
                Err(error) if away.so_far() >= RETRY => return Err(error),
                Err(_) => {
                    away.begin();
                    tokio::time::sleep(away.pause()).await;
                }
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
        let every = match one.is_probe {
            true => PROBES_BEAT,
            false => LEASE / BEATS,
        };
        let mut sent = Stopwatch::start();
        beats.send(beat.clone()).await?;
        let mut replies = client.keep_lease(Box::pin(out)).await?.into_inner();
        loop {
            if replies.message().await?.is_none() {
                bail!("the coordinator has ended the beats of rank {rank} of group {group}");
            }
            let took = sent.elapsed().as_micros() as u64;
            self.latest_beat.fetch_max(took, Ordering::Relaxed);
            if one.is_probe {
                self.latest_probe.fetch_max(took, Ordering::Relaxed);
            }
            tokio::time::sleep(every).await;
            sent = Stopwatch::start();
            beats.send(beat.clone()).await?;
        }
    }
}

impl Shared {
    async fn try_join(
        &self,
        one: One,
    ) -> anyhow::Result<(CoordinatorClient<Authorized>, JoinReply)> {
        let turn = self.at_a_time.acquire().await?;
        let address = self.reached.by(one.connection);
        let connection = &self.connections[one.connection as usize];
        let connected = {
            let mut connected = connection.lock().await;
            match &*connected {
                Some(connected) => connected.clone(),
                None => connected
                    .insert(self.reach.connect(&address).await?)
                    .clone(),
            }
        };
        let mut client = CoordinatorClient::new(connected);
        let request = JoinRequest {
            group: one.group,
            rank: one.rank,
            ..self.join.clone()
        };
        let joined = {
            let mut joining = pin!(client.join(request));
            match timeout(CONNECTS, &mut joining).await {
                Ok(joined) => joined,
                // Ranks of its group may be waiting for their turn.
                Err(_) => {
                    drop(turn);
                    joining.await
                }
            }
        };
        match joined {
            Ok(joined) => Ok((client, joined.into_inner())),
            Err(error) => {
                // The next try is on another one.
                connection.lock().await.take();
                Err(error.into())
            }
        }
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
