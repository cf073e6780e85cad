//! What Slurm says of a run's jobs, for whoever shows the run.

use std::path::Path;

use serde::Serialize;

use super::handing_in::jobs_of;
use super::standing::is_over;
use super::{client, jobs};

/// A job that is not over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Queued {
    /// Its number, as Slurm counts.
    pub job: u32,
    /// `PENDING`, `RUNNING`, `COMPLETING`, …
    pub state: String,
    /// Slurm's reason why it waits, or its nodes.
    pub reason: String,
}

/// The jobs of a run that are not over, each with its components that differ; `None` if the run never
/// had any, and nobody was asked.
pub fn queued(run: &Path) -> anyhow::Result<Option<Vec<Queued>>> {
    let numbers: Vec<u32> = jobs_of(run)?.iter().map(|job| job.job).collect();
    if numbers.is_empty() {
        return Ok(None);
    }
    Ok(Some(left(&client::queue(&numbers)?)))
}

/// Whether a job of a run is written down.
pub fn is_handed_in(run: &Path) -> bool {
    jobs::read(run).is_ok_and(|jobs| !jobs.is_empty())
}

fn left(rows: &[client::Row]) -> Vec<Queued> {
    let own = rows.iter().filter(|row| !is_over(row)).filter_map(|row| {
        Some(Queued {
            job: row.number()?,
            state: row.state.clone(),
            reason: row.reason.clone(),
        })
    });
    let mut left: Vec<Queued> = own.collect();
    // Components of a job wait together, and for one reason.
    left.dedup();
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_that_wait_together_are_told_once() {
        let row = |job: &str, state: &str, reason: &str| client::Row {
            job: job.into(),
            name: "r".into(),
            state: state.into(),
            elapsed: "0:00".into(),
            reason: reason.into(),
        };
        let rows = [
            row("11", "COMPLETED", "n1"),
            row("12+0", "PENDING", "(Resources)"),
            row("12+1", "PENDING", "(Resources)"),
            row("14", "RUNNING", "n[1-2]"),
        ];
        let queued = |job, state: &str, reason: &str| Queued {
            job,
            state: state.into(),
            reason: reason.into(),
        };
        let want = [
            queued(12, "PENDING", "(Resources)"),
            queued(14, "RUNNING", "n[1-2]"),
        ];
        assert_eq!(left(&rows), want);
        let run = tempfile::tempdir().unwrap();
        assert_eq!(super::queued(run.path()).unwrap(), None);
    }
}
