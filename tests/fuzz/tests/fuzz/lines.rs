//! `events.jsonl` and `metrics.jsonl`, as they are read while they grow.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::Write;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tradewind_common::record::{self, StepRecord};
use tradewind_folder::events::{Event, fixture};
use tradewind_folder::lines::Lines;
use tradewind_fuzz::{Target, target};

#[test]
fn events_are_the_same_however_they_grow() {
    let kinds = ["group_formed", "process_restarted", "lease_ran_out"];
    let events: Vec<Event> = kinds
        .iter()
        .map(|kind| fixture::event(1.7e9, kind, "a sentence"))
        .collect();
    grown::<Event>(target!(grown_of(&events)));
}

#[test]
fn metrics_are_the_same_however_they_grow() {
    grown::<StepRecord>(target!(grown_of(&record::fixture::run(2, 3))));
}

fn grown_of<T: Serialize>(records: &[T]) -> [String; 3] {
    let lines: Vec<String> = records
        .iter()
        .map(|record| serde_json::to_string(record).expect("JSON"))
        .collect();
    [
        lines.join("\n") + "\n",
        lines.join("\n"),
        lines[0].clone() + "\n\n",
    ]
}

fn grown<T: DeserializeOwned + Debug>(target: Target) {
    let folder = tempfile::tempdir().expect("a folder");
    target.each(|bytes, mut turn| {
        let (whole, parts) = (
            folder.path().join("whole.jsonl"),
            folder.path().join("parts.jsonl"),
        );
        fs::write(&whole, bytes).expect("a file");
        let once = Lines::<T>::only(whole).fresh().expect("it can be read");
        assert!(once.len() <= bytes.iter().filter(|byte| **byte == b'\n').count());

        let (first, second) = bytes.split_at(turn.below(bytes.len() as u64 + 1) as usize);
        let mut file = File::create(&parts).expect("a file");
        let mut lines = Lines::<T>::only(parts);
        let mut twice = Vec::new();
        for piece in [first, second] {
            file.write_all(piece).expect("it is written");
            twice.extend(lines.fresh().expect("it can be read"));
        }
        assert_eq!(format!("{twice:?}"), format!("{once:?}"));
        lines.complaint();
    });
}
