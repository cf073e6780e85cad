//! Folders of runs that last.

use std::collections::BTreeMap;
use std::io::Write;

use super::*;
use crate::lines::Metrics;
use tradewind_common::record::fixture::run;

/// A part of a test's `metrics.jsonl`, and what its thinned part may have.
const PART: u64 = 16 << 10;
const THINNED: usize = 16 << 10;

fn append(path: &Path, record: &StepRecord) {
    let mut file = fs::OpenOptions::new();
    let mut file = file.create(true).append(true).open(path).unwrap();
    let line = serde_json::to_string(record).unwrap() + "\n";
    file.write_all(line.as_bytes()).unwrap();
}

fn read(path: &Path) -> Vec<StepRecord> {
    let mut metrics = Metrics::new(path.to_owned());
    let records = latest(metrics.fresh().unwrap());
    assert_eq!(metrics.complaint(), None);
    records
}

fn bytes_in(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|e| e.unwrap().metadata().unwrap().len()).sum()
}

/// Of each group, whatever rows there are: exchanges, those skipped, samples, steps, seconds.
fn sums(records: &[StepRecord]) -> BTreeMap<u32, [f64; 5]> {
    let mut sums: BTreeMap<u32, [f64; 5]> = BTreeMap::new();
    for record in records {
        let own = sums.entry(record.group).or_default();
        let skipped = if record.skipped { record.exchanges } else { 0 };
        let more = [
            record.exchanges as f64,
            skipped as f64,
            record.samples as f64,
            record.local_steps as f64,
            record.compute_seconds + record.wait_seconds,
        ];
        own.iter_mut()
            .zip(more)
            .for_each(|(sum, more)| *sum += more);
    }
    sums
}

fn assert_same(found: &[StepRecord], want: &[StepRecord]) {
    let (found, want) = (sums(found), sums(want));
    assert_eq!(found.len(), want.len());
    for (group, want) in want {
        for (found, want) in found[&group].iter().zip(want) {
            assert!((found - want).abs() <= 1e-9 * want.abs(), "{found} {want}");
        }
    }
}

#[test]
fn the_records_of_a_long_run_stay_small_and_still_span_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.jsonl");
    let all = run(3, 2_000);
    let mut live = Metrics::new(path.clone());
    let mut seen = 0;
    let mut most = 0;
    for (at, record) in all.iter().enumerate() {
        append(&path, record);
        if at % 10 == 0 {
            seen += live.fresh().unwrap().len();
            move_aside(&path, PART).unwrap();
            thin(&path, THINNED).unwrap();
            most = most.max(bytes_in(folder.path()));
        }
    }
    // The one that grows, the one before, the thinned one; and ten rows by which each may be late.
    let bound = 2 * PART + THINNED as u64 + 20 * 600;
    assert!(most <= bound, "{most} bytes of {bound}");
    let whole: usize = all
        .iter()
        .map(|r| serde_json::to_string(r).unwrap().len())
        .sum();
    assert!(whole as u64 > 20 * bound, "there was a lot to be thinned");
    seen += live.fresh().unwrap().len();
    assert_eq!(
        (seen, live.complaint()),
        (all.len(), None),
        "whoever follows sees each"
    );

    let kept = read(&path);
    assert_same(&kept, &all);
    let first = kept.iter().find(|record| record.group == 1).unwrap();
    assert!(
        first.clock < 500,
        "{} exchanges in the first row",
        first.exchanges
    );
    assert_eq!(kept.last().unwrap(), all.last().unwrap());
    // As the curve goes down, and evenly spread.
    let thinned: Vec<_> = kept
        .iter()
        .filter(|r| r.group == 0 && r.exchanges > 1 && !r.skipped)
        .collect();
    assert!(thinned.len() > 5);
    for row in &thinned {
        let clocks = row.clock + 1 - row.exchanges..=row.clock;
        let own = all
            .iter()
            .filter(|r| r.group == 0 && clocks.contains(&r.clock) && !r.skipped);
        let losses: Vec<f64> = own.filter_map(|r| r.loss).collect();
        let mean = losses.iter().sum::<f64>() / losses.len() as f64;
        assert!(
            (row.loss.unwrap() - mean).abs() < 0.05 * mean,
            "{row:?} {mean}"
        );
    }
}

/// Whoever thins may die at any moment; each leaves what it had done until then.
#[test]
fn who_dies_while_thinning_loses_nothing_and_counts_nothing_twice() {
    let all = run(2, 300);
    let made = |upto: u32| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        for record in &all {
            append(&path, record);
            move_aside(&path, PART).unwrap();
        }
        let parts = Parts::of(&path).unwrap();
        let numbers = parts.numbers().to_vec();
        assert!(numbers.len() > 3);
        let aside: Vec<(PathBuf, Vec<u8>)> = parts
            .paths()
            .into_iter()
            .map(|part| (part.clone(), fs::read(part).unwrap()))
            .collect();
        thin(&path, THINNED).unwrap();
        let thinned = thinned_name(&path, numbers[numbers.len() - 2]);
        match upto {
            // The thinned part is not whole.
            0 => {
                let text = fs::read(&thinned).unwrap();
                fs::remove_file(&thinned).unwrap();
                fs::write(folder.path().join("whole.part"), &text[..100]).unwrap();
                aside
                    .iter()
                    .for_each(|(part, text)| fs::write(part, text).unwrap());
            }
            // Nothing is deleted.
            1 => aside
                .iter()
                .for_each(|(part, text)| fs::write(part, text).unwrap()),
            // One is.
            2 => aside[1..]
                .iter()
                .for_each(|(part, text)| fs::write(part, text).unwrap()),
            _ => {}
        }
        (folder, path)
    };
    for upto in 0..4 {
        let (_folder, path) = made(upto);
        assert_same(&read(&path), &all);
        // The next one goes on.
        assert!(upto == 3 || wants_thinning(&path).unwrap());
        thin(&path, THINNED).unwrap();
        assert_same(&read(&path), &all);
        assert!(!wants_thinning(&path).unwrap());
    }
}

#[test]
fn a_resumed_run_takes_the_place_of_what_was_thinned() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.jsonl");
    let all = run(1, 400);
    for record in &all[..300] {
        append(&path, record);
    }
    move_aside(&path, 1).unwrap();
    // From a snapshot at clock 200.
    for record in &all[200..] {
        append(&path, record);
    }
    move_aside(&path, 1).unwrap();
    fs::write(&path, "").unwrap();
    thin(&path, usize::MAX).unwrap();
    assert_same(&read(&path), &all);
}

#[test]
fn a_damaged_line_is_still_told_of_when_its_part_is_thinned() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.jsonl");
    let all = run(1, 30);
    for part in all.chunks(10) {
        part.iter().for_each(|record| append(&path, record));
        fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(b"{\"wall\": 1\n"))
            .unwrap();
        move_aside(&path, 1).unwrap();
        thin(&path, 100).unwrap();
    }
    let mut metrics = Metrics::new(path);
    assert_same(&metrics.fresh().unwrap(), &all);
    let told = metrics.complaint().unwrap();
    assert!(told.ends_with("[1, 15]") || told.contains("[1, "), "{told}");
}

#[test]
fn events_keep_their_last_parts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    for number in 1..=10 {
        fs::write(&path, format!("{number}\n")).unwrap();
        assert!(move_aside(&path, 1).unwrap());
        forget(&path).unwrap();
    }
    assert!(!move_aside(&path, 1).unwrap(), "nobody has written since");
    fs::write(&path, "11\n").unwrap();
    let mut lines = Lines::<u32>::new(path);
    assert_eq!(lines.fresh().unwrap(), [7, 8, 9, 10, 11]);
}
