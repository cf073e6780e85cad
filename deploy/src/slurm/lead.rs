//! `tradewind slurm lead`: what the batch script becomes when it has started the steps. It sees the run
//! to its end: the evaluation, or before the time limit a last snapshot and the next job. If its node is
//! lost, the run goes on without it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{sleep, timeout};
use tradewind_proto::v1::StatusReply;
use tradewind_server::snapshot::{Folder, manifest};
use tradewind_server::store::read_address;

use super::job::{self, Component, What};
use super::seat::job_start;
use super::start::{Start, resumes};
use super::{client, gave_up};
use crate::clock::Clock;
use crate::cluster::{Access, ClusterStatus};
use crate::events::Events;
use crate::failure::{Cause, Failure};
use crate::folder::RunFolder;
use crate::launch::{LOOK, Process, Programs, Role, environment};
use crate::lines::Metrics;
use crate::place::Place;
use crate::progress::Progress;
use crate::results::{End, finish};
use crate::run::EXIT_INTERRUPTED;
use crate::runtime::one_thread;
use crate::say;
use crate::summary::Status;

/// Pause between two looks at the run.
const PAUSE: Duration = Duration::from_millis(500);

/// How long the coordinator may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// How long there may be no coordinator at first, and later in leases.
const COMING: Duration = Duration::from_secs(900);
const AWAY_LEASES: u32 = 12;

/// A coordinator that shall end and has been silent for so long has ended.
const SILENT: Duration = Duration::from_secs(2);

/// How often a run that leaves its fleet asks to be removed: a snapshot may be under way.
const LEAVING_TRIES: u32 = 60;

/// How long groups and the last snapshot may take once Slurm ends the job: it kills after `KillWait`.
const ENDING: Duration = Duration::from_secs(25);

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The run's folder.
    run: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let led = one_thread().map_err(Into::into).and_then(|runtime| {
        runtime.block_on(async {
            let mut lead = Lead::new(arguments)?;
            lead.begin().await?;
            let why = lead.follow().await;
            lead.finish(why).await
        })
    });
    match led {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Why following a run has come to its end.
#[derive(Debug)]
enum Why {
    /// The budget is applied.
    Completed,
    /// The time limit is near: groups have left, and a last snapshot is whole, if there was time.
    TimeIsUp,
    /// The job is being ended.
    Ended,
    Failed(Failure),
}

struct Lead {
    place: Place,
    folder: RunFolder,
    access: Access,
    clock: Clock,
    metrics: Metrics,
    events: Events,
    /// Samples applied, as groups have told.
    applied: u64,
    status: Option<StatusReply>,
    /// When the coordinator has answered last.
    heard: Duration,
    near_limit: Signal,
    terminate: Signal,
}

impl Lead {
    fn new(arguments: &Arguments) -> anyhow::Result<Self> {
        let place = Place::find(Some(&arguments.run))?;
        let folder = RunFolder::reopen(&place.path)?;
        let mut lead = Self {
            access: place.access()?,
            clock: Clock::start(),
            metrics: Metrics::new(folder.file("metrics.jsonl")),
            events: place.events(),
            applied: 0,
            status: None,
            heard: Duration::ZERO,
            near_limit: signal(SignalKind::user_defined1())?,
            terminate: signal(SignalKind::terminate())?,
            folder,
            place,
        };
        // What former jobs have written is known.
        lead.metrics.fresh()?;
        lead.events.fresh()?;
        Ok(lead)
    }

    /// On a fleet a run that was begun before goes on from its last snapshot; its groups wait until
    /// that is said.
    async fn begin(&self) -> anyhow::Result<()> {
        if !self.place.is_on_fleet() {
            return Ok(());
        }
        let name = &self.place.config.name;
        if resumes(&self.place.fleet, name)? {
            let there = self.place.coordinator()?;
            let there = there.ok_or_else(|| anyhow::anyhow!("the fleet has no coordinator"))?;
            // A former start may have been ended before it could do so.
            let _ = self.access.drain(&there.address, name, &[]).await;
            let _ = self.access.remove(&there.address, name).await;
            self.access.resume(&there.address, name).await?;
        }
        job_start()?.begin(&self.place.path, true)?;
        Ok(())
    }

    async fn follow(&mut self) -> Why {
        let config = &self.place.config;
        let groups = config.cluster.groups.len();
        let out = Box::new(std::io::stdout());
        let mut progress = Progress::new(groups, config.train.samples, false, out);
        let why = self.follow_with(&mut progress).await;
        progress.finish();
        why
    }

    async fn follow_with(&mut self, progress: &mut Progress) -> Why {
        let mut stopping: Option<(Why, Duration, Option<u64>)> = None;
        loop {
            if let Some(why) = self.look(progress).await {
                return why;
            }
            match stopping {
                None if self.all_have_left() => {
                    let text = "every group has left before train.samples were applied; `tradewind slurm submit --resume` goes on from the last snapshot";
                    return Why::Failed(Failure::of_run(text.into()));
                }
                Some((why, until, before)) => {
                    // The servers may have ended as well; what they have written is there.
                    let silent = self.clock.elapsed() - self.heard > SILENT;
                    if (silent || self.all_are_gone()) && self.newest_snapshot() > before {
                        return why;
                    }
                    if self.clock.elapsed() >= until {
                        progress.message("groups or the last snapshot were not done in time; what came after the one before is lost");
                        return why;
                    }
                    stopping = Some((why, until, before));
                }
                None => {}
            }
            let notice = Duration::from_millis(self.place.config.liveness.notice_ms);
            let (why, time, text) = tokio::select! {
                _ = self.near_limit.recv() => (Why::TimeIsUp, notice, "the time limit is near"),
                _ = self.terminate.recv() => (Why::Ended, ENDING, "the job is being ended"),
                () = sleep(PAUSE) => continue,
            };
            if stopping.is_none() {
                progress.message(&format!(
                    "{text}: groups leave, and a last snapshot is taken"
                ));
                let before = self.newest_snapshot();
                stopping = Some((why, self.clock.elapsed() + time, before));
                if let Err(error) = self.drain().await {
                    progress.message(&format!("groups cannot be asked to leave: {error:#}"));
                }
            }
        }
    }

    /// What has happened; why the run is over, if it is.
    async fn look(&mut self, progress: &mut Progress) -> Option<Why> {
        // What cannot be read now is read with the next look.
        for record in self.metrics.fresh().unwrap_or_default() {
            self.applied = self.applied.max(record.samples_applied);
            progress.record(&record);
        }
        for event in self.events.fresh().unwrap_or_default() {
            if event.is_shown() {
                progress.message(&event.text);
            }
        }
        if let Some(why) = gave_up::read(&self.place.path) {
            return Some(Why::Failed(Failure::of_run(why)));
        }
        match self.ask().await {
            Some(status) => {
                self.heard = self.clock.elapsed();
                if !status.failure.is_empty() {
                    return Some(Why::Failed(Failure::of_run(status.failure)));
                }
                self.status = Some(status);
            }
            None => {
                let lease = Duration::from_millis(self.place.config.liveness.lease_ms);
                let patience = match self.status {
                    Some(_) => (AWAY_LEASES * lease).max(PAUSE),
                    None => COMING,
                };
                if self.clock.elapsed() - self.heard >= patience {
                    let text = format!(
                        "no coordinator has answered for {patience:?}; the logs of the servers in {} say why",
                        self.folder.file("logs").display()
                    );
                    return Some(Why::Failed(Failure::of_run(text)));
                }
            }
        }
        let done = self.applied >= self.place.config.train.samples;
        (done && self.all_are_gone()).then_some(Why::Completed)
    }

    async fn ask(&self) -> Option<StatusReply> {
        let there = read_address(&self.place.fleet).ok()??;
        let asked = self.access.status(&there.address, &self.place.config.name);
        timeout(ANSWER, asked).await.ok()?.ok()
    }

    /// Whether groups were there and are in one of these states now.
    fn all_are(&self, states: &[&str]) -> bool {
        let groups = self.status.iter().flat_map(|status| &status.groups);
        let mut groups = groups.peekable();
        groups.peek().is_some() && groups.all(|group| states.contains(&group.state.as_str()))
    }

    fn all_have_left(&self) -> bool {
        self.all_are(&["left"])
    }

    /// Whether nobody is there any more; a group whose nodes are lost is dead and cannot leave.
    fn all_are_gone(&self) -> bool {
        self.all_are(&["left", "dead"])
    }

    /// The newest whole snapshot on disk.
    fn newest_snapshot(&self) -> Option<u64> {
        let numbers = manifest::list(&Folder::new(&self.place.fleet), &self.place.config.name);
        numbers.ok()?.last().copied()
    }

    async fn drain(&self) -> anyhow::Result<()> {
        let there = read_address(&self.place.fleet)?;
        let there = there.ok_or_else(|| anyhow::anyhow!("there is no coordinator"))?;
        let name = &self.place.config.name;
        timeout(ANSWER, self.access.drain(&there.address, name, &[])).await?
    }

    async fn finish(self, why: Why) -> anyhow::Result<ExitCode> {
        if matches!(why, Why::TimeIsUp) && self.place.config.slurm.requeue {
            // It is not over, so there is no summary.
            let Start { job, .. } = job_start()?;
            say(format_args!("job {job} goes back into the queue"));
            client::requeue(job)?;
            return Ok(ExitCode::from(EXIT_INTERRUPTED));
        }
        let cluster = timeout(ANSWER, self.cluster()).await.ok().flatten();
        let (status, failure) = match why {
            Why::Completed => {
                say("training is done; evaluating the servers' parameters");
                match self.evaluate().await {
                    Ok(()) => (Status::Completed, None),
                    Err(error) => failed(error.into()),
                }
            }
            Why::Failed(failure) => failed(failure),
            Why::TimeIsUp | Why::Ended => (Status::Interrupted, None),
        };
        let end = End {
            status,
            failure,
            cluster,
            resumed_from: None,
            wall: self.clock.elapsed(),
        };
        let status = finish(&self.place.config, &self.folder, &self.place.fleet, end)?;
        if self.place.is_on_fleet() {
            self.leave_fleet().await;
        }
        Ok(match status {
            Status::Completed => ExitCode::SUCCESS,
            Status::Failed => ExitCode::FAILURE,
            Status::Interrupted => ExitCode::from(EXIT_INTERRUPTED),
        })
    }

    /// Others are on it; what is left here is in snapshots.
    async fn leave_fleet(&self) {
        let name = &self.place.config.name;
        let left = async {
            let there = self.place.coordinator()?;
            let there = there.ok_or_else(|| anyhow::anyhow!("the fleet has no coordinator"))?;
            self.access.drain(&there.address, name, &[]).await?;
            let mut tries = 0;
            loop {
                match self.access.remove(&there.address, name).await {
                    Err(_) if tries < LEAVING_TRIES => tries += 1,
                    removed => return removed,
                }
                sleep(PAUSE).await;
            }
        };
        if let Err(error) = left.await {
            eprintln!("run {name} stays on its fleet: {error:#}");
        }
    }

    async fn cluster(&self) -> Option<ClusterStatus> {
        let there = read_address(&self.place.fleet).ok()??;
        let asked = self.access.cluster(&there.address, &self.place.config.name);
        asked.await.ok()
    }

    /// In a step of its own, where the first group's ranks were.
    async fn evaluate(&self) -> anyhow::Result<()> {
        let components = match self.place.is_on_fleet() {
            true => job::of_groups(&self.place.config),
            false => job::of_run(&self.place.config),
        };
        let is_group = |component: &Component| matches!(component.what, What::Group(_));
        let number = components.iter().position(is_group);
        let number = number.ok_or_else(|| anyhow::anyhow!("the job has no group"))?;
        let group = &components[number];
        let run = self.place.path.display();
        let fleet = self.place.fleet.display();
        let het = (components.len() > 1).then(|| format!("--het-group={number}"));
        let mut arguments: Vec<String> = het.into_iter().collect();
        arguments.extend([
            "--overlap".into(),
            "--nodes=1".into(),
            "--ntasks=1".into(),
            format!("--cpus-per-task={}", group.cpus),
        ]);
        if group.gpus > 0 {
            arguments.push(format!("--gpus-per-task={}", group.gpus));
        }
        arguments.extend(self.place.config.slurm.step_options.iter().cloned());
        arguments.extend([
            Programs::find()?.worker.display().to_string(),
            "evaluate".into(),
            format!("--config={run}/config.toml"),
            format!("--coordinator-file={fleet}/coordinator/address.json"),
            format!("--out={run}"),
        ]);
        if self.place.config.evaluation_samples > 0 {
            arguments.push(format!("--milestones={fleet}"));
        }
        let environment = environment(&self.place.token()?);
        let log = self.folder.file("logs/evaluate.log");
        let srun = std::path::Path::new("srun");
        let mut process = Process::start(Role::Evaluation, srun, &arguments, &environment, &log)?;
        loop {
            match process.poll()? {
                Some(ended) if ended.success => return Ok(()),
                Some(ended) => return Err(ended.into()),
                None => sleep(LOOK).await,
            }
        }
    }
}

fn failed(failure: Failure) -> (Status, Option<Cause>) {
    eprintln!("the run failed: {}", failure.text);
    (Status::Failed, Some(failure.cause))
}
