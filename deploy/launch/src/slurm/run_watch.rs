//! A group in a job of its own is a guest: the run that it trains in begins, ends and begins anew
//! without Slurm telling it. It looks at the run's folder instead.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use tokio::time::sleep;

use super::jobs;
use super::start::{PATIENCE, Start};
use tradewind_folder::found::FoundRun;

/// Between two looks at the folder.
pub(super) const PAUSE: Duration = Duration::from_secs(2);

/// What a guest does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Stay,
    /// The run's job was started again: its servers and its coordinator are others.
    Renew,
    /// The run is over.
    End,
}

/// The run that a guest watches, by its folder.
#[derive(Debug)]
pub(super) struct RunWatch<'a> {
    place: &'a FoundRun,
    /// Whether the run's configuration has the group: a coordinator of a later start knows no others.
    is_configured: bool,
    start: Option<Start>,
}

impl<'a> RunWatch<'a> {
    /// Of the start that the folder belongs to now.
    pub(super) fn new(place: &'a FoundRun, group: u32) -> Self {
        Self {
            is_configured: (group as usize) < place.config.cluster.groups.len(),
            start: Start::read(&place.path),
            place,
        }
    }

    /// Waits until the folder belongs to the job that leads the run now: before that it tells of the
    /// job before. A job that was not handed in by `tradewind` is not known, and not waited for.
    pub(super) async fn begun(run: &Path) -> anyhow::Result<()> {
        let Some(lead) = jobs::lead(run)? else {
            return Ok(());
        };
        let mut waited = Duration::ZERO;
        while Start::read(run).is_none_or(|start| start.job != lead) {
            if waited >= PATIENCE {
                bail!("job {lead}, which has the run's servers, has not begun after {PATIENCE:?}");
            }
            sleep(PAUSE).await;
            waited += PAUSE;
        }
        Ok(())
    }

    /// What the folder says now.
    pub(super) fn next(&mut self) -> Next {
        if self.place.ended().is_some() {
            return Next::End;
        }
        let start = Start::read(&self.place.path);
        if start == self.start {
            return Next::Stay;
        }
        self.start = start;
        match self.is_configured {
            true => Next::Renew,
            false => Next::End,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_guest_goes_by_the_folder() {
        let root = tempfile::tempdir().unwrap();
        let run = root.path();
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/climate-forecast.toml");
        fs::copy(config, run.join("config.toml")).unwrap();
        let start = |restarts| Start { job: 7, restarts };
        start(0).begin(run, false).unwrap();
        let place = FoundRun::find(Some(run)).unwrap();
        let [mut own, mut added] = [1, 2].map(|group| RunWatch::new(&place, group));
        assert_eq!([own.next(), added.next()], [Next::Stay; 2]);
        start(1).begin(run, false).unwrap();
        assert_eq!([own.next(), added.next()], [Next::Renew, Next::End]);
        assert_eq!(own.next(), Next::Stay, "it is told once");
        fs::write(run.join("summary.json"), r#"{"status": "completed"}"#).unwrap();
        assert_eq!(own.next(), Next::End);
    }
}
