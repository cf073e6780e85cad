//! `tradewind slurm task`: what srun starts for each server and each rank. It starts the process and
//! starts it again where it dies, in the same step, with the same CPUs and GPUs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{interval, sleep};
use tradewind_common::exit::Exit;

use super::start::{next_life, resumes};
use super::visit::{self, Next, Visit};
use super::{address, gave_up, seat::Seat};
use crate::{DEATHS_MAX, LOOK, Member, PAUSES_MS, Process, Programs, Role, bare_host, environment};
use tradewind_config::Config;
use tradewind_folder::clock::Clock;
use tradewind_folder::failure::Failure;
use tradewind_folder::place::Place;
use tradewind_folder::runtime::one_thread;

/// How long servers that are told to end wait for the last snapshot: Slurm kills after `KillWait`,
/// which is 30 s where nobody has changed it.
const LINGER_MS: u64 = 20_000;

/// What the batch script says.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The run's folder.
    run: PathBuf,
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Copy, Debug, clap::Subcommand)]
enum What {
    /// The server of the task's number.
    Servers,
    /// The rank of the task's number.
    Group { number: u32 },
}

/// Starts the server or the rank of this task until it has ended in order, and returns what the task ends with.
pub fn run(arguments: &Arguments) -> ExitCode {
    let ran = one_thread().map_err(Into::into).and_then(|runtime| {
        runtime.block_on(async {
            let task = Task::new(arguments)?;
            task.begin().await?;
            task.keep().await
        })
    });
    match ran {
        Ok(code) => code,
        Err(error) => {
            let why = format!("{error:#}");
            // The others would wait for the first server for long.
            match (arguments.what, Seat::here()) {
                (What::Servers, Ok(seat)) => {
                    let failure = Failure {
                        text: format!("server {}: {why}", seat.task),
                        ..Failure::of_member(Member::Server(seat.task), why)
                    };
                    if let Err(error) = gave_up::write(&arguments.run, seat.start(), &failure) {
                        tradewind_process::complain!("{error:#}");
                    }
                }
                _ => tradewind_process::complain!("{why}"),
            }
            ExitCode::FAILURE
        }
    }
}

/// A member of the run, and where it is.
struct Task {
    place: Place,
    programs: Programs,
    token: String,
    seat: Seat,
    member: Member,
    /// Address of this node.
    host: String,
    log: PathBuf,
}

impl Task {
    fn new(arguments: &Arguments) -> anyhow::Result<Self> {
        let seat = Seat::here()?;
        let place = Place::find(Some(&arguments.run))?;
        let member = match arguments.what {
            What::Servers => Member::Server(seat.task),
            What::Group { number } => Member::Rank {
                group: number,
                rank: seat.task,
            },
        };
        let name = match member {
            Member::Server(server) => format!("server-{server}"),
            Member::Rank { group, rank } => format!("group-{group}-rank-{rank}"),
        };
        let interface = place.config.slurm.interface.as_deref();
        Ok(Self {
            host: address::of_node(&seat.node, interface)?.to_string(),
            log: place.path.join("logs").join(format!("{name}.log")),
            token: place.token()?,
            programs: Programs::of(&place.config)?,
            place,
            seat,
            member,
        })
    }

    /// Waits until the folder is that of this start of the job; groups of other jobs find it so.
    async fn begin(&self) -> anyhow::Result<()> {
        let run = &self.place.path;
        match self.member {
            Member::Server(0) => Ok(()),
            Member::Server(_) => self.seat.start().begun(run).await,
            Member::Rank { group, .. } if is_started_with_servers(&self.place.config, group) => {
                self.seat.start().begun(run).await
            }
            Member::Rank { .. } => Visit::begun(run).await,
        }
    }

    /// What a rank goes by whose group is a job of its own.
    fn visit(&self) -> Option<Visit<'_>> {
        match self.member {
            Member::Rank { group, .. } if !is_started_with_servers(&self.place.config, group) => {
                Some(Visit::new(&self.place, group))
            }
            _ => None,
        }
    }

    /// Keeps the process going until it has done its part, or is told to end.
    async fn keep(&self) -> anyhow::Result<ExitCode> {
        let lease = Duration::from_millis(self.place.config.liveness.lease_ms);
        let mut terminate = signal(SignalKind::terminate())?;
        let mut deaths = 0;
        let mut visit = self.visit();
        loop {
            let mut process = self.start()?;
            let clock = Clock::start();
            let mut told = false;
            let mut anew = false;
            let mut looks = interval(visit::PAUSE);
            let ended = loop {
                if let Some(ended) = process.poll()? {
                    break ended;
                }
                tokio::select! {
                    _ = terminate.recv() => {
                        told = true;
                        process.terminate();
                    }
                    _ = looks.tick(), if !told && !anew => {
                        match visit.as_mut().map_or(Next::Stay, Visit::next) {
                            Next::Stay => {}
                            Next::Anew => {
                                anew = true;
                                process.terminate();
                            }
                            Next::End => {
                                told = true;
                                process.terminate();
                            }
                        }
                    }
                    () = sleep(LOOK) => {}
                }
            };
            let is_rank = matches!(self.member, Member::Rank { .. });
            match ended.status.and_then(Exit::of) {
                _ if told => return Ok(ExitCode::SUCCESS),
                _ if anew => {
                    deaths = 0;
                    continue;
                }
                Some(Exit::Done) => return Ok(ExitCode::SUCCESS),
                Some(Exit::Left) if is_rank => return Ok(ExitCode::SUCCESS),
                Some(exit) if is_rank && exit.lasts() => {
                    gave_up::write(&self.place.path, self.seat.start(), &ended.into())?;
                    return Ok(exit.into());
                }
                _ => {}
            }
            // A process that has outlived a lease was of use.
            deaths = if clock.elapsed() > 2 * lease {
                1
            } else {
                deaths + 1
            };
            if deaths > DEATHS_MAX {
                let how = format!("{}, {deaths} times without progress", ended.how);
                let failure = ended.because(how).into();
                gave_up::write(&self.place.path, self.seat.start(), &failure)?;
                return Ok(ExitCode::FAILURE);
            }
            let pause_ms = PAUSES_MS[(deaths as usize - 1).min(PAUSES_MS.len() - 1)];
            tradewind_process::complain!(
                "{} {}; restarted in {pause_ms} ms",
                self.member,
                ended.how
            );
            tokio::select! {
                _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
                () = sleep(Duration::from_millis(pause_ms)) => {}
            }
        }
    }

    fn start(&self) -> anyhow::Result<Process> {
        let (program, arguments) = match self.member {
            Member::Server(server) => (&self.programs.server, self.server(server)?),
            Member::Rank { group, rank } => (&self.programs.worker, self.rank(group, rank)?),
        };
        let environment: BTreeMap<_, _> = environment(&self.token)
            .into_iter()
            .chain([("OMP_NUM_THREADS", self.seat.cpus.to_string())])
            .collect();
        Process::start(
            Role::Member(self.member),
            program,
            &arguments,
            &environment,
            &self.log,
        )
    }

    fn server(&self, server: u32) -> anyhow::Result<Vec<String>> {
        let Place { path, config, .. } = &self.place;
        let run = path.display();
        let is_fleet = self.place.is_fleet();
        let founds = server == 0 && self.seat.start().begin(path, is_fleet)?;
        let mut arguments = vec![
            format!("--server={server}"),
            format!("--incarnation={}", next_life(path, server)?),
            format!("--listen={}:0", bare_host(&self.host)),
            format!("--address-file={run}/logs/server-{server}.address"),
            format!("--folder={run}"),
            format!("--lease-ms={}", config.liveness.lease_ms),
            format!("--host={}", self.seat.node),
            format!("--threads={}", self.seat.cpus.max(2)),
            format!("--linger-ms={LINGER_MS}"),
        ];
        if founds {
            arguments.push(format!("--coordinate={}", config.cluster.servers));
        }
        // Whoever hosts the coordinator first: this start has put the state before it aside, so a state
        // that is there is its own, and wins. Snapshots may have come since, then it knows the run.
        if !is_fleet && resumes(path, &config.name)? {
            arguments.push(format!("--resume={}", config.name));
        }
        arguments.push(format!("--stand-in={}", config.cluster.servers));
        if let Some(first) = config.telemetry.prometheus {
            let metrics = address::free(first)?;
            tradewind_process::complain!("server {server}: metrics on {metrics}");
            arguments.push(format!("--metrics={metrics}"));
        }
        Ok(arguments)
    }

    fn rank(&self, group: u32, rank: u32) -> anyhow::Result<Vec<String>> {
        let run = &self.place.path;
        let file = |name: &str| run.join(name).display().to_string();
        // Groups that came later have a configuration that knows them.
        let is_configured = (group as usize) < self.place.config.cluster.groups.len();
        let config = match is_configured {
            true => file("config.toml"),
            false => file(&format!("slurm/group-{group}.toml")),
        };
        Ok(vec![
            "train".into(),
            format!("--config={config}"),
            format!(
                "--coordinator-file={}",
                self.place.fleet.join("coordinator/address.json").display()
            ),
            format!("--group={group}"),
            format!("--rank={rank}"),
            format!("--local-rank={}", self.seat.local),
            format!("--host={}", self.host),
            format!("--threads={}", self.seat.cpus),
            format!("--metrics={}", file("metrics.jsonl")),
        ])
    }
}

/// Whether a group is started in the same job as the servers.
fn is_started_with_servers(config: &Config, group: u32) -> bool {
    (group as usize) < config.slurm.min_groups
}
