//! A whole run on this machine.

mod follow;
mod found;
mod helper;
mod hooks;
mod interruption;
mod last;
mod resume;

use std::path::Path;
use std::time::Duration;

use tradewind_common::exit::Exit;
use tradewind_common::run_files;
use tradewind_config::Config;
use tradewind_proto::v1::StatusReply;
use tradewind_server::store::read_address;

use crate::results::{End, finish};
pub use crate::secrets::secret;
use crate::{Keeper, LOOK, LaunchContext, Programs, Secrets};
use follow::follow;
use found::{Found, count};
use helper::Helper;
pub use hooks::{NoHooks, RunHooks};
pub use interruption::Interruption;
pub use resume::{accepted, changed, newest as newest_snapshot};
use tradewind_folder::clock::Clock;
use tradewind_folder::cluster::{Access, ClusterStatus};
use tradewind_folder::failure::Failure;
use tradewind_folder::run::RunFolder;
use tradewind_folder::summary::RunOutcome;
use tradewind_process::log::say;
use tradewind_programs::worker::{self, CheckArguments, CoordinatorArgument, EvaluateArguments};

/// How long servers may take to tell their status; one that is frozen never does.
const STATUS: Duration = Duration::from_secs(5);

/// How a run, or a part of it, came to its end.
enum Outcome {
    Completed,
    Failed(Failure),
    Interrupted,
}

impl Outcome {
    fn of(ended: anyhow::Result<Self>) -> Self {
        ended.unwrap_or_else(|error| Self::Failed(error.into()))
    }
}

/// Runs `config` in the folder `out`, and calls `hooks` on the way.
pub async fn launch<C: RunHooks>(
    config: &Config,
    out: &Path,
    resume: bool,
    hooks: &mut C,
) -> anyhow::Result<Exit> {
    let clock = Clock::start();
    let programs = Programs::of(config)?;
    let secrets = Secrets::new(config)?;
    let (folder, resumed_from) = if resume {
        let snapshot = resume::newest(out, &config.name)?;
        (RunFolder::reopen(out)?, Some(snapshot))
    } else {
        (RunFolder::create(out)?, None)
    };
    folder.write_secret(run_files::CONFIG, config.resolved())?;
    secrets.begin(&folder, &config.cluster.host).await?;
    let mut interruption = Interruption::new()?;
    let helper = Helper {
        programs: &programs,
        folder: &folder,
        secrets: &secrets,
        run: &config.name,
    };
    // Until it has passed, nothing was started and there is no run to keep.
    let check = match config.is_script() {
        // Nobody else can look at its data and its model.
        true => Outcome::Completed,
        false => {
            let arguments = CheckArguments {
                config: folder.file(run_files::CONFIG),
                local_ranks: config.world_size(),
                measure: false,
            };
            Outcome::of(helper.check(arguments, &mut interruption).await)
        }
    };
    match check {
        Outcome::Completed => {}
        Outcome::Failed(failure) => {
            tradewind_process::complain!("nothing was started: {}", failure.text);
            folder.discard();
            // It ends with others where it did not come to look.
            return Ok(match failure.cause.exit() {
                Some(Exit::Failed | Exit::GivenUp) => Exit::BadInput,
                _ => Exit::Failed,
            });
        }
        Outcome::Interrupted => {
            folder.discard();
            return Ok(Exit::Interrupted);
        }
    }
    let accepted = resume::accepted(folder.path());
    let lives_before = match resumed_from {
        Some(_) => resume::prepare(&folder)?,
        None => 0,
    };
    let found = match config.is_script() {
        true => None,
        false => Some(Found::read(&folder)?),
    };
    announce(config, &folder, found.as_ref(), resumed_from);
    if let Some(changed) = resume::changed(config, &folder) {
        say(changed);
    }
    if let Some(accepted) = accepted {
        say(accepted);
    }
    let (roster, fronts) = (hooks.roster().clone(), hooks.fronts().to_vec());
    let context = LaunchContext {
        config,
        programs: &programs,
        folder: &folder,
        secrets: &secrets,
        lives_before,
        resume,
        gpus: found.is_some_and(|found| found.on_gpus()),
        roster: &roster,
        fronts: &fronts,
    };
    // Whatever goes wrong from here on stands in the summary.
    let (outcome, cluster, lost) = match Keeper::start(context, clock) {
        Ok(mut keeper) => {
            let attended = attend(&context, &mut keeper, &helper, &mut interruption, hooks);
            let (outcome, cluster) = attended.await;
            let told = cluster.as_ref().map(|cluster| &cluster.run);
            let lost = told.or(keeper.status()).map(StatusReply::lost);
            (outcome, cluster, lost)
        }
        Err(error) => (Outcome::Failed(error.into()), None, None),
    };
    let (status, failure) = match outcome {
        Outcome::Completed => (RunOutcome::Completed, None),
        Outcome::Failed(failure) => {
            tradewind_process::complain!("the run failed: {}", failure.text);
            (RunOutcome::Failed, Some(failure.cause))
        }
        Outcome::Interrupted => (RunOutcome::Interrupted, None),
    };
    let end = End {
        status,
        failure,
        cluster,
        lost,
        resumed_from,
        wall: clock.elapsed(),
    };
    finish(config, &folder, folder.path(), end)
}

/// What is about to begin, and where.
fn announce(config: &Config, folder: &RunFolder, found: Option<&Found>, resumed_from: Option<u64>) {
    let ranks = match found {
        Some(found) => found.text(),
        None => {
            let ranks = count(config.world_size() as usize, "rank");
            format!("{ranks} of {}", config.command.join(" "))
        }
    };

    if let Some(moved) = &folder.moved {
        let moved = moved.display();
        say(format_args!("a former run of this name is now in {moved}"));
    }
    if let Some(number) = resumed_from {
        say(format_args!("going on from snapshot {number}"));
    }
    say(format_args!(
        "{}: {} servers and {} groups ({}) in {}",
        config.name,
        config.cluster.servers,
        config.cluster.groups.len(),
        ranks,
        folder.path().display()
    ));
}

/// Sees a run that has been started to its end, and ends its processes.
async fn attend<C: RunHooks>(
    context: &LaunchContext<'_>,
    keeper: &mut Keeper<'_>,
    helper: &Helper<'_>,
    interruption: &mut Interruption,
    hooks: &mut C,
) -> (Outcome, Option<ClusterStatus>) {
    let mut outcome = match hooks.begin(context, keeper.access()) {
        Ok(()) => Outcome::of(follow(context, keeper, interruption, hooks).await),
        Err(error) => Outcome::Failed(error.into()),
    };
    let in_order = matches!(outcome, Outcome::Completed);
    if let Err(error) = part(keeper, hooks, in_order).await {
        outcome = Outcome::Failed(error.into());
    }
    if matches!(outcome, Outcome::Completed) {
        let taken = last::snapshot(context, keeper.access());
        tokio::select! {
            taken = taken => if let Err(why) = taken {
                tradewind_process::complain!("no snapshot of the end was taken: {why}");
            },
            _ = interruption.wait() => outcome = Outcome::Interrupted,
        }
    }
    let cluster = tokio::select! {
        status = tokio::time::timeout(STATUS, ask(context, keeper.access())) => status.ok().flatten(),
        _ = interruption.wait() => None,
    };
    if matches!(outcome, Outcome::Completed) {
        let evaluation = evaluation(context);
        let by = evaluation[0].group.map_or(String::new(), |group| {
            format!(" by the {} ranks of group {group}", evaluation.len())
        });
        say(format_args!(
            "training is done; evaluating the servers' parameters{by}"
        ));
        let ran = helper.evaluate(evaluation, interruption, keeper);
        outcome = Outcome::of(ran.await);
    }
    keeper.stop();
    (outcome, cluster)
}

/// What evaluates: one process, or the ranks of the first group whose model no rank has whole.
fn evaluation(context: &LaunchContext<'_>) -> Vec<EvaluateArguments> {
    let LaunchContext { config, folder, .. } = context;
    let group = island(config, folder.path());
    let ranks = group.map_or(1, |group| config.cluster.groups[group as usize]);
    let has_milestones = config.evaluation_samples > 0;
    let of_rank = |rank| EvaluateArguments {
        config: folder.file(run_files::CONFIG),
        coordinator: CoordinatorArgument::File(folder.file(run_files::COORDINATOR_ADDRESS)),
        out: folder.path().to_owned(),
        milestones: has_milestones.then(|| folder.path().to_owned()),
        group,
        rank,
        local_rank: rank,
        host: None,
        threads: (threads_of(config.world_size()) / ranks as i32).max(1),
    };
    (0..ranks).map(of_rank).collect()
}

/// The first group of a run in this folder that says that its model is sharded over its ranks.
fn island(config: &Config, folder: &Path) -> Option<u32> {
    let mut groups = 0..config.cluster.groups.len() as u32;
    groups.find(|group| folder.join(run_files::island(*group)).exists())
}

/// Threads of what runs alone where so many ranks were: the cores that they had.
fn threads_of(ranks: u32) -> i32 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let ranks = i32::try_from(ranks).unwrap_or(i32::MAX);
    let threads = ranks.saturating_mul(worker::THREADS);
    threads.min(i32::try_from(cores).unwrap_or(i32::MAX))
}

/// Calls the hooks that have a last look at the servers, which are kept going meanwhile.
async fn part<C: RunHooks>(
    keeper: &mut Keeper<'_>,
    hooks: &mut C,
    in_order: bool,
) -> anyhow::Result<()> {
    let mut over = std::pin::pin!(hooks.training_over(in_order));
    loop {
        tokio::select! {
            () = &mut over => return Ok(()),
            () = tokio::time::sleep(LOOK) => keeper.look()?.messages.iter().for_each(say),
        }
    }
}

/// What the servers tell of the run; `None` if they cannot be asked.
async fn ask(context: &LaunchContext<'_>, access: &Access) -> Option<ClusterStatus> {
    let there = read_address(context.folder.path()).ok()??;
    let asked = access.cluster(&there.address, &context.config.name);
    asked.await.ok()
}
