//! How long ranks are without a server that has died. Each of two servers holds a block and a copy of the other's; all ranks
//! exchange at the same time, so that all find out at once and come to the server that is left.

use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::try_join_all;
use tokio::time::sleep;
use tradewind_launch::run::secret;
use tradewind_launch::{Process, Role, beside, environment, wait_for_address};
use tradewind_programs::SERVER;
use tradewind_programs::server::{CoordinatorAt, ServerArguments};
use tradewind_programs::worker::THREADS;

use super::Figure;
use super::connected::{LEASE, Ranks, connect, possible};
use super::joining::Reached;
use super::table::{ScaleReport, Scaled};
use crate::Stop;
use crate::folder::measured;
use crate::orders::{Done, Order, Work};
use crate::usage::cpu_seconds;

const SERVERS: u32 = 2;

/// The one that is killed. It holds a shard, and not the coordinator.
const KILLED: u32 = 1;

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
pub(super) fn measure(groups: &[u32], server_threads: usize) -> Result<ScaleReport, Stop> {
    let bar = crate::progress(groups.len());
    let mut scaled = Vec::new();
    for &groups in groups {
        bar.set_message(format!("{groups} groups"));
        let observed = measured(async |folder| observe(folder, groups, server_threads).await)?;
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
    /// Processor time of the server that is left, while they came; it holds the coordinator.
    cpu_seconds: f64,
    /// Shards of which it says that the other server has them now.
    promoted: usize,
    /// Ranks of which it says that they were lost.
    lost: usize,
}

impl Observed {
    fn figures(&self) -> Vec<Figure> {
        let first = |seconds: &[f64]| seconds.iter().copied().fold(f64::INFINITY, f64::min);
        let last = |seconds: &[f64]| seconds.iter().copied().fold(0.0, f64::max);
        vec![
            Figure::seconds("before: last rank served", last(&self.before)),
            Figure::seconds("a server dies: first rank served", first(&self.after)),
            Figure::seconds("a server dies: last rank served", last(&self.after)),
            Figure::seconds("afterwards: last rank served", last(&self.again)),
            Figure::seconds("other server: processor time", self.cpu_seconds),
            Figure::count("shards taken over", self.promoted as f64),
            Figure::count("ranks lost", self.lost as f64),
        ]
    }
}

/// They end when it is dropped.
struct Servers(Vec<Process>);

impl Drop for Servers {
    fn drop(&mut self) {
        Process::stop_all(self.0.iter_mut().collect());
    }
}

async fn observe(folder: &Path, groups: u32, threads: usize) -> anyhow::Result<Observed> {
    let token = secret()?;
    let mut servers = Servers(Vec::new());
    let mut coordinator = None;
    for server in 0..SERVERS {
        let address = start(&mut servers, folder, &token, coordinator.clone(), threads)
            .with_context(|| format!("server {server}"))?;
        coordinator.get_or_insert(address);
    }
    let coordinator = coordinator.expect("the first server's");
    let reached = Reached::at(&coordinator)?;
    let words = [&format!("--servers={SERVERS}")[..], "--together"];
    let mut all = connect(folder, &token, &reached, groups, &words).await?;
    // The first exchange of each opens its streams.
    exchange(&mut all).await?;
    let before = exchange(&mut all).await?;
    sleep(SETTLING).await;
    let left = servers.0[0].pid();
    let spent = cpu_seconds(left)?;
    servers.0[KILLED as usize].kill();
    let after = exchange(&mut all).await?;
    let cpu_seconds = cpu_seconds(left)? - spent;
    let again = exchange(&mut all).await?;
    sleep(WATCHED).await;
    let events =
        read_to_string(folder.join("events.jsonl")).context("the coordinator tells nothing")?;
    let count = |kind: &str| events.matches(&format!("\"{kind}\"")).count();
    Ok(Observed {
        before,
        after,
        again,
        cpu_seconds,
        promoted: count("promoted"),
        lost: count("rank_lost"),
    })
}

/// The next server, on a machine of its own by name; its address.
fn start(
    servers: &mut Servers,
    folder: &Path,
    token: &str,
    coordinator: Option<String>,
    threads: usize,
) -> anyhow::Result<String> {
    let index = servers.0.len() as u32;
    let file = folder.join(format!("server-{index}.address"));
    let coordinator = match coordinator {
        None => CoordinatorAt::Here { servers: SERVERS },
        Some(address) => CoordinatorAt::Elsewhere(address),
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

/// All ranks exchange at the same time; seconds of each.
async fn exchange(all: &mut [Ranks]) -> anyhow::Result<Vec<f64>> {
    let order = Order {
        work: Work::Exchange,
        seconds: 0.0,
    };
    for ranks in &mut *all {
        ranks.pipe.order(order).await;
    }
    let done = all.iter_mut().map(|ranks| ranks.pipe.answer::<Done>());
    let done = try_join_all(done)
        .await
        .context("a rank does not exchange")?;
    Ok(done.into_iter().flat_map(|done| done.seconds).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_rank_count() {
        let observed = Observed {
            before: vec![0.1, 0.3, 0.2],
            after: vec![1.5, 4.0, 1.25],
            again: vec![0.5, 0.25],
            cpu_seconds: 2.0,
            promoted: 1,
            lost: 3,
        };
        let values: Vec<_> = observed.figures().iter().map(|f| f.value).collect();
        assert_eq!(values, [0.3, 1.25, 4.0, 0.5, 2.0, 1.0, 3.0]);
    }
}
