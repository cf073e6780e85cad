//! A run that is to stop before its budget is applied: groups leave, and a last snapshot is taken.

use std::time::Duration;

use anyhow::Context;
use tokio::time::timeout;
use tradewind_server::snapshot::{Folder, manifest};
use tradewind_server::store::read_address;

use super::{ANSWER, Lead, SILENT, Why};
use crate::progress::Progress;

/// How long groups and the last snapshot may take once Slurm ends the job: it kills after `KillWait`.
const ENDING: Duration = Duration::from_secs(25);

/// What is waited for.
#[derive(Debug)]
pub(super) struct Stopping {
    pub(super) why: Why,
    until: Duration,
    /// The newest snapshot before.
    before: Option<u64>,
}

impl Lead {
    /// Asks all groups to leave.
    pub(super) async fn stop(&mut self, why: Why, progress: &mut Progress) -> Stopping {
        let text = match why {
            Why::TimeIsUp => "the time limit is near",
            Why::NodesLost => "a component has lost its nodes, and Slurm starts the job anew",
            Why::Cancelled => "the run is cancelled",
            _ => "the job is being ended",
        };
        progress.message(&format!(
            "{text}: groups leave, and a last snapshot is taken"
        ));
        let time = match why {
            Why::Ended => ENDING,
            _ => Duration::from_millis(self.place.config.liveness.notice_ms),
        };
        let before = self.newest_snapshot();
        if let Err(error) = self.drain().await {
            progress.message(&format!("groups cannot be asked to leave: {error:#}"));
        }
        Stopping {
            why,
            until: self.clock.elapsed() + time,
            before,
        }
    }

    /// Whether all is kept that can be.
    pub(super) fn is_stopped(&mut self, stopping: &Stopping, progress: &mut Progress) -> bool {
        if let Err(error) = self.steps.fresh() {
            progress.message(&format!("the steps of the job: {error:#}"));
        }
        // What the servers have written before they ended is there, and no more will be.
        let silent = self.clock.elapsed() - self.heard > SILENT;
        let kept = (silent || self.all_are_gone()) && self.newest_snapshot() > stopping.before;
        if kept || self.steps.servers_are_over() {
            return true;
        }
        let late = self.clock.elapsed() >= stopping.until;
        if late {
            progress.message("groups or the last snapshot were not done in time; what came after the one before is lost");
        }
        late
    }

    /// The newest whole snapshot on disk.
    fn newest_snapshot(&self) -> Option<u64> {
        let numbers = manifest::list(&Folder::new(&self.place.fleet), &self.place.config.name);
        numbers.ok()?.last().copied()
    }

    async fn drain(&self) -> anyhow::Result<()> {
        let there = read_address(&self.place.fleet)?;
        let there = there.context("there is no coordinator")?;
        let name = &self.place.config.name;
        timeout(ANSWER, self.access.drain(&there.address, name, &[])).await?
    }
}
