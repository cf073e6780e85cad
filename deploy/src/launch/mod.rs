//! Local processes of a run: started, watched, stopped, never left behind.

mod process;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use tradewind_common::config::Config;
use tradewind_proto::auth::TOKEN_VARIABLE;

use crate::folder::RunFolder;
pub(crate) use process::{Ended, Process, Role};

/// How long a server may take until it listens.
const LISTEN: Duration = Duration::from_secs(30);

/// Pause between two looks at a process.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// The programs of Tradewind, which lie beside `tradewind` itself.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    server: PathBuf,
    pub(crate) worker: PathBuf,
}

impl Programs {
    pub(crate) fn find() -> anyhow::Result<Self> {
        Ok(Self {
            server: beside("tradewind-server")?,
            worker: beside("tradewind-worker")?,
        })
    }
}

/// A program that lies beside `tradewind` itself.
pub(crate) fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where tradewind lies")?;
    let path = own.with_file_name(name);
    if !path.is_file() {
        bail!(
            "{} is missing; build it with `cargo build --bins`",
            path.display()
        );
    }
    Ok(path)
}

/// A row of `processes.json`.
#[derive(Clone, Debug, Serialize)]
struct Row {
    role: &'static str,
    index: u32,
    group: Option<u32>,
    group_rank: Option<u32>,
    pid: u32,
    address: String,
}

/// All processes of a run. Dropping it kills what is left.
#[derive(Debug)]
pub(crate) struct Local {
    /// Where the coordinator listens.
    pub(crate) coordinator: String,
    pub(crate) servers: Vec<Process>,
    pub(crate) workers: Vec<Process>,
}

impl Local {
    /// No processes yet.
    pub(crate) fn new() -> Self {
        Self {
            coordinator: String::new(),
            servers: vec![],
            workers: vec![],
        }
    }

    /// Starts servers, then workers, and writes `processes.json`.
    pub(crate) fn start(
        &mut self,
        config: &Config,
        programs: &Programs,
        folder: &RunFolder,
        token: &str,
    ) -> anyhow::Result<()> {
        let mut rows = Vec::new();
        for server in 0..config.cluster.servers {
            let address = self.start_server(server, config, programs, folder, token)?;
            if server == 0 {
                self.coordinator = address.clone();
            }
            let pid = self.servers[server as usize].pid();
            rows.push(Row {
                role: "server",
                index: server,
                group: None,
                group_rank: None,
                pid,
                address,
            });
        }
        let mut index = 0;
        for (group, size) in config.cluster.groups.iter().enumerate() {
            for rank in 0..*size {
                let worker = self.start_worker(group as u32, rank, programs, folder, token)?;
                rows.push(Row {
                    role: "worker",
                    index,
                    group: Some(group as u32),
                    group_rank: Some(rank),
                    pid: worker.pid(),
                    address: config.cluster.host.clone(),
                });
                self.workers.push(worker);
                index += 1;
            }
        }
        folder.write("processes.json", &serde_json::to_string_pretty(&rows)?)?;
        Ok(())
    }

    fn start_server(
        &mut self,
        server: u32,
        config: &Config,
        programs: &Programs,
        folder: &RunFolder,
        token: &str,
    ) -> anyhow::Result<String> {
        let address_file = folder.file(&format!("logs/server-{server}.address"));
        let mut arguments = vec![
            format!("--server={server}"),
            format!("--listen={}:0", bare_host(&config.cluster.host)),
            format!("--address-file={}", address_file.display()),
        ];
        match server {
            0 => arguments.push(format!("--coordinate={}", config.cluster.servers)),
            _ => arguments.push(format!("--coordinator={}", self.coordinator)),
        }
        if let Some(first) = config.telemetry.prometheus {
            // Checked with the configuration.
            let port = first.port() + server as u16;
            arguments.push(format!("--metrics={}", SocketAddr::new(first.ip(), port)));
        }
        let log = folder.file(&format!("logs/server-{server}.log"));
        let role = Role::Server(server);
        let mut process = Process::start(
            role,
            &programs.server,
            &arguments,
            &environment(token),
            &log,
        )?;
        let address = wait_for_address(&mut process, &address_file);
        self.servers.push(process);
        address
    }

    fn start_worker(
        &self,
        group: u32,
        rank: u32,
        programs: &Programs,
        folder: &RunFolder,
        token: &str,
    ) -> anyhow::Result<Process> {
        let arguments = [
            "train".into(),
            format!("--config={}", folder.file("config.toml").display()),
            format!("--coordinator={}", self.coordinator),
            format!("--group={group}"),
            format!("--rank={rank}"),
            format!("--metrics={}", folder.file("metrics.jsonl").display()),
        ];
        let log = folder.file(&format!("logs/group-{group}-rank-{rank}.log"));
        let role = Role::Rank { group, rank };
        Process::start(
            role,
            &programs.worker,
            &arguments,
            &environment(token),
            &log,
        )
    }

    /// The process that has ended and should not have: a server, or a rank with an error. Where
    /// several have, one that was killed comes before those that gave up, because a rank whose
    /// peer or server has gone ends with an error soon after it.
    pub(crate) fn casualty(&mut self) -> anyhow::Result<Option<Ended>> {
        let mut casualties = Vec::new();
        for server in &mut self.servers {
            casualties.extend(server.poll()?);
        }
        for worker in &mut self.workers {
            casualties.extend(worker.poll()?.filter(|ended| !ended.success));
        }
        Ok(casualties.into_iter().min_by_key(|ended| !ended.killed))
    }

    /// Whether every rank has ended.
    pub(crate) fn workers_done(&mut self) -> anyhow::Result<bool> {
        let mut done = true;
        for worker in &mut self.workers {
            done &= worker.poll()?.is_some();
        }
        Ok(done)
    }

    /// Ends all processes: asks, waits, kills.
    pub(crate) fn stop(&mut self) {
        Process::stop_all(self.workers.iter_mut().chain(&mut self.servers).collect());
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What every process of a run is told besides its arguments.
pub(crate) fn environment(token: &str) -> BTreeMap<&'static str, String> {
    // One thread a rank: several share a machine's cores.
    BTreeMap::from([
        (TOKEN_VARIABLE, token.to_owned()),
        ("OMP_NUM_THREADS", "1".to_owned()),
    ])
}

/// A host as it stands before a port.
pub(crate) fn bare_host(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

/// What a server writes into `file` once it listens.
pub(crate) fn wait_for_address(process: &mut Process, file: &Path) -> anyhow::Result<String> {
    let mut waited = Duration::ZERO;
    loop {
        if let Ok(address) = std::fs::read_to_string(file) {
            return Ok(address);
        }
        if let Some(ended) = process.poll()? {
            return Err(ended.into());
        }
        if waited >= LISTEN {
            bail!(
                "{} does not listen after {LISTEN:?}; see {}",
                process.role(),
                process.log().display()
            );
        }
        std::thread::sleep(LOOK);
        waited += LOOK;
    }
}
