//! How settings compare at other targets.

use super::analysis::{line, summed, target};
use super::reading_of;
use crate::file::{Goal, Target};
use crate::levels::ratios;
use crate::line::{CellState, Line, Run};

/// A setting whose runs, of seeds 1, 2, …, measured these values, one a second.
fn measured(label: &str, synchronous: bool, runs: &[&[f64]], target: &Target) -> Line {
    let folder = tempfile::tempdir().unwrap();
    let run = |(values, seed): (&&[f64], u64)| {
        let state = CellState::Completed(Box::new(reading_of(folder.path(), "", values)));
        Run::of(format!("{label}-{seed}"), seed, state, Some(target))
    };
    Line {
        runs: runs.iter().zip(1..).map(run).collect(),
        ..line(label, synchronous, &[])
    }
}

#[test]
fn each_level_is_compared_while_all_runs_reach_it() {
    let check = |goal: Goal, sign: f64| {
        let target = Target { goal, ..target() };
        let signed = |values: &[f64]| -> Vec<f64> { values.iter().map(|v| sign * v).collect() };
        // The second level of the two runs that both reach is 0.9, the last one 0.2.
        let slow = [
            signed(&[0.9, 0.8, 0.8, 0.2, 0.2]),
            signed(&[0.8, 0.7, 0.7, 0.7, 0.1, 0.1]),
        ];
        let fast = [
            signed(&[0.8, 0.3, 0.3, 0.1, 0.1]),
            signed(&[0.8, 0.7, 0.4, 0.4, 0.4, 0.4]),
        ];
        let of = |label, synchronous, runs: &[Vec<f64>]| {
            let runs: Vec<&[f64]> = runs.iter().map(Vec::as_slice).collect();
            measured(label, synchronous, &runs, &target)
        };
        let lines = vec![of("sync", true, &slow), of("fast", false, &fast)];
        let lines = crate::analysis::summed(lines, Some(&target));
        let panel: Vec<&Line> = lines.iter().collect();
        let (baseline, others) = ratios(&panel, &target).unwrap();
        assert_eq!(baseline.label, "sync");
        let [(line, found)] = others.as_slice() else {
            panic!("{others:?}")
        };
        assert_eq!(line.label, "fast");
        let (first, last) = (found[0], found[found.len() - 1]);
        assert!((first.0 - sign * 0.9).abs() < 1e-9, "{first:?}");
        assert!((first.1 - 1.0).abs() < 1e-9, "{first:?}");
        // Seconds 4 and 5 against 2 and 3; its second run comes no farther than 0.4.
        assert!(sign * last.0 >= 0.4 && sign * last.0 < 0.5, "{last:?}");
        let want = (4.0 / 2.0 * 5.0 / 3.0_f64).sqrt();
        assert!((last.1 - want).abs() < 1e-9, "{last:?}");
        assert!(found.len() < 20, "{found:?}");
    };
    check(Goal::AtMost(0.5), 1.0);
    check(Goal::AtLeast(-0.5), -1.0);
}

#[test]
fn nothing_is_compared_with_a_baseline_that_is_not_whole() {
    let mut lines = vec![line("sync", true, &[10, 20]), line("async", false, &[5, 5])];
    let of = |lines: &[Line]| {
        let lines: Vec<&Line> = lines.iter().collect();
        ratios(&lines, &target()).is_some()
    };
    assert!(of(&summed(lines.clone())));
    let failed = CellState::Failed("it diverged".into());
    lines[0].runs.push(Run::of("c".into(), 3, failed, None));
    assert!(!of(&summed(lines)));
}
