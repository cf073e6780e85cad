//! What is known of trials and cells before and while an experiment runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::cell::{self, CellOutcome, CellRecord, Unfinished};
use super::earlier::Earlier;
use super::grid::Score;
use super::matrix::{Cell, Matrix};
use super::reading;
use super::runner::{Ended, Runner};
use super::tuning;
use tradewind_process::log::say;

/// What is known of trials and cells, by their names.
#[derive(Default)]
pub(super) struct Known {
    /// Of those that came to an end.
    pub(super) records: BTreeMap<String, CellRecord>,
    /// Why the others have none.
    pub(super) failures: BTreeMap<String, String>,
    /// What trials came to, by the digests of what decides it, and which of them were run here.
    scores: BTreeMap<String, (Score, Option<String>)>,
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
    pub(super) fn is_todo(&mut self, cell: &Cell, runner: &Runner, is_trial: bool) -> bool {
        if self.records.contains_key(&cell.id) || self.failures.contains_key(&cell.id) {
            return false;
        }
        let record = match cell::gather(cell, &runner.run_folder(cell)) {
            Ok(record) => record,
            // Its measure counts, not its time, and another one might move the optimum.
            Err(Unfinished::Void(record)) if is_trial => *record,
            Err(Unfinished::Damaged(what)) => {
                say(format_args!("{}: {what}; it is run again", cell.id));
                return true;
            }
            Err(_) => return true,
        };
        self.records.insert(cell.id.clone(), record);
        false
    }

    /// What a cell has come to, in this call or before. One that was void is until it is run again.
    pub(super) fn record(&self, cell: &Cell, runner: &Runner) -> Option<CellRecord> {
        let void = || match cell::finished(cell, &runner.run_folder(cell)) {
            Err(Unfinished::Void(record)) => Some(*record),
            Ok(_)
            | Err(Unfinished::NotRun | Unfinished::OtherConfiguration | Unfinished::Damaged(_)) => {
                None
            }
        };
        self.records.get(&cell.id).cloned().or_else(void)
    }

    /// What a trial came to, or one that had to come to the same: `None` while it has to be run.
    pub(super) fn measure(&mut self, trial: &Cell, runner: &Runner) -> Option<Score> {
        let numbers = cell::numbers(trial);
        if let Some((score, _)) = self.scores.get(&numbers) {
            return Some(*score);
        }
        let score = match self.earlier.measure(trial) {
            Some(measure) => Score::Of(measure),
            None if self.is_todo(trial, runner, true) => return None,
            None => self.score(trial, runner),
        };
        if !matches!(score, Score::Unknown) {
            let here = self.records.contains_key(&trial.id);
            let here = here.then(|| trial.id.clone());
            self.scores.insert(numbers, (score, here));
        }
        Some(score)
    }

    /// What a trial came to that was run here, or could not be.
    fn score(&self, trial: &Cell, runner: &Runner) -> Score {
        let Some(record) = self.records.get(&trial.id) else {
            return Score::Unknown;
        };
        if matches!(record.outcome, CellOutcome::Failed(_)) {
            return Score::None;
        }
        let told = reading::summary(&runner.run_folder(trial)).ok();
        let measure = told.and_then(|told| Some(told.metric?.validation.value));
        match measure {
            None => Score::Unknown,
            Some(measure) if measure.is_finite() => Score::Of(measure),
            Some(_) => Score::None,
        }
    }

    /// The trial that was run here for it, which is mostly the trial itself.
    pub(super) fn ran_for(&self, trial: &Cell) -> Option<&str> {
        let (_, ran) = self.scores.get(&cell::numbers(trial))?;
        ran.as_deref()
    }

    /// Where no trial came to an end there is nothing that cells could be run with; where one could not
    /// be run, other values might be the best ones.
    pub(super) fn fail_untuned(&mut self, matrix: &Matrix) {
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

    /// Cells of settings whose trials are missing cannot even be looked for.
    pub(super) fn lack_trials(&mut self, matrix: &Matrix, missing: &[Cell]) {
        const HERE: &str =
            "have not been run here; those of an earlier run come with --trials tuning.csv";
        say(format_args!("{} trials {HERE}", missing.len()));
        for cell in &matrix.cells {
            let own = missing.iter().filter(|trial| trial.setting == cell.setting);
            let count = own.count();
            if count > 0 {
                let why = format!("{count} trials of its setting {HERE}");
                self.failures.insert(cell.id.clone(), why);
            }
        }
    }

    pub(super) fn add(&mut self, ended: BTreeMap<String, Ended>) {
        for (id, ended) in ended {
            match ended {
                Ok(record) => drop(self.records.insert(id, record)),
                Err(why) => drop(self.failures.insert(id, why)),
            }
        }
    }
}

/// Of trials that have to come to the same only the first: it is run for all of them.
pub(super) fn one_of_each(mut trials: Vec<Cell>) -> Vec<Cell> {
    let mut seen = BTreeSet::new();
    trials.retain(|trial| seen.insert(cell::numbers(trial)));
    trials
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::On;
    use crate::tests::{HEAD, leave_cell, matrix};
    use crate::tuning::Searches;

    /// Another one might come to another optimum; of a cell it is the time that counts.
    #[test]
    fn what_missed_its_pace_counts_as_a_trial_and_is_run_again_as_a_cell() {
        let folder = tempfile::tempdir().unwrap();
        let (_, matrix) = matrix(folder.path(), HEAD, false).unwrap();
        let runner = Runner::new(folder.path(), On::Machine).unwrap();
        let cell = &matrix.cells[0];
        assert_eq!(Known::default().measure(cell, &runner), None);
        leave_cell(cell, &runner.run_folder(cell), "completed", 1);
        cell::record(&runner.run_folder(cell), None).unwrap();
        assert_eq!(
            Known::default().measure(cell, &runner),
            Some(Score::Of(0.6))
        );
        let mut known = Known::default();
        assert!(known.is_todo(cell, &runner, false));
        assert!(
            known.record(cell, &runner).is_some(),
            "what it came to is told until then"
        );
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

    /// Panels of synchronous settings have stragglers, which change the clock alone.
    #[test]
    fn of_trials_that_have_to_come_to_the_same_one_is_run() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "{HEAD}panels = [\"profile\"]\n[set]\ncluster.groups = [1, 1]\n\
            [axes.profile]\nnone = {{}}\none-slow = {{ stragglers.profile = \"one-slow\" }}\n\
            [axes.setting]\nsync = {{ train.consistency = \"sync\" }}\n\
            backup = {{ train.consistency = \"sync\", train.backup_groups = 1 }}\n\
            async = {{ train.consistency = \"async\" }}\n\
            [target]\nmetric = \"validation RMSE\"\nat_most = 0.5\nevery_samples = 10\n\
            [tuning]\nseed = 9\n[tuning.grid]\noptimizer.learning_rate = [0.1, 0.3, 1]\n"
        );
        let (plan, mut matrix) = matrix(folder.path(), &text, false).unwrap();
        let runner = Runner::new(folder.path(), On::Machine).unwrap();
        let mut searches = Searches::new(&plan, &matrix).unwrap();
        let mut known = Known::default();
        let mut all: Vec<String> = Vec::new();
        loop {
            let trials = searches.next(&plan, &mut matrix, |trial| known.measure(trial, &runner));
            let trials = one_of_each(trials.unwrap());
            if trials.is_empty() {
                break;
            }
            for trial in &trials {
                let run = runner.run_folder(trial);
                leave_cell(trial, &run, "completed", 0);
                cell::record(&run, None).unwrap();
            }
            all.extend(trials.into_iter().map(|trial| trial.id));
        }
        let of = |begin: &str| all.iter().filter(|id| id.starts_with(begin)).count();
        let grid = of("sync-none");
        assert!(grid >= 3);
        let counts = ["sync-one-slow", "backup-", "async-"].map(of);
        assert_eq!(counts, [0, 2 * grid, 2 * grid], "{all:?}");

        let mut told = 0;
        searches.trials(&plan, &matrix, |trial| {
            let twin = trial.id.strip_prefix("sync-one-slow");
            let own = twin.map_or(trial.id.clone(), |rest| format!("sync-none{rest}"));
            let score = known.measure(trial, &runner);
            assert_eq!(known.ran_for(trial), Some(own.as_str()));
            told += 1;
            (score, None)
        });
        assert_eq!(told, 6 * grid);
        assert!(matrix.settings.iter().all(|s| s.tuned.is_some()));
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
            known.add([(trial.id.clone(), Ok(cell::record(&run, None).unwrap()))].into());
        }
        known.add([(trials[0].id.clone(), killed())].into());
        assert!(next(&mut known).is_empty());
        known.fail_untuned(&matrix);
        let why = &known.failures[&matrix.cells[0].id];
        let told = format!("its trial {} could not be run: ended with", trials[0].id);
        assert!(why.starts_with(&told), "{why}");
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
        assert!(known.records.contains_key(&cell.id));
    }
}
