//! The processes of a run on this machine, one a member at a time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tradewind_common::run_files;
use tradewind_config::Config;
use tradewind_programs::server::{self, CoordinatorAt, ServerArguments};
use tradewind_programs::worker::{self, CoordinatorArgument, TrainArguments, WorkerArguments};

use tradewind_folder::member::Member;
use tradewind_folder::member::{ProcessEnd, Role};

use super::process::Process;
use super::roster::Roster;
use super::secrets::identity;
use super::{Programs, Secrets, bare_host, wait_for_address};
use tradewind_folder::run::RunFolder;

/// A row of `processes.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessRow {
    /// `server` or `worker`.
    pub role: String,
    /// Number of the server, or of the rank in the whole run.
    pub index: u32,
    /// The group of a rank.
    pub group: Option<u32>,
    /// Its number in that group.
    pub group_rank: Option<u32>,
    /// Its number, as the kernel counts.
    pub pid: u32,
    /// Where a server listens, `host:port`; of a rank its host.
    pub address: String,
    /// Which process of its member it is, from 1.
    #[serde(default)]
    pub life: u64,
}

/// The processes of a run, as its folder names them; none if it does not.
pub fn processes(folder: &Path) -> Vec<ProcessRow> {
    let text = std::fs::read_to_string(folder.join(run_files::PROCESSES)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// What processes are started with.
#[derive(Clone, Copy, Debug)]
pub struct LaunchContext<'a> {
    /// The run.
    pub config: &'a Config,
    /// The programs that are started.
    pub programs: &'a Programs,
    /// Its folder.
    pub folder: &'a RunFolder,
    /// What its processes show each other.
    pub secrets: &'a Secrets,
    /// Lives of previous processes in this folder end here; 0 if there were none.
    pub lives_before: u64,
    /// The run goes on from its newest snapshot.
    pub resume: bool,
    /// The check has found GPUs for the ranks: one that sees none later does not take the CPU.
    pub gpus: bool,
    /// Where those who run are written down.
    pub roster: &'a Roster,
    /// Under which addresses the servers are reached; none, if under their own.
    pub fronts: &'a [String],
}

/// All processes of a run. Dropping it kills what is left.
#[derive(Debug)]
pub struct Local<'a> {
    context: LaunchContext<'a>,
    running: BTreeMap<Member, Running>,
}

/// The present process of a member.
#[derive(Debug)]
struct Running {
    process: Process,
    life: u64,
    /// Where a server listens, once it does.
    address: Option<String>,
    /// Its end has been told.
    told: bool,
}

impl<'a> Local<'a> {
    /// No processes yet.
    pub fn new(context: LaunchContext<'a>) -> Self {
        Self {
            context,
            running: BTreeMap::new(),
        }
    }

    /// Starts servers, each when the one before listens, then workers, and writes `processes.json`.
    pub fn start_all(&mut self) -> anyhow::Result<()> {
        let life = self.context.lives_before + 1;
        for server in 0..self.context.config.cluster.servers {
            let member = Member::Server(server);
            self.start(member, life, server == 0)?;
            let file = self.address_file(server);
            let running = self.running.get_mut(&member).expect("it was started");
            let address = wait_for_address(&mut running.process, &file)?;
            self.context.roster.listens(server, &address);
            running.address = Some(address);
        }
        for member in ranks(self.context.config) {
            self.start(member, life, false)?;
        }
        self.write_down()
    }

    /// Starts the process of a member; a previous one has ended.
    pub fn start(&mut self, member: Member, life: u64, coordinate: bool) -> anyhow::Result<()> {
        let LaunchContext {
            programs, secrets, ..
        } = self.context;
        // One thread a rank: several share the cores.
        let own = identity(&self.context.config.name, member);
        let environment = secrets.environment(&own, worker::THREADS)?;
        let command = match member {
            Member::Server(server) => {
                let file = self.address_file(server);
                match std::fs::remove_file(&file) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(error)
                            .with_context(|| format!("cannot remove {}", file.display()));
                    }
                    _ => {}
                }
                let arguments = self.server_arguments(server, life, coordinate);
                let mut command = arguments.to_command(&programs.server);
                command.envs(&environment);
                command
            }
            Member::Rank { group, rank } => {
                let arguments = WorkerArguments::from(self.train_arguments(group, rank));
                programs.rank.command(&arguments, &environment)?
            }
        };
        let role = Role::Member(member);
        let process = Process::start_command(role, command, &self.log(member))?;
        self.context.roster.started(member, process.pid(), life);
        let running = Running {
            process,
            life,
            address: None,
            told: false,
        };
        self.running.insert(member, running);
        Ok(())
    }

    fn server_arguments(&self, server: u32, life: u64, coordinate: bool) -> ServerArguments {
        let LaunchContext {
            config,
            folder,
            resume,
            fronts,
            ..
        } = self.context;
        let metrics = config.telemetry.prometheus.map(|first| {
            // Checked with the configuration.
            SocketAddr::new(first.ip(), first.port() + server as u16)
        });
        ServerArguments {
            server,
            listen: format!("{}:0", bare_host(&config.cluster.host)),
            advertise: None,
            reached_at: fronts.get(server as usize).cloned(),
            coordinator: match coordinate {
                true => CoordinatorAt::Here {
                    servers: config.cluster.servers,
                },
                false => CoordinatorAt::InFolder,
            },
            folder: Some(folder.path().to_owned()),
            // Whoever hosts the coordinator first: server 0 may die before it has written anything down.
            resume: resume.then(|| config.name.to_string()),
            host: Some(config.cluster.host.clone()),
            lease_ms: config.liveness.lease_ms,
            address_file: Some(self.address_file(server)),
            metrics,
            otlp: config.telemetry.otlp.clone(),
            // The supervisor finds another host for the coordinator.
            stand_in: None,
            // Groups are gone, or of no use any more, when servers are told to end.
            linger_ms: 0,
            incarnation: life,
            threads: server::THREADS,
        }
    }

    fn train_arguments(&self, group: u32, rank: u32) -> TrainArguments {
        let folder = self.context.folder;
        // Its place among all ranks, which are all on this machine.
        let own = Member::Rank { group, rank };
        let local_rank = ranks(self.context.config).take_while(|other| *other < own);
        TrainArguments {
            config: folder.file(run_files::CONFIG),
            coordinator: CoordinatorArgument::File(folder.file(run_files::COORDINATOR_ADDRESS)),
            group,
            rank,
            local_rank: local_rank.count() as u32,
            gpu: self.context.gpus,
            // The configuration says it.
            host: None,
            threads: worker::THREADS,
            metrics: Some(folder.file(run_files::METRICS)),
        }
    }

    fn address_file(&self, server: u32) -> PathBuf {
        self.context.folder.file(&run_files::server_address(server))
    }

    fn log(&self, member: Member) -> PathBuf {
        self.context.folder.file(&member.log())
    }

    /// Every member and which life of it runs.
    pub fn lives(&self) -> Vec<(Member, u64)> {
        let lives = self.running.iter();
        lives
            .map(|(member, running)| (*member, running.life))
            .collect()
    }

    /// Processes that have ended since the last call.
    pub fn deaths(&mut self) -> anyhow::Result<Vec<(Member, ProcessEnd)>> {
        let mut deaths = Vec::new();
        for (member, running) in &mut self.running {
            if !running.told
                && let Some(ended) = running.process.poll()?
            {
                running.told = true;
                self.context.roster.ended(*member);
                deaths.push((*member, ended));
            }
        }
        Ok(deaths)
    }

    /// Servers that have begun to listen since the last call.
    pub fn listening(&mut self) -> Vec<u32> {
        let mut listening = Vec::new();
        let silent = |running: &Running| running.address.is_none() && !running.told;
        for server in 0..self.context.config.cluster.servers {
            let file = self.address_file(server);
            let running = self.running.get_mut(&Member::Server(server));
            if let Some(running) = running.filter(|running| silent(running))
                && let Ok(address) = std::fs::read_to_string(&file)
            {
                let address = address.trim().to_owned();
                self.context.roster.listens(server, &address);
                running.address = Some(address);
                listening.push(server);
            }
        }
        listening
    }

    /// Where a server listens, if it does.
    pub fn address(&self, server: u32) -> Option<(u64, String)> {
        let running = self.running.get(&Member::Server(server))?;
        Some((running.life, running.address.clone()?))
    }

    /// Whether the present process of a member has not ended.
    pub fn runs(&self, member: Member) -> bool {
        self.running
            .get(&member)
            .is_some_and(|running| !running.told)
    }

    /// Ends a process without asking it.
    pub fn kill(&self, member: Member) {
        if let Some(running) = self.running.get(&member) {
            running.process.kill();
        }
    }

    /// Asks a process to end.
    pub fn terminate(&self, member: Member) {
        if let Some(running) = self.running.get(&member) {
            running.process.terminate();
        }
    }

    /// Writes `processes.json`.
    pub fn write_down(&self) -> anyhow::Result<()> {
        let host = &self.context.config.cluster.host;
        let mut rows = Vec::new();
        for (member, running) in &self.running {
            let (role, group, group_rank) = match *member {
                Member::Server(_) => ("server", None, None),
                Member::Rank { group, rank } => ("worker", Some(group), Some(rank)),
            };
            let same = rows.iter().filter(|row: &&ProcessRow| row.role == role);
            let address = match member {
                Member::Server(_) => running.address.clone().unwrap_or_default(),
                Member::Rank { .. } => host.clone(),
            };
            let row = ProcessRow {
                role: role.to_owned(),
                index: match *member {
                    Member::Server(server) => server,
                    Member::Rank { .. } => same.count() as u32,
                },
                group,
                group_rank,
                pid: running.process.pid(),
                address,
                life: running.life,
            };
            rows.push(row);
        }
        let text = serde_json::to_string_pretty(&rows)?;
        self.context.folder.write(run_files::PROCESSES, &text)
    }

    /// Ends all processes: asks, waits, kills.
    pub fn stop(&mut self) {
        self.stop_those(|_| true);
    }

    /// Ends all ranks and one server.
    pub fn stop_ranks_and(&mut self, server: u32) {
        self.stop_those(|member| match member {
            Member::Rank { .. } => true,
            Member::Server(number) => number == server,
        });
    }

    fn stop_those(&mut self, which: impl Fn(Member) -> bool) {
        // Ranks first: they talk to servers.
        let running = self.running.iter_mut().rev();
        let those = running.filter(|(member, _)| which(**member));
        Process::stop_all(those.map(|(_, running)| &mut running.process).collect());
    }
}

impl Drop for Local<'_> {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The ranks of a configuration, in order.
fn ranks(config: &Config) -> impl Iterator<Item = Member> + '_ {
    let groups = config.cluster.groups.iter().enumerate();
    groups.flat_map(|(group, size)| {
        let group = group as u32;
        (0..*size).map(move |rank| Member::Rank { group, rank })
    })
}
