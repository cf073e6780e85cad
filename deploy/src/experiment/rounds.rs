//! Runs what has to be run: the trials of the tuning, round by round, then the cells.

use std::collections::BTreeMap;
use std::path::Path;

use super::cell::{self, Outcome, Seal, Unfinished};
use super::display::{Counts, Display};
use super::earlier::Earlier;
use super::file::Plan;
use super::grid::Score;
use super::job::Job;
use super::matrix::{Cell, Matrix};
use super::prepare::{self, Needs};
use super::reading::{self, Reading};
use super::runner::{Ended, On, Ran, Runner};
use super::tuning::{self, Searches, Trial};
use crate::run::Interruption;
use crate::say;

/// What is known of trials and cells, by their names.
#[derive(Default)]
pub(super) struct Known {
    /// Of those that came to an end.
    pub(super) seals: BTreeMap<String, Seal>,
    /// Why the others have none.
    pub(super) failures: BTreeMap<String, String>,
    /// Trials that were run elsewhere.
    earlier: Earlier,
}

impl Known {
    /// With the trials of an earlier `tuning.csv`.
    pub(super) fn new(trials: Option<&Path>) -> anyhow::Result<Self> {
        Ok(Self {
            earlier: trials.map(Earlier::read).transpose()?.unwrap_or_default(),
            ..Self::default()
        })
    }

    /// Whether there is anything left to run of a cell or a trial. What was run before is looked at
    /// once.
    fn is_todo(&mut self, cell: &Cell, runner: &Runner, is_trial: bool) -> bool {
        if self.seals.contains_key(&cell.id) || self.failures.contains_key(&cell.id) {
            return false;
        }
        let seal = match cell::gather(cell, &runner.run_folder(cell)) {
            Ok(seal) => seal,
            // Its measure counts, not its time, and another one might move the optimum.
            Err(Unfinished::Void(seal)) if is_trial => *seal,
            Err(Unfinished::Damaged(what)) => {
                say(format_args!("{}: {what}; it is run again", cell.id));
                return true;
            }
            Err(_) => return true,
        };
        self.seals.insert(cell.id.clone(), seal);
        false
    }

    /// What a trial came to: `None` while it has to be run.
    fn measure(&mut self, trial: &Cell, runner: &Runner) -> Option<Score> {
        if let Some(measure) = self.earlier.measure(trial) {
            return Some(Score::Of(measure));
        }
        if self.is_todo(trial, runner, true) {
            return None;
        }
        let Some(seal) = self.seals.get(&trial.id) else {
            return Some(Score::Unknown);
        };
        if matches!(seal.outcome, Outcome::Failed(_)) {
            return Some(Score::None);
        }
        let told = reading::summary(&runner.run_folder(trial)).ok();
        let measure = told.and_then(|told| Some(told.metric?.validation.value));
        Some(match measure {
            None => Score::Unknown,
            Some(measure) if measure.is_finite() => Score::Of(measure),
            Some(_) => Score::None,
        })
    }

    /// Where no trial came to an end there is nothing that cells could be run with; where one could not
    /// be run, other values might be the best ones.
    fn fail_untuned(&mut self, matrix: &Matrix) {
        for cell in &matrix.cells {
            let setting = &matrix.settings[cell.setting];
            if setting.tuned.is_some() {
                continue;
            }
            let mut failed = self.failures.iter();
            let own = failed.find(|(id, _)| tuning::is_trial_of(id, &setting.stem));
            let why = match own {
                None => "no trial of its tuning came to an end".to_owned(),
                Some((id, why)) => format!("its trial {id} could not be run: {why}"),
            };
            self.failures.insert(cell.id.clone(), why);
        }
    }

    fn add(&mut self, ended: BTreeMap<String, Ended>) {
        for (id, ended) in ended {
            match ended {
                Ok(seal) => drop(self.seals.insert(id, seal)),
                Err(why) => drop(self.failures.insert(id, why)),
            }
        }
    }
}

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
    (plan, mut known): (&Plan, Known),
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
    loop {
        let trials = searches.next(plan, matrix, |trial| known.measure(trial, runner))?;
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
            break;
        }
        if needs.is_none() && runner.on() == On::Machine {
            let all: Vec<&Cell> = trials.iter().chain(cells.iter().copied()).collect();
            needs = prepare::prepare(plan, matrix, &all, runner, &mut interruption).await?;
        }
        if needs.is_none() && runner.on() == On::Machine {
            interrupted = true;
            break;
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
            let counts = Counts::new(matrix, &known.seals, trials.len());
            match &needs {
                Some(needs) => needs.announce(name, &jobs, plan, counts, folder),
                None => say(format_args!(
                    "{name}, as jobs: {}; in {}",
                    counts.in_words(),
                    folder.display()
                )),
            }
            Display::new(known.seals.len())
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
                break;
            }
        }
    }
    if let Some(display) = display {
        display.finish();
    }
    let missed = |trial: &Cell| Some(Reading::of(&runner.run_folder(trial)).ok()?.missed());
    let trials = searches.trials(plan, matrix, |trial| known.measure(trial, runner), missed);
    Ok(Came {
        known,
        trials,
        interrupted,
    })
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
    use crate::experiment::tests::{HEAD, leave_cell, matrix};

    /// Another one might come to another optimum; of a cell it is the time that counts.
    #[test]
    fn what_missed_its_pace_counts_as_a_trial_and_is_run_again_as_a_cell() {
        let folder = tempfile::tempdir().unwrap();
        let (_, matrix) = matrix(folder.path(), HEAD, false).unwrap();
        let runner = Runner::new(folder.path(), On::Machine).unwrap();
        let cell = &matrix.cells[0];
        assert_eq!(Known::default().measure(cell, &runner), None);
        leave_cell(cell, &runner.run_folder(cell), "completed", 1);
        cell::seal(&runner.run_folder(cell), None).unwrap();
        assert_eq!(
            Known::default().measure(cell, &runner),
            Some(Score::Of(0.6))
        );
        assert!(Known::default().is_todo(cell, &runner, false));
    }

    #[test]
    fn a_trial_that_was_run_elsewhere_is_not_run_again() {
        let folder = tempfile::tempdir().unwrap();
        let (_, matrix) = matrix(folder.path(), HEAD, false).unwrap();
        let runner = Runner::new(folder.path(), On::Machine).unwrap();
        let cell = &matrix.cells[0];
        let table = folder.path().join("tuning.csv");
        let text = format!(
            "configuration,metric_validation\n{},0.25\n",
            cell::digest(cell)
        );
        std::fs::write(&table, text).unwrap();
        let mut known = Known::new(Some(&table)).unwrap();
        assert_eq!(known.measure(cell, &runner), Some(Score::Of(0.25)));
        assert!(
            known.is_todo(cell, &runner, false),
            "of a cell it is the time that counts"
        );
    }

    /// What it would have come to might have been the best.
    #[test]
    fn a_trial_that_could_not_be_run_is_no_bad_one() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "{HEAD}[target]\nmetric = \"validation RMSE\"\nat_most = 0.5\nevery_samples = 10\n\
            [tuning]\nseed = 9\n[tuning.grid]\noptimizer.learning_rate = [0.1, 0.3, 1]\n"
        );
        let (plan, mut matrix) = matrix(folder.path(), &text, false).unwrap();
        let runner = Runner::new(folder.path(), On::Machine).unwrap();
        let mut searches = Searches::new(&plan, &matrix).unwrap();
        let mut known = Known::default();
        let mut next = |known: &mut Known| {
            let measure = |trial: &Cell| known.measure(trial, &runner);
            searches.next(&plan, &mut matrix, measure).unwrap()
        };
        let trials = next(&mut known);
        assert_eq!(trials.len(), 3);
        let killed = || Err("ended with status 137".to_owned());
        for trial in &trials[1..] {
            let run = runner.run_folder(trial);
            leave_cell(trial, &run, "completed", 0);
            known.add([(trial.id.clone(), Ok(cell::seal(&run, None).unwrap()))].into());
        }
        known.add([(trials[0].id.clone(), killed())].into());
        assert!(next(&mut known).is_empty());
        known.fail_untuned(&matrix);
        let why = &known.failures[&matrix.cells[0].id];
        let told = format!("its trial {} could not be run: ended with", trials[0].id);
        assert!(why.starts_with(&told), "{why}");
    }

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

    #[test]
    fn a_cell_that_ended_while_nobody_looked_is_not_run_again() {
        let folder = tempfile::tempdir().unwrap();
        let (_, matrix) = matrix(folder.path(), HEAD, false).unwrap();
        let runner = Runner::new(folder.path(), On::Machine).unwrap();
        let cell = &matrix.cells[0];
        let run = runner.run_folder(cell);
        leave_cell(cell, &run, "completed", 0);
        let mut known = Known::default();
        assert!(!known.is_todo(cell, &runner, false));
        assert!(known.seals.contains_key(&cell.id));
    }
}
