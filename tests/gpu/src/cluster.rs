//! A whole system: servers, and ranks that train with them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use rustix::process::Signal;
use tradewind_common::record::StepRecord;
use tradewind_common::{environment, run_files};
use tradewind_process::usage::cpu_seconds;
use tradewind_programs::server::{CoordinatorAt, ServerArguments};
use tradewind_programs::worker::{self, CoordinatorArgument, TrainArguments, WorkerArguments};
use tradewind_programs::{SERVER, WORKER};

use crate::bulk::BulkArguments;
use crate::options::{Keys, Options, beside};
use crate::process::{Process, wait};

/// How long a server may take until it listens.
const LISTEN: Duration = Duration::from_secs(60);

/// Lets ranks that share a GPU take each other for ranks of different machines: NCCL wants one GPU
/// a rank, and goes by the host's name and the GPU's address. They then speak over sockets.
pub(crate) fn apart(command: &mut Command, name: &str) {
    command
        .env("NCCL_HOSTID", format!("tradewind-gpu-check-{name}"))
        .env("NCCL_NET", "Socket");
    if std::env::var_os("NCCL_SOCKET_IFNAME").is_none() {
        command.env("NCCL_SOCKET_IFNAME", "lo");
    }
}

/// Which ranks a cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ranks {
    /// Those of the configuration: `tradewind-worker`.
    Workers,
    /// One, of the check's own, that trains one vector of so many bytes.
    Bulk(u64),
}

/// What a rank had used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    /// When it had written down so many steps.
    pub(crate) records: usize,
    /// Of all its threads.
    pub(crate) cpu_seconds: f64,
}

/// The processes of one run, without a folder of its own: nothing is kept. Dropping it kills them.
#[derive(Debug)]
pub(crate) struct Cluster {
    folder: PathBuf,
    ranks: BTreeMap<(u32, u32), Process>,
    servers: Vec<Process>,
}

impl Cluster {
    /// Starts servers, one after the other, and then all ranks.
    pub(crate) fn start(
        options: &Options,
        name: &str,
        keys: &Keys,
        ranks: Ranks,
    ) -> anyhow::Result<Self> {
        let folder = options.folder(name)?;
        let config = keys.config()?;
        fs::write(folder.join(run_files::CONFIG), config.resolved())?;
        let mut cluster = Self {
            folder,
            ranks: BTreeMap::new(),
            servers: Vec::new(),
        };
        let mut coordinator = String::new();
        for server in 0..config.cluster.servers {
            let address = cluster.serve(server, config.cluster.servers, &coordinator, &config)?;
            if server == 0 {
                coordinator = address;
            }
        }
        for (group, size) in config.cluster.groups.iter().enumerate() {
            for rank in 0..*size {
                let group = group as u32;
                let arguments = TrainArguments {
                    config: cluster.folder.join(run_files::CONFIG),
                    coordinator: CoordinatorArgument::Address(coordinator.clone()),
                    group,
                    rank,
                    // All of them share the first GPU.
                    local_rank: 0,
                    gpu: false,
                    host: None,
                    threads: worker::THREADS,
                    metrics: Some(cluster.folder.join(run_files::METRICS)),
                };
                let mut command = match ranks {
                    Ranks::Workers => WorkerArguments::from(arguments).to_command(&beside(WORKER)?),
                    Ranks::Bulk(bytes) => {
                        let train = arguments;
                        BulkArguments { bytes, train }.to_command()?
                    }
                };
                command.env(environment::LOG, "info");
                apart(&mut command, &format!("{group}-{rank}"));
                let name = format!("group-{group}-rank-{rank}");
                let process = Process::start(&name, command, &cluster.folder)?;
                cluster.ranks.insert((group, rank), process);
            }
        }
        Ok(cluster)
    }

    /// Starts a server; returns where it listens.
    fn serve(
        &mut self,
        server: u32,
        servers: u32,
        coordinator: &str,
        config: &tradewind_config::Config,
    ) -> anyhow::Result<String> {
        let file = self.folder.join(format!("server-{server}.address"));
        let coordinator = match server {
            0 => CoordinatorAt::Here { servers },
            _ => CoordinatorAt::Elsewhere(coordinator.to_owned()),
        };
        let arguments = ServerArguments {
            lease_ms: config.liveness.lease_ms,
            address_file: Some(file.clone()),
            ..ServerArguments::plain(server, coordinator)
        };
        let command = arguments.to_command(&beside(SERVER)?);
        let mut process = Process::start(&format!("server-{server}"), command, &self.folder)?;
        let address = wait(LISTEN, || {
            process.check()?;
            let text = fs::read_to_string(&file).unwrap_or_default();
            Ok(Some(text.trim().to_owned()).filter(|address| !address.is_empty()))
        })?;
        self.servers.push(process);
        address.with_context(|| format!("server {server} does not listen"))
    }

    /// Sends a rank a signal.
    pub(crate) fn signal(&mut self, group: u32, rank: u32, signal: Signal) -> anyhow::Result<()> {
        let process = self.ranks.get_mut(&(group, rank));
        process
            .context("a rank of the configuration")?
            .signal(signal)
    }

    /// What groups have written down: whole lines only, the last one may be under way.
    pub(crate) fn records(&self) -> Vec<StepRecord> {
        records(&self.folder)
    }

    /// Waits for what `look` finds in the records, while no process fails but ranks for which
    /// `may_fail`.
    pub(crate) fn watch<T>(
        &mut self,
        limit: Duration,
        may_fail: impl Fn(u32, u32) -> bool,
        look: impl Fn(&[StepRecord]) -> Option<T>,
    ) -> anyhow::Result<Option<T>> {
        wait(limit, || {
            if let Some(found) = look(&records(&self.folder)) {
                return Ok(Some(found));
            }
            self.servers.iter_mut().try_for_each(Process::check)?;
            for ((group, rank), process) in &mut self.ranks {
                if !may_fail(*group, *rank) {
                    process.check()?;
                }
            }
            Ok(None)
        })
    }

    /// As [`finish`](Self::finish), for one rank; also returns what it had used each time that it had written down a step.
    pub(crate) fn finish_counting(
        mut self,
        limit: Duration,
    ) -> anyhow::Result<(Vec<StepRecord>, Vec<Used>)> {
        let rank = self.ranks.remove(&(0, 0));
        let rank = rank.context("a rank of the configuration")?;
        let (pid, mut used) = (rank.id(), Vec::<Used>::new());
        rank.finish_while(limit, || {
            let records = self.records().len();
            if used.last().is_none_or(|last| last.records < records)
                && let Some(cpu_seconds) = cpu_seconds(pid)
            {
                used.push(Used {
                    records,
                    cpu_seconds,
                });
            }
        })?;
        Ok((self.records(), used))
    }

    /// Waits until all ranks have ended in order; returns the records.
    pub(crate) fn finish(mut self, limit: Duration) -> anyhow::Result<Vec<StepRecord>> {
        for (_, process) in std::mem::take(&mut self.ranks) {
            process.finish(limit)?;
        }
        Ok(self.records())
    }
}

fn records(folder: &Path) -> Vec<StepRecord> {
    let text = fs::read_to_string(folder.join(run_files::METRICS)).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines();
    lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}
