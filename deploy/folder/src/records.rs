//! What a run has written of its steps and of its evaluation.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Context;
use tradewind_common::record::{Evaluation, Measure, StepRecord, Validation};
use tradewind_common::run_files;

use crate::lines::Lines;

/// What counts of the records: a resumed run trains again what came after its snapshot, and what a
/// group had done from there on the first time is lost.
pub fn latest(records: Vec<StepRecord>) -> Vec<StepRecord> {
    let mut lowest: HashMap<u32, u64> = HashMap::new();
    let mut kept: Vec<StepRecord> = records
        .into_iter()
        .rev()
        .filter(|record| {
            let later = lowest.entry(record.group).or_insert(u64::MAX);
            let counts = record.clock < *later;
            *later = record.clock.min(*later);
            counts
        })
        .collect();
    kept.reverse();
    kept
}

/// The evaluation of the run in this folder.
pub fn read_evaluation(folder: &Path) -> anyhow::Result<Evaluation> {
    let path = folder.join(run_files::EVALUATION);
    let name = || format!("reading {}", path.display());
    serde_json::from_str(&std::fs::read_to_string(&path).with_context(name)?).with_context(name)
}

/// What was measured of a run, and of what of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Samples that had been applied.
    pub samples: u64,
    /// When that was, seconds since the Unix epoch.
    pub wall: f64,
    /// What it came to.
    pub measure: Measure,
}

/// All that was measured of the run in this folder: on the way, and then what its evaluation says, which is of
/// `samples` and of the time `wall`.
///
/// # Errors
/// A file that cannot be read.
pub fn measured(
    folder: &Path,
    evaluation: &Evaluation,
    (samples, wall): (u64, f64),
) -> std::io::Result<Vec<Measured>> {
    let mut measured = Vec::new();
    let mut on_the_way: Lines<Validation> = Lines::new(folder.join("validation.jsonl"));
    on_the_way.each(|at| {
        measured.push(Measured {
            samples: at.samples,
            wall: at.wall,
            measure: at.measure,
        });
    })?;
    for measure in [&evaluation.validation, &evaluation.metric] {
        let measure = measure.clone();
        measured.push(Measured {
            samples,
            wall,
            measure,
        });
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tradewind_common::record::fixture::run;

    #[test]
    fn what_was_trained_again_counts_once() {
        let first = run(1, 5);
        let mut all = first.clone();
        all.extend(first[3..].iter().map(|record| StepRecord {
            wall: record.wall + 100.0,
            ..record.clone()
        }));
        let kept = latest(all);
        assert_eq!(kept.len(), first.len());
        assert_eq!(kept[..3], first[..3]);
        assert_eq!(kept[3].wall, first[3].wall + 100.0);
    }
}
