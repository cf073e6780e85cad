//! How long ranks are without a server that has died, which may be the one with the coordinator. Each of two servers holds a
//! block and a copy of the other's; all ranks exchange at the same time, so that all find out at once and come to the server
//! that is left.

use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use futures_util::future::try_join_all;
use tokio::sync::oneshot;
use tokio::time::sleep;
use tradewind_client::network::Reach;
use tradewind_client::stopwatch::Stopwatch;
use tradewind_common::run_files::COORDINATOR_ADDRESS;
use tradewind_launch::run::secret;
use tradewind_launch::{Process, Role, beside, environment, wait_for_address};
use tradewind_programs::SERVER;
use tradewind_programs::server::{CoordinatorAt, ServerArguments};
use tradewind_programs::worker::THREADS;
use tradewind_proto::auth::Credentials;
use tradewind_proto::v1::CoordinateRequest;
use tradewind_proto::v1::host_client::HostClient;

use super::Figure;
use super::connected::{LEASE, Ranks, connect, possible};
use super::joining::Reached;
use super::table::{ScaleReport, Scaled};
use crate::Stop;
use crate::folder::measured;
use crate::orders::{Beats, Done, Order, Work};
use crate::usage::{cpu_seconds, descriptors};

const SERVERS: u32 = 2;

/// Which of them is killed; each holds a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Dies {
    /// The one without the coordinator.
    Server,
    /// The one with the coordinator. The other one is asked to host it, as a run's launcher does.
    Coordinator,
}

impl Dies {
    /// The number of that server, and of the one that is left.
    fn numbers(self) -> (usize, usize) {
        match self {
            Self::Server => (1, 0),
            Self::Coordinator => (0, 1),
        }
    }
}

/// How often it is looked how many connections the server has that is left.
const LOOK: Duration = Duration::from_millis(100);

/// How long nothing is asked of the servers before one is killed.
const SETTLING: Duration = Duration::from_secs(3);

/// After all are served again: whoever was lost is known by then, a lease after its last beat.
const WATCHED: Duration = LEASE.saturating_add(Duration::from_secs(3));

/// A rank's connections to the server that is left: for the coordinator, and for exchanges with each shard.
const CONNECTIONS_A_RANK: u32 = 1 + SERVERS;

/// What of it cannot be measured, and the way out.
pub(super) fn check(groups: &[u32]) -> Result<(), String> {
    let most = groups.iter().max().copied().unwrap_or(0);
    let connections = CONNECTIONS_A_RANK * most;
    possible(most, connections, connections)
}

/// Measures all numbers of groups, each with servers of its own.
pub(super) fn measure(
    dies: Dies,
    groups: &[u32],
    server_threads: usize,
) -> Result<ScaleReport, Stop> {
    let bar = crate::progress(groups.len());
    let mut scaled = Vec::new();
    for &groups in groups {
        bar.set_message(format!("{groups} groups"));
        let observed =
            measured(async |folder| observe(folder, dies, groups, server_threads).await)?;
        let figures = observed.figures();
        scaled.push(Scaled { groups, figures });
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(ScaleReport::new("failover", scaled))
}

/// What came of it.
#[derive(Clone, Debug)]
struct Observed {
    /// An exchange of each rank, all at once: seconds of each.
    before: Vec<f64>,
    /// The same right after a server has died.
    after: Vec<f64>,
    /// And once more.
    again: Vec<f64>,
    /// Where the coordinator has died.
    returned: Option<Returned>,
    /// Processor time of the server that is left, while they came.
    cpu_seconds: f64,
    /// The most connections that it came to have in a second.
    connections_a_second: f64,
    /// Shards of which it says that the other server has them now.
    promoted: usize,
    /// Ranks of which it says that they were lost.
    lost: usize,
    /// Groups of shards of which it says that nobody can answer for them.
    orphaned: usize,
}

/// How ranks have found another coordinator.
#[derive(Clone, Debug)]
struct Returned {
    /// Until the server that is left hosts it.
    hosted_seconds: f64,
    /// Until its first answer to a beat, of each rank.
    beaten: Vec<f64>,
    /// The longest time from one answer to a beat to the next.
    silent_seconds: f64,
    /// Tries of a rank to connect to anybody.
    tries: f64,
}

impl Observed {
    fn figures(&self) -> Vec<Figure> {
        let first = |seconds: &[f64]| seconds.iter().copied().fold(f64::INFINITY, f64::min);
        let last = |seconds: &[f64]| seconds.iter().copied().fold(0.0, f64::max);
        let mut figures = vec![
            Figure::seconds("before: last rank served", last(&self.before)),
            Figure::seconds("a server dies: first rank served", first(&self.after)),
            Figure::seconds("a server dies: last rank served", last(&self.after)),
        ];
        if let Some(returned) = &self.returned {
            let beaten = &returned.beaten;
            figures.extend([
                Figure::seconds("coordinator: hosted again", returned.hosted_seconds),
                Figure::seconds("coordinator: first beat answered", first(beaten)),
                Figure::seconds("coordinator: all ranks' answered", last(beaten)),
                Figure::seconds("longest between two answers", returned.silent_seconds),
                Figure::count("tries to connect a rank", returned.tries),
            ]);
        }
        figures.extend([
            Figure::seconds("afterwards: last rank served", last(&self.again)),
            Figure::seconds("other server: processor time", self.cpu_seconds),
            Figure::count("connections a second", self.connections_a_second),
            Figure::count("shards taken over", self.promoted as f64),
            Figure::count("ranks lost", self.lost as f64),
            Figure::count("shards orphaned", self.orphaned as f64),
        ]);
        figures
    }
}

impl Returned {
    fn of(hosted_seconds: f64, done: &[Done], ranks: u32) -> Self {
        let beats: Vec<&Beats> = done.iter().filter_map(|done| done.beats.as_ref()).collect();
        let seconds = beats.iter().flat_map(|beats| &beats.seconds);
        let silent = beats.iter().map(|beats| beats.silent_seconds);
        let connects: u64 = beats.iter().map(|beats| beats.connects).sum();
        Self {
            hosted_seconds,
            beaten: seconds.copied().collect(),
            silent_seconds: silent.fold(0.0, f64::max),
            tries: connects as f64 / f64::from(ranks),
        }
    }
}

/// They end when it is dropped.
struct Servers(Vec<Process>);

impl Drop for Servers {
    fn drop(&mut self) {
        Process::stop_all(self.0.iter_mut().collect());
    }
}

async fn observe(
    folder: &Path,
    dies: Dies,
    groups: u32,
    threads: usize,
) -> anyhow::Result<Observed> {
    let token = secret()?;
    let mut servers = Servers(Vec::new());
    let mut addresses = Vec::new();
    for server in 0..SERVERS {
        let address = start(&mut servers, folder, &token, threads);
        addresses.push(address.with_context(|| format!("server {server}"))?);
    }
    let reached = Reached::at(&addresses[0])?;
    let file = folder.join(COORDINATOR_ADDRESS);
    let words = [
        format!("--servers={SERVERS}"),
        "--together".into(),
        format!("--coordinator-file={}", file.display()),
    ];
    let mut all = connect(folder, &token, &reached, groups, &words).await?;
    // The first exchange of each opens its streams.
    work(&mut all, Work::Exchange).await?;
    let before = work(&mut all, Work::Exchange).await?;
    sleep(SETTLING).await;
    let (killed, left) = dies.numbers();
    let pid = servers.0[left].pid();
    let spent = cpu_seconds(pid)?;
    let (stop, stopped) = oneshot::channel();
    let watching = tokio::spawn(rate(pid, descriptors(pid)?, stopped));
    servers.0[killed].kill();
    let (after, hosted_seconds) = match dies {
        Dies::Server => (work(&mut all, Work::Exchange).await?, None),
        Dies::Coordinator => {
            let hosting = host(&addresses[left], &token);
            let (after, hosted) = tokio::try_join!(work(&mut all, Work::Return), hosting)?;
            (after, Some(hosted))
        }
    };
    drop(stop);
    let connections_a_second = watching.await??;
    let cpu_seconds = cpu_seconds(pid)? - spent;
    let again = work(&mut all, Work::Exchange).await?;
    sleep(WATCHED).await;
    let events =
        read_to_string(folder.join("events.jsonl")).context("the coordinator tells nothing")?;
    let count = |kind: &str| events.matches(&format!("\"{kind}\"")).count();
    Ok(Observed {
        before: seconds(&before),
        returned: hosted_seconds.map(|hosted| Returned::of(hosted, &after, groups)),
        after: seconds(&after),
        again: seconds(&again),
        cpu_seconds,
        connections_a_second,
        promoted: count("promoted"),
        lost: count("rank_lost"),
        orphaned: count("orphaned"),
    })
}

/// The next server, on a machine of its own by name; its address.
fn start(
    servers: &mut Servers,
    folder: &Path,
    token: &str,
    threads: usize,
) -> anyhow::Result<String> {
    let index = servers.0.len() as u32;
    let file = folder.join(format!("server-{index}.address"));
    let coordinator = match index {
        0 => CoordinatorAt::Here { servers: SERVERS },
        _ => CoordinatorAt::InFolder,
    };
    let arguments = ServerArguments {
        folder: Some(folder.to_owned()),
        host: Some(format!("machine-{index}")),
        address_file: Some(file.clone()),
        threads,
        ..ServerArguments::plain(index, coordinator)
    };
    let environment: BTreeMap<_, _> = environment(token, None, THREADS);
    let role = Role::Bench("server", index);
    let log = folder.join(format!("server-{index}.log"));
    let program = beside(SERVER)?;
    let mut process = Process::start(role, &program, &arguments.words(), &environment, &log)?;
    let address = wait_for_address(&mut process, &file);
    servers.0.push(process);
    address
}

/// All ranks do it at the same time.
async fn work(all: &mut [Ranks], work: Work) -> anyhow::Result<Vec<Done>> {
    let order = Order { work, seconds: 0.0 };
    for ranks in &mut *all {
        ranks.pipe.order(order).await;
    }
    let done = all.iter_mut().map(|ranks| ranks.pipe.answer::<Done>());
    let done = try_join_all(done).await;
    done.context("a rank does not exchange")
}

/// Of each rank.
fn seconds(done: &[Done]) -> Vec<f64> {
    let seconds = done.iter().flat_map(|done| &done.seconds);
    seconds.copied().collect()
}

/// Has a server host the coordinator; seconds until it does.
async fn host(address: &str, token: &str) -> anyhow::Result<f64> {
    let watch = Stopwatch::start();
    let reach = Reach {
        credentials: Credentials::new(token, None)?,
        retry: Duration::ZERO,
        connections: 1,
    };
    let mut client = HostClient::new(reach.connect(address).await?);
    let servers = SERVERS;
    let hosted = client.coordinate(CoordinateRequest { servers }).await;
    hosted.context("the server that is left does not host the coordinator")?;
    Ok(watch.elapsed().as_secs_f64())
}

/// The most connections that a process comes to have in a second, more than it has closed, until it is told to stop: 0 where
/// few come while as many go. It had `before`.
async fn rate(pid: u32, mut before: u64, mut stop: oneshot::Receiver<()>) -> anyhow::Result<f64> {
    let mut most: f64 = 0.0;
    let mut watch = Stopwatch::start();
    loop {
        tokio::select! {
            _ = &mut stop => return Ok(most),
            () = sleep(LOOK) => {}
        }
        let now = descriptors(pid)?;
        let come = now.saturating_sub(before) as f64;
        most = most.max(come / watch.lap().as_secs_f64());
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed() -> Observed {
        Observed {
            before: vec![0.1, 0.3, 0.2],
            after: vec![1.5, 4.0, 1.25],
            again: vec![0.5, 0.25],
            returned: None,
            cpu_seconds: 2.0,
            connections_a_second: 70.0,
            promoted: 1,
            lost: 3,
            orphaned: 4,
        }
    }

    fn values(observed: &Observed) -> Vec<f64> {
        let figures = observed.figures();
        figures.iter().map(|figure| figure.value).collect()
    }

    #[test]
    fn the_first_and_the_last_rank_count() {
        let wanted = [0.3, 1.25, 4.0, 0.5, 2.0, 70.0, 1.0, 3.0, 4.0];
        assert_eq!(values(&observed()), wanted);
    }

    #[test]
    fn of_a_coordinator_it_is_told_when_ranks_have_found_the_next_one() {
        let done = |seconds: [f64; 2], silent_seconds, connects| Done {
            elapsed: 9.0,
            seconds: vec![1.0, 1.0],
            beats: Some(Beats {
                seconds: seconds.to_vec(),
                silent_seconds,
                connects,
            }),
        };
        let done = [done([2.5, 1.5], 4.5, 9), done([3.0, 2.0], 5.5, 11)];
        let observed = Observed {
            returned: Some(Returned::of(0.75, &done, 4)),
            ..observed()
        };
        let returned = [0.75, 1.5, 3.0, 5.5, 5.0];
        let wanted = [
            &[0.3, 1.25, 4.0][..],
            &returned,
            &[0.5, 2.0, 70.0, 1.0, 3.0, 4.0],
        ]
        .concat();
        assert_eq!(values(&observed), wanted);
    }
}
