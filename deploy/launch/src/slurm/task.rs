//! `tradewind slurm task`: what srun starts for each server and each rank. It starts the process and
//! starts it again where it dies, in the same step, with the same CPUs and GPUs.

use std::cell::RefCell;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{interval, sleep, timeout};
use tradewind_common::exit::Exit;
use tradewind_common::{ServerId, run_files};

use super::authority::{self, Successor};
use super::enrol::Applicant;
use super::run_watch::{self, Next, RunWatch};
use super::start::{next_life, resumes};
use super::task_secrets::{TaskName, Tasked};
use super::{address, gave_up, identity::TaskIdentity};
use crate::finished::{judge, meaning};
use crate::issuing::Site;
use crate::secrets::{identity, people, security};
use crate::supervisor::{Action, Death, Progress, Rules, Supervisor};
use crate::{LOOK, Member, Process, ProcessEnd, Programs, Role, bare_host, environment};
use tradewind_config::Config;
use tradewind_folder::clock::Clock;
use tradewind_folder::failure::Failure;
use tradewind_folder::found::FoundRun;
use tradewind_folder::runtime::one_thread;
use tradewind_process::supervise;
use tradewind_programs::server::{CoordinatorAt, ServerArguments};
use tradewind_programs::worker::{
    CoordinatorArgument, EvaluateArguments, TrainArguments, WorkerArguments,
};
use tradewind_proto::authorities::Keepers;
use tradewind_proto::authority::Authority;

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
    /// The rank of the task's number, in the evaluation that a group does whose model is sharded over its ranks.
    Evaluation { group: u32 },
}

/// Starts the server or the rank of this task until it has ended in order, and returns what the task ends with.
pub fn run(arguments: &Arguments) -> ExitCode {
    let member = |identity: &TaskIdentity| match arguments.what {
        What::Servers => Ok(Member::Server(identity.task)),
        What::Group { number } => Ok(Member::Rank {
            group: number,
            rank: identity.task,
        }),
        What::Evaluation { group } => Err(group),
    };
    let keep = |identity: TaskIdentity| match member(&identity) {
        Ok(member) => one_thread()?.block_on(async {
            let mut task = SlurmTask::new(&arguments.run, identity, member)?;
            task.begin().await?;
            task.keep().await
        }),
        Err(group) => evaluate(&arguments.run, &identity, group),
    };
    let ran = TaskIdentity::here().and_then(keep);
    match ran {
        Ok(code) => code,
        Err(error) => {
            let why = format!("{error:#}");
            // The others would wait for the first server for long.
            match (arguments.what, TaskIdentity::here()) {
                (What::Servers, Ok(identity)) => {
                    let failure = Failure {
                        text: format!("server {}: {why}", identity.task),
                        ..Failure::of_member(Member::Server(identity.task), why)
                    };
                    if let Err(error) = gave_up::write(&arguments.run, identity.start(), &failure) {
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
struct SlurmTask {
    place: FoundRun,
    programs: Programs,
    token: String,
    identity: TaskIdentity,
    member: Member,
    /// Address of this node.
    host: String,
    log: PathBuf,
    /// Under TLS: of the first server's task, which has founded it.
    authority: Option<Arc<Authority>>,
    /// Under TLS: of other tasks, once they have asked for a certificate.
    applicant: RefCell<Option<Applicant>>,
}

/// Becomes a rank of an evaluation; returns only if it cannot.
fn evaluate(run: &Path, identity: &TaskIdentity, group: u32) -> anyhow::Result<ExitCode> {
    let place = FoundRun::find(Some(run))?;
    let interface = place.config.slurm.interface.as_deref();
    let host = address::of_node(&identity.node, interface)?.to_string();
    let arguments = EvaluateArguments {
        group: Some(group),
        rank: identity.task,
        local_rank: identity.local,
        host: Some(host),
        ..evaluation(&place, identity.cpus)?
    };
    let task = Tasked::Evaluation {
        group,
        rank: identity.task,
    };
    let task = TaskName::new(identity.start(), task);
    let pass = match Applicant::new(&place.fleet, task)? {
        Some(mut applicant) => Some(one_thread()?.block_on(applicant.pass())?),
        None => None,
    };
    let environment = environment(&place.token()?, pass.as_deref(), identity.cpus);
    let programs = Programs::of(&place.config)?;
    let mut command = programs.rank.command(&arguments.into(), &environment)?;
    let error = command.exec();
    Err(error).with_context(|| format!("cannot start {}", command.get_program().display()))
}

/// The evaluation of a run by one process, which computes with so many CPUs.
pub(super) fn evaluation(place: &FoundRun, cpus: u32) -> anyhow::Result<EvaluateArguments> {
    let FoundRun {
        path,
        config,
        fleet,
    } = place;
    Ok(EvaluateArguments {
        config: path.join(run_files::CONFIG),
        coordinator: CoordinatorArgument::File(fleet.join(run_files::COORDINATOR_ADDRESS)),
        out: path.clone(),
        milestones: (config.evaluation_samples > 0).then(|| fleet.clone()),
        group: None,
        rank: 0,
        local_rank: 0,
        host: None,
        threads: i32::try_from(cpus)?,
    })
}

impl SlurmTask {
    fn new(run: &Path, identity: TaskIdentity, member: Member) -> anyhow::Result<Self> {
        let place = FoundRun::find(Some(run))?;
        let interface = place.config.slurm.interface.as_deref();
        Ok(Self {
            host: address::of_node(&identity.node, interface)?.to_string(),
            log: place.path.join(member.log()),
            token: place.token()?,
            programs: Programs::of(&place.config)?,
            place,
            identity,
            member,
            authority: None,
            applicant: RefCell::default(),
        })
    }

    /// Waits until the folder is that of this start of the job; groups of other jobs find it so.
    async fn begin(&mut self) -> anyhow::Result<()> {
        let run = &self.place.path;
        match self.member {
            // Before the folder is this start's: others go by what it says then.
            Member::Server(0) => {
                let config = &self.place.config;
                let (name, life_s) = (config.name.as_str(), config.cluster.certificate_s);
                let site = self.site()?;
                self.authority = authority::found(&site, self.keepers(), (name, life_s)).await?;
                Ok(())
            }
            Member::Server(_) => self.identity.start().begun(run).await,
            Member::Rank { group, .. } if is_started_with_servers(&self.place.config, group) => {
                self.identity.start().begun(run).await
            }
            Member::Rank { .. } => RunWatch::begun(run).await,
        }
    }

    /// Where an authority in this task answers.
    fn site(&self) -> anyhow::Result<Site> {
        let config = &self.place.config;
        Ok(Site {
            folder: self.place.path.clone(),
            host: self.host.clone(),
            people: people(config, security(config, false)?)?,
        })
    }

    /// The servers whose tasks keep the authority's key.
    fn keepers(&self) -> Keepers {
        Keepers {
            servers_per_node: self.place.config.slurm.servers_per_node,
        }
    }

    /// Has the authority's key handed on, in the task of one of the servers that keep it: from when it has enrolled on,
    /// and in the background.
    fn succeed(&self) -> anyhow::Result<()> {
        let keepers = self.keepers();
        if let Member::Server(server) = self.member
            && keepers.succeeds(ServerId(server))
            && let Some(applicant) = &*self.applicant.borrow()
            && let Some(pass) = applicant.enrolled()
        {
            let successor = Successor::new(self.site()?, keepers, ServerId(server), pass)?;
            supervise(
                "the taking over of the authority's key",
                successor.succeed(),
            );
        }
        Ok(())
    }

    /// What a rank goes by whose group is a job of its own.
    fn run_watch(&self) -> Option<RunWatch<'_>> {
        match self.member {
            Member::Rank { group, .. } if !is_started_with_servers(&self.place.config, group) => {
                Some(RunWatch::new(&self.place, group))
            }
            _ => None,
        }
    }

    /// Keeps the process going until it has done its part, or is told to end.
    async fn keep(&self) -> anyhow::Result<ExitCode> {
        let rules = Rules {
            // A process that has outlived a lease was of use.
            progress: Progress::Uptime {
                ms: 2 * self.place.config.liveness.lease_ms,
            },
            // The coordinator removes whom it does not hear, and fencing ends a rank that hangs.
            silence: None,
            finds_host: false,
            // Slurm tells all processes of a step to end.
            servers_finish: true,
        };
        let clock = Clock::start();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut looks = interval(run_watch::PAUSE);
        let mut run_watch = self.run_watch();
        let mut process = self.start().await?;
        self.succeed()?;
        let mut supervisor = Supervisor::new(rules, [(self.member, 1)], clock.now_ms());
        // How the present process has ended, once it has.
        let mut ended: Option<ProcessEnd> = None;
        let mut told = false;
        loop {
            tokio::select! {
                biased;
                _ = terminate.recv() => {
                    told = true;
                    supervisor.handle_end();
                }
                _ = looks.tick() => match run_watch.as_mut().map_or(Next::Stay, RunWatch::next) {
                    Next::Stay => {}
                    Next::Renew => supervisor.handle_renewal(self.member),
                    Next::End => supervisor.handle_end(),
                },
                () = sleep(LOOK) => {}
            }
            if ended.is_none()
                && let Some(mut end) = process.poll()?
            {
                let mut status = end.status;
                if end.success && self.is_script() {
                    let judged = judge(self.member, end, self.meaning().await?);
                    status = Some(judged.exit.number().into());
                    end = judged.ended;
                }
                let how = end.how.clone();
                let death = Death { status, how };
                supervisor.handle_death(self.member, &death, clock.now_ms());
                ended = Some(end);
            }
            supervisor.tick(clock.now_ms());
            while let Some(action) = supervisor.poll_action() {
                match action {
                    Action::Start { member, .. } => {
                        process = self.start().await?;
                        ended = None;
                        supervisor.handle_started(member, clock.now_ms());
                    }
                    Action::Terminate { .. } => process.terminate(),
                    Action::Kill { .. } => process.kill(),
                    Action::Tell(notice) if notice.show => {
                        tradewind_process::complain!("{}", notice.text);
                    }
                    Action::Tell(_) => {}
                    // None of its rules leads here: servers stand in for each other.
                    Action::Host { server, life } => {
                        supervisor.handle_hosted(server, life, false, clock.now_ms());
                    }
                    Action::GiveUp { member, why, exit } => {
                        let failure = match ended {
                            Some(ended) => ended.because(why).into(),
                            None => Failure::of_member(member, why),
                        };
                        gave_up::write(&self.place.path, self.identity.start(), &failure)?;
                        return Ok(exit.into());
                    }
                }
            }
            if supervisor.all_done() {
                // Its server is shut out; other tasks get their certificates here until the job ends.
                if self.authority.is_some() && !told {
                    terminate.recv().await;
                }
                return Ok(ExitCode::SUCCESS);
            }
        }
    }

    fn is_script(&self) -> bool {
        matches!(self.member, Member::Rank { .. }) && self.place.config.is_script()
    }

    /// What it means that the rank's script has ended with status 0: the coordinator is asked for as long as a
    /// rank would try to reach it.
    async fn meaning(&self) -> anyhow::Result<Option<Exit>> {
        let access = self.place.access()?;
        let asking = async {
            loop {
                if self.place.ended().is_some() {
                    return Some(Exit::Done);
                }
                if let Ok(Some(there)) = self.place.coordinator()
                    && let Ok(status) = access
                        .status_if_known(&there.address, &self.place.config.name)
                        .await
                {
                    return meaning(status.as_ref(), self.member);
                }
                sleep(LOOK).await;
            }
        };
        let patience = Duration::from_millis(self.place.config.liveness.retry_ms);
        Ok(timeout(patience, asking).await.ok().flatten())
    }

    async fn start(&self) -> anyhow::Result<Process> {
        let pass = self.pass().await?;
        let environment = environment(&self.token, pass.as_deref(), self.identity.cpus);
        let command = match self.member {
            Member::Server(server) => {
                let arguments = self.server_arguments(server)?;
                let mut command = arguments.to_command(&self.programs.server);
                command.envs(&environment);
                command
            }
            Member::Rank { group, rank } => {
                let arguments = WorkerArguments::from(self.train_arguments(group, rank)?);
                self.programs.rank.command(&arguments, &environment)?
            }
        };
        Process::start_command(Role::Member(self.member), command, &self.log)
    }

    /// Under TLS, what its process shows.
    async fn pass(&self) -> anyhow::Result<Option<String>> {
        if let Some(authority) = &self.authority {
            let own = identity(&self.place.config.name, self.member);
            return Ok(Some(authority.pass(&own)?));
        }
        let applicant = match self.applicant.take() {
            Some(applicant) => Some(applicant),
            None => {
                let task = TaskName::new(self.identity.start(), self.member);
                Applicant::new(&self.place.fleet, task)?
            }
        };
        let Some(mut applicant) = applicant else {
            return Ok(None);
        };
        let pass = applicant.pass().await;
        self.applicant.replace(Some(applicant));
        pass.map(Some)
    }

    fn server_arguments(&self, server: u32) -> anyhow::Result<ServerArguments> {
        let FoundRun { path, config, .. } = &self.place;
        let is_fleet = self.place.is_fleet();
        let founds = server == 0 && self.identity.start().begin(path, is_fleet)?;
        // Whoever hosts the coordinator first: this start has put the state before it aside, so a state
        // that is there is its own, and wins. Snapshots may have come since, then it knows the run.
        let resumes = !is_fleet && resumes(path, &config.name)?;
        let metrics = config.telemetry.prometheus.map(address::free).transpose()?;
        if let Some(metrics) = metrics {
            tradewind_process::complain!("server {server}: metrics on {metrics}");
        }
        Ok(ServerArguments {
            server,
            listen: format!("{}:0", bare_host(&self.host)),
            advertise: None,
            reached_at: None,
            coordinator: match founds {
                true => CoordinatorAt::Here {
                    servers: config.cluster.servers,
                },
                false => CoordinatorAt::InFolder,
            },
            folder: Some(path.clone()),
            resume: resumes.then(|| config.name.to_string()),
            host: Some(self.identity.node.clone()),
            lease_ms: config.liveness.lease_ms,
            address_file: Some(path.join(run_files::server_address(server))),
            metrics,
            otlp: config.telemetry.otlp.clone(),
            stand_in: Some(config.cluster.servers),
            linger_ms: LINGER_MS,
            incarnation: next_life(path, server)?,
            threads: self.identity.cpus.max(2) as usize,
        })
    }

    fn train_arguments(&self, group: u32, rank: u32) -> anyhow::Result<TrainArguments> {
        let FoundRun {
            path,
            config,
            fleet,
        } = &self.place;
        // Groups that came later have a configuration that knows them.
        let is_configured = (group as usize) < config.cluster.groups.len();
        Ok(TrainArguments {
            config: match is_configured {
                true => path.join(run_files::CONFIG),
                false => path.join(format!("slurm/group-{group}.toml")),
            },
            coordinator: CoordinatorArgument::File(fleet.join(run_files::COORDINATOR_ADDRESS)),
            group,
            rank,
            local_rank: self.identity.local,
            // The run's check has looked for GPUs elsewhere, if there was one.
            gpu: false,
            host: Some(self.host.clone()),
            threads: i32::try_from(self.identity.cpus)?,
            metrics: Some(path.join(run_files::METRICS)),
        })
    }
}

/// Whether a group is started in the same job as the servers.
fn is_started_with_servers(config: &Config, group: u32) -> bool {
    (group as usize) < config.groups_together()
}
