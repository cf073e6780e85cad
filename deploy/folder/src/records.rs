//! What a run has written of its steps and of its evaluation.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Context;
use tradewind_common::record::{Evaluation, StepRecord};
use tradewind_common::run_files;

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
