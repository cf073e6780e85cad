//! A whole run on this machine.

mod company;
mod follow;
mod found;
mod helper;
mod interruption;
mod last;
mod resume;

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use tradewind_common::exit::Exit;
use tradewind_config::Config;
use tradewind_proto::v1::StatusReply;
use tradewind_server::store::read_address;

use crate::results::{End, finish};
use crate::{Ground, Keeper, LOOK, Programs, Role};
pub use company::{Alone, Company};
use follow::follow;
use found::Found;
use helper::Helper;
pub use interruption::Interruption;
pub use resume::{accepted, newest as newest_snapshot};
use tradewind_folder::clock::Clock;
use tradewind_folder::cluster::{Access, ClusterStatus};
use tradewind_folder::failure::Failure;
use tradewind_folder::run::RunFolder;
use tradewind_folder::summary::Status;
use tradewind_process::log::say;

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

/// Runs `config` in the folder `out`, and `company` goes along.
pub async fn launch<C: Company>(
    config: &Config,
    out: &Path,
    resume: bool,
    company: &mut C,
) -> anyhow::Result<Exit> {
    let clock = Clock::start();
    let programs = Programs::find()?;
    let (folder, resumed_from) = if resume {
        let snapshot = resume::newest(out, &config.name)?;
        (RunFolder::reopen(out)?, Some(snapshot))
    } else {
        (RunFolder::create(out)?, None)
    };
    folder.write("config.toml", config.resolved())?;
    let token = secret()?;
    folder.write_secret("token", &token)?;
    let mut interruption = Interruption::new()?;
    let helper = Helper {
        programs: &programs,
        folder: &folder,
        token: &token,
    };
    // Until it has passed, nothing was started and there is no run to keep.
    let ranks = [format!("--local-ranks={}", config.world_size())];
    let check = helper.run(Role::Check, &ranks, &mut interruption, None);
    let check = check.await;
    match Outcome::of(check) {
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
    let found = Found::read(&folder)?;
    announce(config, &folder, &found, resumed_from);
    if let Some(accepted) = accepted {
        say(accepted);
    }
    let (roster, fronts) = (company.roster().clone(), company.fronts().to_vec());
    let ground = Ground {
        config,
        programs: &programs,
        folder: &folder,
        token: &token,
        lives_before,
        resume,
        gpus: found.on_gpus(),
        roster: &roster,
        fronts: &fronts,
    };
    // Whatever goes wrong from here on stands in the summary.
    let (outcome, cluster, lost) = match Keeper::start(ground, clock) {
        Ok(mut keeper) => {
            let attended = attend(&ground, &mut keeper, &helper, &mut interruption, company);
            let (outcome, cluster) = attended.await;
            let told = cluster.as_ref().map(|cluster| &cluster.run);
            let lost = told.or(keeper.status()).map(StatusReply::lost);
            (outcome, cluster, lost)
        }
        Err(error) => (Outcome::Failed(error.into()), None, None),
    };
    let (status, failure) = match outcome {
        Outcome::Completed => (Status::Completed, None),
        Outcome::Failed(failure) => {
            tradewind_process::complain!("the run failed: {}", failure.text);
            (Status::Failed, Some(failure.cause))
        }
        Outcome::Interrupted => (Status::Interrupted, None),
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
fn announce(config: &Config, folder: &RunFolder, found: &Found, resumed_from: Option<u64>) {
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
        found.text(),
        folder.path().display()
    ));
}

/// Sees a run that has been started to its end, and ends its processes.
async fn attend<C: Company>(
    ground: &Ground<'_>,
    keeper: &mut Keeper<'_>,
    helper: &Helper<'_>,
    interruption: &mut Interruption,
    company: &mut C,
) -> (Outcome, Option<ClusterStatus>) {
    let mut outcome = match company.begin(ground, keeper.access()) {
        Ok(()) => Outcome::of(follow(ground, keeper, interruption, company).await),
        Err(error) => Outcome::Failed(error.into()),
    };
    let in_order = matches!(outcome, Outcome::Completed);
    if let Err(error) = part(keeper, company, in_order).await {
        outcome = Outcome::Failed(error.into());
    }
    if matches!(outcome, Outcome::Completed) {
        let taken = last::snapshot(ground, keeper.access());
        tokio::select! {
            taken = taken => if let Err(why) = taken {
                tradewind_process::complain!("no snapshot of the end was taken: {why}");
            },
            _ = interruption.wait() => outcome = Outcome::Interrupted,
        }
    }
    let cluster = tokio::select! {
        status = tokio::time::timeout(STATUS, ask(ground, keeper.access())) => status.ok().flatten(),
        _ = interruption.wait() => None,
    };
    if matches!(outcome, Outcome::Completed) {
        say("training is done; evaluating the servers' parameters");
        let file = |name: &str| ground.folder.file(name).display().to_string();
        let mut arguments = vec![
            format!("--coordinator-file={}", file("coordinator/address.json")),
            format!("--out={}", ground.folder.path().display()),
        ];
        if ground.config.evaluation_samples > 0 {
            arguments.push(format!("--milestones={}", ground.folder.path().display()));
        }
        let ran = helper.run(Role::Evaluation, &arguments, interruption, Some(keeper));
        outcome = Outcome::of(ran.await);
    }
    keeper.stop();
    (outcome, cluster)
}

/// Lets the company have its last look at the servers, which are kept going meanwhile.
async fn part<C: Company>(
    keeper: &mut Keeper<'_>,
    company: &mut C,
    in_order: bool,
) -> anyhow::Result<()> {
    let mut over = std::pin::pin!(company.training_over(in_order));
    loop {
        tokio::select! {
            () = &mut over => return Ok(()),
            () = tokio::time::sleep(LOOK) => keeper.look()?.messages.iter().for_each(say),
        }
    }
}

/// What the servers tell of the run; `None` if they cannot be asked.
async fn ask(ground: &Ground<'_>, access: &Access) -> Option<ClusterStatus> {
    let there = read_address(ground.folder.path()).ok()??;
    let asked = access.cluster(&there.address, &ground.config.name);
    asked.await.ok()
}

/// A token for this run's processes: the one thing that must not follow from the seed.
pub fn secret() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
