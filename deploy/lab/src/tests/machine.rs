//! What a cell takes of a machine, and what is said of one that it does not hold.

use super::{HEAD, matrix, reading_of};
use crate::machine::{Machine, Need, rank_bytes, step_seconds};
use crate::matrix::Cell;

/// A cell with groups of these sizes.
fn cell(groups: &[u32], pace: f64) -> Cell {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{HEAD}[set]\ncluster.groups = {groups:?}\npace.step_seconds = {pace:?}\n");
    let (_, matrix) = matrix(folder.path(), &text, false).unwrap();
    matrix.cells[0].clone()
}

fn is_near(found: f64, wanted: f64) -> bool {
    (found - wanted).abs() < 1e-9
}

#[test]
fn a_cell_takes_the_most_of_its_parts_of_cores_memory_and_starting() {
    type Pair = (f64, f64);
    let check = |groups: &[u32], pace: f64, here: Pair, need: Pair, want: f64| {
        let (cores, bytes) = here;
        let need = Need {
            step_seconds: need.0,
            bytes: need.1,
        };
        let part = Machine { cores, bytes }.part(&cell(groups, pace), need);
        assert!(is_near(part, want), "{groups:?}, {pace}: {part}");
    };
    // Cells have three of four cores: each rank keeps 0.3 of one busy.
    let (here, need) = ((4.0, 8e9), (0.03, 1e6));
    check(&[2], 0.1, here, need, 0.2);
    check(&[1, 1], 0.1, here, need, 0.2);
    check(&[8], 0.1, here, need, 0.8);
    check(&[4, 4], 0.2, here, need, 0.4);
    check(&[2], 0.1, (8.0, 8e9), need, 0.1);
    check(&[8], 0.1, here, (0.06, 1e6), 1.6);
    // And 6 of 8 GB.
    check(&[2], 0.1, here, (0.03, 1.5e9), 0.5);
    check(&[1, 3], 0.1, here, (0.03, 1.5e9), 1.0);
    check(&[2], 0.1, (4.0, 2e9), (0.03, 1.5e9), 2.0);
    check(&[2], 0.1, (4.0, f64::INFINITY), (0.03, 1.5e9), 0.2);
    // And start at most 16 ranks a core, but for one cell by itself.
    let little = (1e-6, 1e3);
    check(&[16], 0.1, here, little, 0.25);
    check(&[8, 8], 0.1, (2.0, 8e9), little, 0.5);
    check(&[128], 0.1, here, little, 1.0);
    // Nobody knows what runs beside a cell without a pace would do to its times.
    check(&[2], 0.0, here, need, 1.0);
}

#[test]
fn the_shortest_pace_is_the_one_at_which_a_cell_takes_all() {
    let check = |groups: &[u32], cores: f64, step_seconds: f64, want: f64| {
        let machine = Machine { cores, bytes: 8e9 };
        let need = Need {
            step_seconds,
            bytes: 1e6,
        };
        let pace = machine.pace_min(&cell(groups, 0.5), need);
        assert!(is_near(pace, want), "{groups:?}: {pace}");
        let part = machine.part(&cell(groups, want), need);
        assert!(is_near(part, 1.0), "{groups:?}: {part}");
    };
    check(&[8], 4.0, 0.03, 0.08);
    check(&[4, 4], 4.0, 0.03, 0.08);
    check(&[8], 2.0, 0.03, 0.16);
    check(&[2], 4.0, 0.06, 0.04);
}

#[test]
fn what_a_machine_does_not_hold_is_told_with_the_way_out() {
    let here = Machine {
        cores: 2.0,
        bytes: 8e9,
    };
    let check = |groups: &[u32], pace: f64, need: (f64, f64), want: &[&str]| {
        let need = Need {
            step_seconds: need.0,
            bytes: need.1,
        };
        let cell = cell(groups, pace);
        assert_eq!(here.refusals(&cell, need), want);
        assert_eq!(here.part(&cell, need) > 1.0, !want.is_empty());
    };
    let small = (0.0123, 1e8);
    let short = "pace.step_seconds = 0.06 is too short for the 8 ranks of cluster.groups on 2 cores: a step takes 12.3 ms of a core, so it has to be at least 0.066";
    check(&[8], 0.06, small, &[short]);
    check(&[8], 0.066, small, &[]);
    // Its pace is long enough, so nothing is said of that.
    let large = "the 8 ranks of cluster.groups need 12.8 GB of memory, 1600 MB each, measured; 8.0 GB are available, of which cells may take 6.0: free some, take fewer ranks or a smaller train.batch, or run the cells as jobs with --slurm";
    check(&[4, 4], 0.066, (0.0123, 1.6e9), &[large]);
    check(&[8], 0.06, (0.0123, 1.6e9), &[short, large]);
    // However many ranks one cell has, it may run by itself; and without a pace nothing is measured.
    check(&[128], 0.066, (1e-6, 1e3), &[]);
    check(&[8], 0.0, (0.0123, 1.6e9), &[]);
}

/// Whoever takes the pace that is named is not refused again.
#[test]
fn a_pace_that_is_named_is_long_enough() {
    let here = Machine {
        cores: 2.0,
        bytes: 8e9,
    };
    let check = |step_seconds: f64, want: &str| {
        let need = Need {
            step_seconds,
            bytes: 1e6,
        };
        let told = here.refusals(&cell(&[8], 1e-6), need).remove(0);
        assert!(told.ends_with(&format!(" at least {want}")), "{told}");
        let named = cell(&[8], want.parse().unwrap());
        assert_eq!(here.refusals(&named, need), [""; 0]);
    };
    check(0.000_05, "0.00027");
    check(0.001, "0.0054");
    check(0.016, "0.086");
    check(0.7, "3.8");
    check(30.7, "164");
}

#[test]
fn a_step_takes_what_half_of_them_take() {
    let folder = tempfile::tempdir().unwrap();
    let mut probe = reading_of(folder.path(), "", &[]);
    for (index, record) in probe.records.iter_mut().enumerate() {
        record.compute_seconds = index as f64;
        record.reduce_seconds = 0.5;
        record.exposed_seconds = 0.25;
        (record.exchange_seconds, record.wait_seconds) = (7.0, 7.0);
    }
    assert_eq!(step_seconds(&probe), 5.75);
    // One that was held up says nothing.
    probe.records[0].compute_seconds = 1000.0;
    assert_eq!(step_seconds(&probe), 6.75);
    probe.records.clear();
    assert_eq!(step_seconds(&probe), 0.0);
}

#[test]
fn memory_is_that_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let check = |role: &str, found: bool| {
        let row = serde_json::json!({
            "role": role, "index": 0, "group": null, "group_rank": null,
            "pid": std::process::id(), "address": "",
        });
        let rows = serde_json::json!([row]).to_string();
        std::fs::write(folder.path().join("processes.json"), rows).unwrap();
        let bytes = rank_bytes(folder.path());
        assert_eq!(bytes.is_some_and(|bytes| bytes > 0.0), found, "{bytes:?}");
    };
    check("worker", true);
    check("server", false);
}
