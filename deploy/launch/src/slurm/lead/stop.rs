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

impl Stopping {
    /// Whoever ends the job wins over what would put it back into the queue. Later it is Slurm itself,
    /// for the time limit that this is about.
    pub(super) fn hear(&mut self, why: Why, now: Duration) {
        if now < self.until && matches!(why, Why::Ended | Why::Cancelled) {
            if matches!(why, Why::Ended) {
                self.until = self.until.min(now + ENDING);
            }
            self.why = why;
        }
    }
}

impl Lead {
    /// Asks all groups to leave.
    pub(super) async fn stop(&mut self, why: Why, progress: &mut Progress) -> Stopping {
        let text = match why {
            Why::TimeIsUp => "the time limit is near",
            Why::NodesLost => "a component has lost its nodes, and Slurm starts the job anew",
            Why::Cancelled => "the run is cancelled",
            Why::Ended | Why::Completed | Why::Failed(_) => "the job is being ended",
        };
        progress.message(&format!(
            "{text}: groups leave, and a last snapshot is taken"
        ));
        let time = match why {
            Why::Ended => ENDING,
            Why::TimeIsUp | Why::NodesLost | Why::Cancelled | Why::Completed | Why::Failed(_) => {
                Duration::from_millis(self.place.config.liveness.notice_ms)
            }
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
        self.unkept = !kept;
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
    pub(super) fn newest_snapshot(&self) -> Option<u64> {
        let numbers = manifest::list(&Folder::new(&self.place.fleet), &self.place.config.name);
        numbers.ok()?.last().copied()
    }

    async fn drain(&self) -> anyhow::Result<()> {
        let there = read_address(&self.place.fleet)?;
        let there = there.context("there is no coordinator")?;
        let name = &self.place.config.name;
        let access = self.access()?;
        timeout(ANSWER, access.drain(&there.address, name, &[])).await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ends_the_job_wins_over_the_queue_but_not_the_time_limit_itself() {
        let at = Duration::from_secs;
        let heard = |first: Why, then: Why, now: u64| {
            let mut stopping = Stopping {
                why: first,
                until: at(100),
                before: None,
            };
            stopping.hear(then, at(now));
            (format!("{:?}", stopping.why), stopping.until.as_secs())
        };
        let want = |why: &str, until| (why.to_owned(), until);
        assert_eq!(heard(Why::TimeIsUp, Why::Ended, 50), want("Ended", 75));
        assert_eq!(
            heard(Why::NodesLost, Why::Cancelled, 50),
            want("Cancelled", 100)
        );
        assert_eq!(heard(Why::TimeIsUp, Why::Ended, 100), want("TimeIsUp", 100));
        assert_eq!(heard(Why::Ended, Why::TimeIsUp, 50), want("Ended", 100));
    }
}
