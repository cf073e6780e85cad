//! `tradewind slurm cancel`: ends the jobs of a run or of a fleet.
//!
//! A plain scancel gives processes `KillWait` to end, and srun, which is told as well, does not let its
//! tasks have even that. So whoever can take a last snapshot is asked first: the lead of a run, the
//! servers of a fleet.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use tokio::time::sleep;

use super::client::{self, Row};
use super::fleet;
use super::handing_in::jobs_of;
use super::standing::is_over;
use tradewind_folder::found::FoundRun;
use tradewind_folder::lock::is_held;
use tradewind_process::log::say;

/// Between two looks at the queue.
const PAUSE: Duration = Duration::from_secs(1);

/// How long the end may take besides `liveness.notice_ms`.
const ENDING: Duration = Duration::from_secs(30);

/// What is typed behind `tradewind slurm cancel`.
#[derive(Debug, clap::Args)]
pub struct Cancel {
    /// The folder of a run or of a fleet.
    run: PathBuf,
    /// Do not wait for a last snapshot.
    #[arg(long)]
    now: bool,
}

/// Ends all jobs.
pub async fn cancel(arguments: &Cancel) -> anyhow::Result<()> {
    let place = FoundRun::find(Some(&arguments.run))?;
    let known = jobs_of(&place.path)?;
    let numbers: Vec<u32> = known.iter().map(|job| job.job).collect();
    let left = left(&numbers)?;
    if left.is_empty() {
        if !leave_fleet(&place).await? {
            bail!("run {} has no jobs any more", place.config.name);
        }
        return Ok(());
    }
    let lead = known.iter().rfind(|job| job.leads).map(|job| job.job);
    let is_running = |row: &Row| row.state == "RUNNING" && row.number() == lead;
    if let Some(lead) = lead
        && !arguments.now
        && left.iter().any(is_running)
    {
        end_in_order(&place, lead).await?;
    }
    let mut left: Vec<u32> = left.iter().filter_map(Row::number).collect();
    left.dedup();
    client::cancel(&left)?;
    let list: Vec<String> = left.iter().map(u32::to_string).collect();
    say(format_args!("cancelled: {}", list.join(", ")));
    leave_fleet(&place).await?;
    Ok(())
}

/// Takes a run without a lead off its fleet; whether it was there.
async fn leave_fleet(place: &FoundRun) -> anyhow::Result<bool> {
    let is_there = fleet::is_left_behind(place).await;
    if is_there {
        fleet::leave(place).await?;
        say(format_args!(
            "the fleet has forgotten run {}, but for its snapshots",
            place.config.name
        ));
    }
    Ok(is_there)
}

/// Ends all jobs of the run in this folder at once.
pub(super) fn cancel_now(run: &Path) -> anyhow::Result<()> {
    let numbers: Vec<u32> = jobs_of(run)?.iter().map(|job| job.job).collect();
    let mut left: Vec<u32> = left(&numbers)?.iter().filter_map(Row::number).collect();
    left.dedup();
    match left.is_empty() {
        true => Ok(()),
        false => client::cancel(&left),
    }
}

/// Rows of those that are not over.
fn left(jobs: &[u32]) -> anyhow::Result<Vec<Row>> {
    let mut rows = client::queue(jobs)?;
    rows.retain(|row| !is_over(row));
    Ok(rows)
}

/// Asks for a last snapshot, and waits until the leading job has ended with it.
async fn end_in_order(place: &FoundRun, lead: u32) -> anyhow::Result<()> {
    match place.is_fleet() {
        true => client::signal_steps(lead, "TERM")?,
        // Its node may be lost; nobody else can be asked.
        false if !is_held(&place.path) => return Ok(()),
        false => client::signal_batch(lead, "USR2")?,
    }
    say("a last snapshot is taken; Ctrl-C does not wait for it, `--now` ends everything at once");
    let patience = Duration::from_millis(place.config.liveness.notice_ms) + ENDING;
    let mut waited = Duration::ZERO;
    // That Slurm does not answer now says nothing of the job.
    let is_running = || match left(&[lead]) {
        Ok(rows) => rows.iter().any(|row| row.state == "RUNNING"),
        Err(error) => {
            tradewind_process::complain!("{error:#}");
            true
        }
    };
    while is_running() {
        if waited >= patience {
            say(format_args!(
                "it is not done after {patience:?}; what came after the one before is lost"
            ));
            return Ok(());
        }
        sleep(PAUSE).await;
        waited += PAUSE;
    }
    Ok(())
}
