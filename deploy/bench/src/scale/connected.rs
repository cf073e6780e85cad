//! What a connected rank costs a server over the network: memory and descriptors while it is idle after an
//! exchange, and processor time of its pushes. Groups are of one rank, each with a lease and a stream of its
//! own; a few processes hold all of them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::try_join_all;
use rustix::process::{Resource, getrlimit};
use tokio::time::sleep;
use tradewind_client::stopwatch::Stopwatch;
use tradewind_common::spec::RunSpec;
use tradewind_launch::run::secret;
use tradewind_launch::{Process, Role, beside, environment};
use tradewind_programs::worker::THREADS;

use super::joining::Reached;
use super::table::{ScaleReport, Scaled};
use super::{Figure, coordinator, joining};
use crate::Stop;
use crate::fleet::Pipe;
use crate::folder::measured;
use crate::orders::{Done, Order, Ready, Work};
use crate::usage::{anonymous_bytes, cpu_seconds, descriptors};

/// The run of all of them.
pub(crate) const RUN: &str = joining::RUN;

/// As `liveness.lease_ms` is by default.
pub(super) const LEASE: Duration = Duration::from_secs(20);

/// Ranks in a process: each needs up to eight descriptors there, and a process may have 20,000 on many systems.
const RANKS_A_PROCESS: u32 = 2_000;

/// A rank's connections to a server: for the coordinator, and for exchanges. Each is a descriptor there.
const CONNECTIONS_A_RANK: u32 = 2;

/// A server's descriptors besides.
const DESCRIPTORS_KEPT: u64 = 256;

/// How long nothing is asked of the server before its memory is looked at.
const SETTLING: Duration = Duration::from_secs(3);

/// A block on each server, with a copy on another one if there is one, and groups of one rank under the default lease.
pub(crate) fn spec(servers: u32, groups: u32) -> RunSpec {
    let mut spec = coordinator::spec(servers, groups);
    spec.faults.replication = servers.min(2);
    spec.lease_ms = LEASE.as_millis() as u64;
    spec.faults.patience_ms = 2 * spec.lease_ms;
    spec
}

/// Ports of this machine from which connections are made, the first and the last.
const PORTS: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Ports that others on this machine may need.
const PORTS_KEPT: u32 = 1_000;

/// What of it cannot be measured, and the way out.
pub(super) fn check(groups: &[u32]) -> Result<(), String> {
    let most = groups.iter().max().copied().unwrap_or(0);
    let connections = CONNECTIONS_A_RANK * most;
    // Where these are very many the coordinator is at other addresses of the machine.
    let spread = connections > joining::CONNECTIONS_AN_ADDRESS;
    possible(most, connections, if spread { most } else { connections })
}

/// Whether so many ranks can have so many connections to a server, of them so many to one address.
pub(super) fn possible(ranks: u32, connections: u32, an_address: u32) -> Result<(), String> {
    within(ranks, connections, getrlimit(Resource::Nofile).current)?;
    let ports = std::fs::read_to_string(PORTS).ok();
    among(ranks, an_address, ports.and_then(|text| count(&text)))
}

/// How many ports lie between two, which are counted too.
fn count(range: &str) -> Option<u32> {
    let (first, last) = range.trim().split_once(char::is_whitespace)?;
    let (first, last): (u32, u32) = (first.parse().ok()?, last.trim().parse().ok()?);
    last.checked_sub(first)?.checked_add(1)
}

/// Whether there are ports for all connections to one address.
fn among(ranks: u32, connections: u32, ports: Option<u32>) -> Result<(), String> {
    let needed = connections + PORTS_KEPT;
    match ports {
        Some(ports) if ports < needed => Err(format!(
            "--groups has {ranks}: {needed} ports are needed for so many connections, and this machine uses {ports}; let it use more (sysctl net.ipv4.ip_local_port_range) or measure fewer"
        )),
        Some(_) | None => Ok(()),
    }
}

/// Whether a server has descriptors for all connections.
fn within(ranks: u32, connections: u32, descriptors: Option<u64>) -> Result<(), String> {
    let needed = u64::from(connections) + DESCRIPTORS_KEPT;
    match descriptors {
        Some(descriptors) if descriptors < needed => Err(format!(
            "--groups has {ranks}: a server needs {needed} descriptors for so many ranks, and may have {descriptors} here; raise the limit (ulimit -Hn) or measure fewer"
        )),
        Some(_) | None => Ok(()),
    }
}

/// Measures all numbers of groups, each with a server of its own: it is watched for `idle_seconds`, and then there are
/// `pushes`, at least. The kernel counts processor time in steps of 10 ms.
pub(super) fn measure(
    groups: &[u32],
    pushes: u32,
    idle_seconds: f64,
    server_threads: usize,
) -> Result<ScaleReport, Stop> {
    let idle = Duration::from_secs_f64(idle_seconds);
    let bar = crate::progress(groups.len());
    let mut scaled = Vec::new();
    for &groups in groups {
        bar.set_message(format!("{groups} groups"));
        let observed =
            measured(async |folder| observe(folder, groups, pushes, idle, server_threads).await)?;
        let figures = observed.figures();
        scaled.push(Scaled { groups, figures });
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(ScaleReport::new("connected", scaled))
}

/// What a process has and has used, at one moment.
#[derive(Clone, Copy, Debug)]
struct Use {
    anonymous_bytes: u64,
    descriptors: u64,
    cpu_seconds: f64,
}

impl Use {
    fn of(pid: u32) -> anyhow::Result<Self> {
        Ok(Self {
            anonymous_bytes: anonymous_bytes(pid)?,
            descriptors: descriptors(pid)?,
            cpu_seconds: cpu_seconds(pid)?,
        })
    }
}

/// A server with and without its ranks.
#[derive(Clone, Copy, Debug)]
struct Observed {
    ranks: u32,
    /// Before anybody has come.
    alone: Use,
    /// With all ranks connected, after each has exchanged, and `idle_seconds` later.
    idle: [Use; 2],
    idle_seconds: f64,
    /// After `pushes` more, which took so long.
    pushed: Use,
    pushes: u64,
    pushing_seconds: f64,
}

impl Observed {
    fn figures(&self) -> Vec<Figure> {
        let ranks = f64::from(self.ranks);
        let [idle, later] = self.idle;
        // Negative where what was freed meanwhile is more than what the ranks need.
        let grown = |before: u64, now: u64| (now as f64 - before as f64) / ranks;
        let beating = (later.cpu_seconds - idle.cpu_seconds) / self.idle_seconds;
        let pushing = self.pushed.cpu_seconds - later.cpu_seconds - beating * self.pushing_seconds;
        vec![
            Figure::bytes(
                "rank, idle: memory",
                grown(self.alone.anonymous_bytes, later.anonymous_bytes),
            ),
            Figure::count(
                "rank, idle: descriptors",
                grown(self.alone.descriptors, later.descriptors),
            ),
            Figure::microseconds("rank, idle: processor time a second", 1e6 * beating / ranks),
            Figure::microseconds("push: processor time", 1e6 * pushing / self.pushes as f64),
        ]
    }
}

/// A process that holds ranks; it ends when it is dropped.
pub(super) struct Ranks {
    process: Process,
    pub(super) pipe: Pipe,
}

impl Drop for Ranks {
    fn drop(&mut self) {
        Process::stop_all(vec![&mut self.process]);
    }
}

async fn observe(
    folder: &Path,
    groups: u32,
    pushes: u32,
    idle_for: Duration,
    server_threads: usize,
) -> anyhow::Result<Observed> {
    let token = secret()?;
    let connections = u64::from(CONNECTIONS_A_RANK * groups);
    let (server, reached) = joining::start(None, folder, &token, server_threads, connections)?;
    let pid = server.pid();
    // It listens before it has opened all that it needs for itself.
    sleep(SETTLING).await;
    let alone = Use::of(pid)?;
    let mut all = connect(folder, &token, &reached, groups, &[]).await?;
    // The first exchange of each makes what later ones use again.
    exchange(&mut all).await?;
    sleep(SETTLING).await;
    let watch = Stopwatch::start();
    let idle = Use::of(pid)?;
    sleep(idle_for).await;
    let later = Use::of(pid)?;
    let idle_seconds = watch.elapsed().as_secs_f64();
    let rounds = pushes.div_ceil(groups);
    let watch = Stopwatch::start();
    for _ in 0..rounds {
        exchange(&mut all).await?;
    }
    let pushing_seconds = watch.elapsed().as_secs_f64();
    Ok(Observed {
        ranks: groups,
        alone,
        idle: [idle, later],
        idle_seconds,
        pushed: Use::of(pid)?,
        pushes: u64::from(rounds) * u64::from(groups),
        pushing_seconds,
    })
}

/// Starts processes that hold a rank of each group, with further words, and waits until all ranks are connected.
pub(super) async fn connect(
    folder: &Path,
    token: &str,
    reached: &Reached,
    groups: u32,
    words: &[String],
) -> anyhow::Result<Vec<Ranks>> {
    let mut all = Vec::new();
    let mut first = 0;
    while first < groups {
        let count = RANKS_A_PROCESS.min(groups - first);
        let mut own: Vec<OsString> = vec![
            "ranks".into(),
            format!("--groups={groups}").into(),
            format!("--first={first}").into(),
            format!("--count={count}").into(),
        ];
        // Unless it is said in another way.
        if words.is_empty() {
            own.push(format!("--coordinator={}", reached.by(first.into())).into());
        }
        own.extend(words.iter().map(OsString::from));
        all.push(start(folder, token, all.len() as u32, &own)?);
        first += count;
    }
    let ready = all.iter_mut().map(|ranks| ranks.pipe.answer::<Ready>());
    try_join_all(ready).await.context("not all ranks connect")?;
    Ok(all)
}

fn start(folder: &Path, token: &str, index: u32, words: &[OsString]) -> anyhow::Result<Ranks> {
    let environment: BTreeMap<_, _> = environment(token, None, THREADS);
    let role = Role::Bench("ranks", index);
    let log = folder.join(format!("ranks-{index}.log"));
    let program = beside("tradewind-bench")?;
    let (process, orders, answers) =
        Process::start_piped(role, &program, words, &environment, &log)?;
    let pipe = Pipe::new(orders, answers)?;
    Ok(Ranks { process, pipe })
}

/// Each rank exchanges once, one after the other.
async fn exchange(all: &mut [Ranks]) -> anyhow::Result<()> {
    let order = Order {
        work: Work::Exchange,
        seconds: 0.0,
    };
    for ranks in all {
        ranks.pipe.order(order).await;
        let done = ranks.pipe.answer::<Done>().await;
        done.context("a rank does not exchange")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_what_ranks_add_and_pushes_leave_out_what_is_spent_anyway() {
        let used = |anonymous_bytes, descriptors, cpu_seconds| Use {
            anonymous_bytes,
            descriptors,
            cpu_seconds,
        };
        let observed = Observed {
            ranks: 100,
            alone: used(1_000_000, 20, 0.5),
            idle: [used(5_000_000, 320, 2.0), used(4_000_000, 320, 2.1)],
            idle_seconds: 10.0,
            pushed: used(9_000_000, 340, 2.6),
            pushes: 20_000,
            pushing_seconds: 20.0,
        };
        let figures = observed.figures();
        let near = |number: usize, what: &str, wanted: f64| {
            let Figure {
                what: is, value, ..
            } = &figures[number];
            assert!(is.contains(what), "{is}");
            assert!((value - wanted).abs() < 1e-6, "{what}: {value}");
        };
        near(0, "memory", 30_000.0);
        near(1, "descriptors", 3.0);
        // A hundredth of a core for a hundred ranks.
        near(2, "a second", 100.0);
        // Half a second, of which 0.2 are not theirs.
        near(3, "push", 15.0);
        assert_eq!(figures.len(), 4);
    }

    #[test]
    fn ranks_for_which_there_are_no_ports_are_named() {
        assert_eq!(count("32768\t60999\n"), Some(28_232));
        assert_eq!(count("60999 32768"), None);
        assert_eq!(count("many"), None);
        assert_eq!(among(27_232, 27_232, Some(28_232)), Ok(()));
        assert_eq!(among(1_000_000, 1_000_000, None), Ok(()));
        let error = among(30_000, 30_000, Some(28_232)).unwrap_err();
        assert!(
            error.contains("--groups has 30000: 31000 ports are needed"),
            "{error}"
        );
        assert!(error.contains("ip_local_port_range"), "{error}");
    }

    #[test]
    fn ranks_for_which_there_are_no_descriptors_are_named() {
        assert_eq!(within(1_000, 2_000, Some(2_256)), Ok(()));
        assert_eq!(within(1_000_000, 2_000_000, None), Ok(()));
        let error = within(1_000, 2_000, Some(2_255)).unwrap_err();
        assert!(
            error.contains("--groups has 1000: a server needs 2256"),
            "{error}"
        );
        assert!(error.contains("ulimit -Hn"), "{error}");
    }
}
