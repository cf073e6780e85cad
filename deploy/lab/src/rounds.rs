//! Runs what has to be run: the trials of the tuning, round by round, then the cells.

use std::path::Path;

use super::display::{Counts, Display};
use super::file::ExperimentPlan;
use super::job::Job;
use super::known::{self, Known};
use super::matrix::{Cell, Matrix};
use super::prepare::{self, Needs};
use super::reading::Reading;
use super::runner::{On, Ran, Runner};
use super::tuning::{Searches, Source, Trial};
use tradewind_launch::run::Interruption;
use tradewind_process::log::say;

/// How far it came.
pub(super) struct Came {
    pub(super) known: Known,
    pub(super) trials: Vec<Trial>,
    pub(super) interrupted: bool,
}

/// Runs all of it that is not `known`, or with `look_only` nothing. The cells of a setting that is
/// tuned are those of its best trial when this returns.
///
/// # Errors
/// [`prepare::Refused`], or something that keeps this machine from running them.
pub(super) async fn run(
    (plan, mut known): (&ExperimentPlan, Known),
    matrix: &mut Matrix,
    mut searches: Searches,
    (name, folder): (&str, &Path),
    runner: &Runner,
    look_only: bool,
) -> anyhow::Result<Came> {
    let mut interrupted = false;
    let mut interruption = Interruption::new()?;
    let mut needs: Option<Needs> = None;
    let mut display = None;
    let missing = loop {
        let missing = searches.next(plan, matrix, |trial| known.measure(trial, runner))?;
        let trials = known::one_of_each(missing.clone());
        let tuned = trials.is_empty();
        if tuned && plan.tuning.is_some() {
            known.fail_untuned(matrix);
        }
        // While there are trials the cells that will come of them are not known yet.
        let cells: Vec<&Cell> = match tuned {
            true => matrix
                .cells
                .iter()
                .filter(|cell| known.is_todo(cell, runner, false))
                .collect(),
            false => matrix.cells.iter().collect(),
        };
        let todo = match tuned {
            true => cells.clone(),
            false => trials.iter().collect(),
        };
        if todo.is_empty() || look_only {
            break missing;
        }
        if needs.is_none() && runner.on() == On::Machine {
            let all = (&*trials, &*cells);
            needs = prepare::prepare(plan, matrix, all, runner, &mut interruption).await?;
        }
        if needs.is_none() && runner.on() == On::Machine {
            interrupted = true;
            break missing;
        }
        // Jobs have nodes of their own.
        let part = |cell: &Cell| needs.as_ref().map_or(0.0, |needs| needs.part(cell));
        let job = |cell, is_trial| Job {
            cell,
            part: part(cell),
            is_trial,
        };
        let at_once = match runner.on() {
            On::Machine => plan.at_once(!tuned),
            On::Slurm { at_once } => at_once,
        };
        let mut jobs: Vec<Job<'_>> = todo.into_iter().map(|cell| job(cell, !tuned)).collect();
        if at_once == 1 {
            seed_by_seed(&mut jobs);
        }
        let later = cells
            .into_iter()
            .map(|cell| job(cell, false))
            .filter(|_| !tuned);
        let later: Vec<Job<'_>> = later.collect();
        let work = jobs.iter().chain(&later).map(Job::work).sum();
        let display = display.get_or_insert_with(|| {
            let counts = Counts::new(matrix, &known.records, trials.len());
            match &needs {
                Some(needs) => needs.announce(name, &jobs, plan, counts, folder),
                None => say(format_args!(
                    "{name}, as jobs: {}; in {}",
                    counts.in_words(),
                    folder.display()
                )),
            }
            Display::new(known.records.len())
        });
        display.expect(jobs.len() + later.len(), work);
        match runner
            .run(&jobs, at_once, display, &mut interruption)
            .await?
        {
            Ran::All(ended) => known.add(ended),
            Ran::Interrupted(ended) => {
                known.add(ended);
                interrupted = true;
                break missing;
            }
        }
    };
    if let Some(display) = display {
        display.finish();
    }
    if !missing.is_empty() {
        // Cells of settings that are tuned may have been run before, however far this call came.
        let tuned = |cell: &&Cell| matrix.settings[cell.setting].tuned.is_some();
        for cell in matrix.cells.iter().filter(tuned) {
            known.is_todo(cell, runner, false);
        }
        if look_only {
            known.lack_trials(matrix, &missing);
        }
    }
    let trials = searches.trials(plan, matrix, |trial| {
        let score = known.measure(trial, runner);
        let run = known.ran_for(trial);
        (score, run.and_then(|run| source(runner, run)))
    });
    Ok(Came {
        known,
        trials,
        interrupted,
    })
}

/// A run that trials came from, if it can be read.
fn source(runner: &Runner, run: &str) -> Option<Source> {
    let missed = Reading::of(&runner.named(run)).ok()?.missed();
    let run = run.to_owned();
    Some(Source { run, missed })
}

/// All settings with one seed, then with the next: what a machine is slow at for an hour then falls on all
/// that is compared, and what has been run so far can be. Cells that run together are of one setting
/// instead, for then they take equally long.
fn seed_by_seed(jobs: &mut [Job<'_>]) {
    jobs.sort_by_key(|job| job.cell.seed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{HEAD, matrix};

    #[test]
    fn cells_that_run_alone_take_turns() {
        let folder = tempfile::tempdir().unwrap();
        let text = HEAD.to_owned() + "seeds = [2, 1]\n[axes]\ntrain.staleness_bound = [0, 3]\n";
        let (_, matrix) = matrix(folder.path(), &text, false).unwrap();
        let job = |cell| Job {
            cell,
            part: 0.0,
            is_trial: false,
        };
        let mut jobs: Vec<Job<'_>> = matrix.cells.iter().map(job).collect();
        let order = |jobs: &[Job<'_>]| -> Vec<(u64, usize)> {
            jobs.iter()
                .map(|job| (job.cell.seed, job.cell.setting))
                .collect()
        };
        assert_eq!(order(&jobs), [(2, 0), (1, 0), (2, 1), (1, 1)]);
        seed_by_seed(&mut jobs);
        assert_eq!(order(&jobs), [(1, 0), (1, 1), (2, 0), (2, 1)]);
    }
}
