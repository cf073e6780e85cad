//! How the runs of a page came about, as far as that is known.

use std::collections::BTreeMap;
use std::path::Path;

use super::cell::CellRecord;
use super::machine::Host;
use super::matrix::Matrix;
use super::tuning::Trial;

/// What does not stand in the runs themselves.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// How many of the runs each machine ran. Of others it is not known: they were jobs of Slurm, or ended
    /// while nobody looked.
    pub hosts: BTreeMap<Host, usize>,
    /// Where trials came from that were not run here.
    pub trials: Option<Elsewhere>,
}

/// Trials that the table of an earlier tuning told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    pub table: String,
    pub count: usize,
    /// Of so many.
    pub all: usize,
}

impl Origin {
    pub(super) fn new(
        matrix: &Matrix,
        records: &BTreeMap<String, CellRecord>,
        trials: &[Trial],
        table: Option<&Path>,
    ) -> Self {
        let own = matrix.cells.iter().filter_map(|cell| records.get(&cell.id));
        let mut hosts = BTreeMap::new();
        for host in own.filter_map(|record| record.host.clone()) {
            *hosts.entry(host).or_default() += 1;
        }
        // A run that lies here tells of its steps.
        let elsewhere = trials
            .iter()
            .filter(|trial| trial.measure.is_some() && trial.source.is_none());
        let count = elsewhere.count();
        let table = table.filter(|_| count > 0);
        Self {
            hosts,
            trials: table.map(|table| Elsewhere {
                table: table.display().to_string(),
                count,
                all: trials.len(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::record;
    use crate::tests::{HEAD, leave, matrix};
    use crate::tuning::Source;

    #[test]
    fn only_what_is_known_of_runs_and_trials_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let text = HEAD.to_owned() + "seeds = [1, 2, 3]\n";
        let (_, matrix) = matrix(folder.path(), &text, false).unwrap();
        let run = folder.path().join("run");
        leave(&run, "completed", 0);
        let here = Host::here();
        let records = matrix.cells.iter().zip([Some(here.clone()), None]);
        let records = records.map(|(cell, host)| (cell.id.clone(), record(&run, host).unwrap()));
        let trial = |measure, run: Option<&str>| Trial {
            id: "t".into(),
            configuration: String::new(),
            setting: 0,
            values: Vec::new(),
            measure,
            source: run.map(|run| Source {
                run: run.into(),
                missed: 0.0,
            }),
            chosen: false,
            on_edge: Vec::new(),
        };
        // Run here, known from the table, and not run.
        let trials = [(Some(0.5), Some("t")), (Some(0.5), None), (None, None)];
        let trials = trials.map(|(measure, run)| trial(measure, run));
        let table = Path::new("t.csv");
        let origin = Origin::new(&matrix, &records.collect(), &trials, Some(table));
        assert_eq!(origin.hosts, [(here, 1)].into());
        let elsewhere = Elsewhere {
            table: "t.csv".into(),
            count: 1,
            all: 3,
        };
        assert_eq!(origin.trials, Some(elsewhere));
        let origin = Origin::new(&matrix, &BTreeMap::new(), &trials[..1], Some(table));
        assert_eq!((origin.hosts.len(), origin.trials), (0, None));
    }
}
