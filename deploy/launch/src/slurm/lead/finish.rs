//! The end of a run: the next start of its job, or the evaluation and the summary.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::bail;
use tokio::time::{sleep, timeout};
use tradewind_common::exit::Exit;
use tradewind_common::run_files;
use tradewind_proto::v1::StatusReply;
use tradewind_server::store::read_address;

use super::super::enrol::Applicant;
use super::super::handing_in::jobs_of;
use super::super::job::{self, Component, What};
use super::super::render::{STEP, shape};
use super::super::task::evaluation;
use super::super::task_secrets::{self, TaskName, Tasked};
use super::super::{client, fleet};
use super::{ANSWER, Lead, PAUSE, Why};
use crate::results::{End, finish};
use crate::secrets::rank;
use crate::{LOOK, Process, Programs, Role, environment};
use tradewind_folder::cluster::ClusterStatus;
use tradewind_folder::failure::{Cause, Failure};
use tradewind_folder::summary::RunOutcome;
use tradewind_process::log::say;

/// How long a job is tried to be put back into the queue: then the time limit is there.
const REQUEUING: Duration = Duration::from_secs(20);

/// On the nodes of how many groups the evaluation is tried.
const PLACES_MAX: usize = 3;

impl Lead {
    /// Ends the run, or puts its job back into the queue.
    pub(super) async fn finish(mut self, why: Why) -> anyhow::Result<ExitCode> {
        let mut cluster = None;
        let why = match why {
            Why::Completed => {
                cluster = timeout(ANSWER, self.cluster()).await.ok().flatten();
                say("training is done; evaluating the servers' parameters");
                match self.evaluate().await {
                    Ok(None) => Why::Completed,
                    Ok(Some(why)) => {
                        say("the job ends before the evaluation is done");
                        why
                    }
                    Err(error) => Why::Failed(error.into()),
                }
            }
            why => why,
        };
        let again = matches!(why, Why::TimeIsUp | Why::NodesLost);
        // The next start would go on from the last snapshot, and nobody would have accepted what that loses.
        let consents = !self.unkept || !self.place.config.faults.stops_on_loss();
        if again && self.place.config.slurm.requeue && !consents {
            tradewind_process::complain!(
                "job {} does not go back into the queue: what came after the last snapshot is lost, and faults.on_loss says stop; `tradewind slurm submit --resume` accepts the loss",
                self.start.job
            );
        } else if again && self.place.config.slurm.requeue {
            match self.requeue().await {
                // It is not over, so there is no summary.
                Ok(()) => return Ok(Exit::Interrupted.into()),
                Err(error) => tradewind_process::complain!(
                    "job {} cannot be put back into the queue: {error:#}; `tradewind slurm submit --resume` goes on from the last snapshot",
                    self.start.job
                ),
            }
        }
        let is_cancelled = matches!(why, Why::Cancelled);
        if cluster.is_none() {
            cluster = timeout(ANSWER, self.cluster()).await.ok().flatten();
        }
        let (status, failure) = match why {
            Why::Completed => (RunOutcome::Completed, None),
            Why::Failed(failure) => failed(failure),
            Why::TimeIsUp | Why::NodesLost | Why::Ended | Why::Cancelled => {
                (RunOutcome::Interrupted, None)
            }
        };
        let told = cluster.as_ref().map(|cluster| &cluster.run);
        let lost = told.or(self.status.as_ref()).map(StatusReply::lost);
        let end = End {
            status,
            failure,
            cluster,
            lost,
            resumed_from: self.resumed_from,
            wall: self.clock.elapsed(),
        };
        let exit = finish(&self.place.config, &self.folder, &self.place.fleet, end);
        if let Err(error) = task_secrets::forget(&self.place.fleet, self.start) {
            tradewind_process::complain!("{error:#}");
        }
        let exit = exit?;
        // Groups that train find the summary and end; those that have not begun never shall.
        if let Err(error) = cancel_waiting(&self.place.path) {
            tradewind_process::complain!("jobs of this run may be left in the queue: {error:#}");
        }
        if self.place.is_on_fleet()
            && let Err(error) = fleet::leave(&self.place).await
        {
            tradewind_process::complain!("{error:#}");
        }
        if is_cancelled {
            // So that Slurm does not call it failed.
            client::cancel(&[self.start.job])?;
        }
        Ok(exit.into())
    }

    /// Puts the job back into the queue, while there is time: Slurm's controller may be slow.
    async fn requeue(&self) -> anyhow::Result<()> {
        let job = self.start.job;
        say(format_args!("job {job} goes back into the queue"));
        let since = self.clock.elapsed();
        loop {
            match client::requeue(job) {
                Err(error) if self.clock.elapsed() - since < REQUEUING => {
                    tradewind_process::complain!("{error:#}; it is tried again");
                }
                done => return done,
            }
            sleep(PAUSE).await;
        }
    }

    async fn cluster(&self) -> Option<ClusterStatus> {
        let there = read_address(&self.place.fleet).ok()??;
        let access = self.access().ok()?;
        let asked = access.cluster(&there.address, &self.place.config.name);
        asked.await.ok()
    }

    /// In a step of its own, where one group's ranks were; another's if those nodes are lost. Why it was
    /// cut short, if the job ends meanwhile.
    async fn evaluate(&mut self) -> anyhow::Result<Option<Why>> {
        let components = job::of_lead(&self.place);
        let is_group = |component: &Component| matches!(component.what, What::Group(_));
        let any_island = components.iter().any(|component| self.is_island(component));
        let places = components.iter().enumerate();
        // Where the model fits one rank of no other group.
        let places = places.filter(|(_, component)| match any_island {
            true => self.is_island(component),
            false => is_group(component),
        });
        let places: Vec<_> = places.take(PLACES_MAX).collect();
        let mut error = anyhow::anyhow!("the job has no group");
        for (number, group) in places {
            let het = (components.len() > 1).then_some(number);
            match self.evaluate_at(group, het).await {
                Ok(cut) => return Ok(cut),
                Err(why) => {
                    tradewind_process::complain!(
                        "it was not evaluated on the nodes of {:?}: {why:#}",
                        group.what
                    );
                    error = why;
                }
            }
        }
        Err(error)
    }

    /// Whether the component is a group whose model is sharded over its ranks.
    fn is_island(&self, component: &Component) -> bool {
        match component.what {
            What::Group(group) => self.place.path.join(run_files::island(group)).exists(),
            What::Servers => false,
        }
    }

    async fn evaluate_at(
        &mut self,
        group: &Component,
        het: Option<usize>,
    ) -> anyhow::Result<Option<Why>> {
        let het = het.map(|number| format!("--het-group={number}"));
        let steps = STEP.split(' ').map(str::to_owned);
        let mut words: Vec<OsString> = steps.chain(het).map(OsString::from).collect();
        let What::Group(number) = group.what else {
            bail!("servers compute nothing");
        };
        let is_island = self.is_island(group);
        let one = Component {
            tasks: 1,
            tasks_per_node: 1,
            ..group.clone()
        };
        // Ranks wait for each other: one that fails ends all.
        words.extend(["--overlap", "--kill-on-bad-exit=1"].map(OsString::from));
        let shape = shape(if is_island { group } else { &one });
        words.extend(shape.into_iter().map(OsString::from));
        let config = &self.place.config;
        words.extend(config.slurm.step_options.iter().map(OsString::from));
        let mut srun = Command::new("srun");
        srun.args(words);
        let task = |rank| {
            let task = Tasked::Evaluation {
                group: number,
                rank,
            };
            TaskName::new(self.start, task)
        };
        // It reads as a rank of that group does.
        let own = rank(&config.name, number, None);
        for rank in 0..if is_island { group.tasks } else { 1 } {
            task_secrets::make(&self.place.fleet, task(rank), &own)?;
        }
        if is_island {
            srun.arg(std::env::current_exe()?);
            srun.args(["slurm", "task"]).arg(&self.place.path);
            srun.args(["evaluation", &number.to_string()]);
        } else {
            let pass = match Applicant::new(&self.place.fleet, task(0))? {
                Some(mut applicant) => Some(applicant.pass().await?),
                None => None,
            };
            let environment = environment(&self.place.token()?, pass.as_deref(), group.cpus);
            let arguments = evaluation(&self.place, group.cpus)?.into();
            let command = Programs::of(config)?
                .rank
                .command(&arguments, &environment)?;
            srun.arg(command.get_program()).args(command.get_args());
            let variables = command.get_envs();
            srun.envs(variables.filter_map(|(name, value)| Some((name, value?))));
        }
        let log = self.folder.file(run_files::EVALUATE_LOG);
        let mut process = Process::start_command(Role::Evaluation, srun, &log)?;
        loop {
            match process.poll()? {
                Some(ended) if ended.success => return Ok(None),
                Some(ended) => bail!(ended),
                None => {}
            }
            tokio::select! {
                _ = self.near_limit.recv() => return Ok(Some(Why::TimeIsUp)),
                _ = self.asked.recv() => return Ok(Some(Why::Cancelled)),
                _ = self.terminate.recv() => return Ok(Some(Why::Ended)),
                () = sleep(LOOK) => {}
            }
        }
    }
}

/// Ends the jobs of a run that wait for nodes.
fn cancel_waiting(run: &Path) -> anyhow::Result<()> {
    let jobs = jobs_of(run)?.into_iter();
    let guests: Vec<u32> = jobs.filter(|job| !job.leads).map(|job| job.job).collect();
    let rows = client::queue(&guests)?;
    let waiting = rows.iter().filter(|row| row.state == "PENDING");
    let mut waiting: Vec<u32> = waiting.filter_map(client::Row::number).collect();
    waiting.dedup();
    match waiting.is_empty() {
        true => Ok(()),
        false => client::cancel(&waiting),
    }
}

fn failed(failure: Failure) -> (RunOutcome, Option<Cause>) {
    tradewind_process::complain!("the run failed: {}", failure.text);
    (RunOutcome::Failed, Some(failure.cause))
}
