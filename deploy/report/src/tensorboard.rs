//! Event files for TensorBoard, written as a run goes on from what its groups have written down.
//!
//! In the folder of the run, `tensorboard/run` has all groups together, the configuration, and what is measured on
//! the validation split; `tensorboard/group-N` has a group. A step is a sample that was applied to the run, so that
//! runs with other batches compare.

mod event;
mod histogram;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use tradewind_common::record::{Measure, StepRecord};

use event::{EventFile, Moment};
use histogram::Histogram;

use crate::curves::{GROUPS_MAX, Points, Window};

/// The folder in that of the run.
pub const FOLDER: &str = "tensorboard";

/// Histograms over the budget.
const HISTOGRAMS_MAX: u64 = 50;

/// Writes what TensorBoard shows of a run.
#[derive(Debug)]
pub struct Board {
    folder: PathBuf,
    budget: u64,
    all: Curves,
    groups: BTreeMap<u32, Curves>,
    /// It could not be written: what would come now is left out, for training goes first.
    failed: bool,
}

impl Board {
    /// For a run in this folder, with its configuration and its budget in samples.
    pub fn new(run: &Path, configuration: &str, budget: u64) -> Self {
        let folder = run.join(FOLDER);
        let mut all = Curves::new(&folder.join("run"), budget);
        all.text = Some(configuration.to_owned());
        Self {
            folder,
            budget,
            all,
            groups: BTreeMap::new(),
            failed: false,
        }
    }

    /// Takes in what groups have written down. The first time that it cannot be written it says so, and nothing is
    /// written from then on.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn take(&mut self, records: &[StepRecord]) -> io::Result<()> {
        if self.failed || records.is_empty() {
            return Ok(());
        }
        for record in records {
            self.all.take(record);
            if self.groups.len() < GROUPS_MAX || self.groups.contains_key(&record.group) {
                let group = self.groups.entry(record.group);
                let group = group.or_insert_with(|| {
                    let name = format!("group-{}", record.group);
                    Curves::new(&self.folder.join(name), self.budget)
                });
                group.take(record);
            }
        }
        let mut all = std::iter::once(&mut self.all).chain(self.groups.values_mut());
        let written = all.try_for_each(|curves| curves.file.write());
        self.failed = written.is_err();
        written
    }

    /// Writes what was measured on the way and at the end, each with the samples that were applied and the wall time.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn measured(run: &Path, measures: &[(u64, f64, &Measure)]) -> io::Result<()> {
        // TensorBoard passes over a file whose name comes before that of one that it has read.
        let Some(last) = measures
            .iter()
            .map(|(_, wall, _)| *wall)
            .max_by(f64::total_cmp)
        else {
            return Ok(());
        };
        // Not the start of training again: what is there stays.
        let mut file = EventFile::new(&run.join(FOLDER).join("run"), last);
        file.version(Moment::new(last, 0));
        for (samples, wall, measure) in measures {
            let tag = match measure.unit.as_str() {
                "" => measure.name.clone(),
                unit => format!("{} ({unit})", measure.name),
            };
            file.scalars(Moment::new(*wall, *samples), &[(&tag, measure.value)]);
        }
        file.write()
    }
}

/// Curves of a group, or of all groups together.
#[derive(Debug)]
struct Curves {
    folder: PathBuf,
    file: EventFile,
    /// To be written first.
    text: Option<String>,
    begun: bool,
    points: Points,
    histogram: Window,
    delays: Histogram,
    steps: Histogram,
}

impl Curves {
    fn new(folder: &Path, budget: u64) -> Self {
        Self {
            folder: folder.to_owned(),
            file: EventFile::new(folder, 0.0),
            text: None,
            begun: false,
            points: Points::new(budget),
            histogram: Window::new(budget, HISTOGRAMS_MAX),
            delays: Histogram::default(),
            steps: Histogram::default(),
        }
    }

    fn take(&mut self, record: &StepRecord) {
        let at = Moment::new(record.wall, record.samples_applied);
        if !std::mem::replace(&mut self.begun, true) {
            self.file = EventFile::new(&self.folder, record.wall);
            self.file.version(at);
            // A run that was resumed trains again what came after its snapshot.
            self.file.start(at);
            if let Some(text) = self.text.take() {
                self.file.text(at, "configuration", &text);
            }
        }
        let times = record.exchanges;
        if let Some(delay) = record.delay {
            self.delays.add(delay as f64, times);
        }
        self.steps.add(seconds(record) / times as f64, times);
        if let Some(point) = self.points.take(record) {
            self.file.scalars(at, &point.values);
        }
        if self.histogram.ends(record.samples_applied) {
            let delays = std::mem::take(&mut self.delays);
            let steps = std::mem::take(&mut self.steps);
            self.file.histogram(at, "delay", delays);
            self.file.histogram(at, "step_seconds", steps);
        }
    }
}

/// How long an exchange's steps took, with what they waited.
fn seconds(record: &StepRecord) -> f64 {
    let computed = record.data_seconds + record.compute_seconds + record.reduce_seconds;
    computed + record.exposed_seconds + record.wait_seconds
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tradewind_common::record::fixture::run;

    use super::event::{Event, What, read};
    use super::*;
    use crate::curves::POINTS_MAX;

    /// All events of a folder, oldest file first.
    fn events(folder: &Path) -> Vec<Event> {
        let entries = fs::read_dir(folder).unwrap();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let all = files.iter().map(|file| read(&fs::read(file).unwrap()));
        all.flatten().collect()
    }

    /// The points of a curve.
    fn curve(events: &[Event], tag: &str) -> Vec<(i64, f32)> {
        let points = events.iter().flat_map(|event| {
            let values = match &event.what {
                Some(What::Summary(summary)) => summary.value.clone(),
                _ => Vec::new(),
            };
            let own = values.into_iter().filter(move |value| value.tag == tag);
            own.filter_map(move |value| Some((event.step, value.simple()?)))
        });
        points.collect()
    }

    #[test]
    fn curves_are_those_of_the_records() {
        let root = tempfile::tempdir().unwrap();
        let records = run(2, 6);
        let budget = records.iter().map(|record| record.samples).sum();
        let mut board = Board::new(root.path(), "[run]\nname = \"r\"\n", budget);
        // As they come.
        for records in records.chunks(5) {
            board.take(records).unwrap();
        }
        for group in [0, 1] {
            let events = events(&root.path().join(format!("tensorboard/group-{group}")));
            assert_eq!(
                events[0].what,
                Some(What::FileVersion("brain.Event:2".into()))
            );
            let own = records.iter().filter(|record| record.group == group);
            let point =
                |record: &StepRecord| Some((record.samples_applied as i64, record.loss? as f32));
            let want: Vec<_> = own.filter_map(point).collect();
            assert!(want.len() > 3);
            assert_eq!(curve(&events, "loss"), want);
        }
        let all = events(&root.path().join("tensorboard/run"));
        let told: f32 = curve(&all, "updates").iter().map(|(_, value)| value).sum();
        assert!(told > 0.0);
        let text = all.iter().find_map(|event| match &event.what {
            Some(What::Summary(summary)) => summary.value.first()?.told(),
            _ => None,
        });
        assert_eq!(text.unwrap(), "    [run]\n    name = \"r\"\n");
    }

    #[test]
    fn a_long_run_has_few_points_with_all_samples() {
        let root = tempfile::tempdir().unwrap();
        let mut board = Board::new(root.path(), "", 10_000_000);
        let template = run(1, 1)[0].clone();
        let mut total = 0.0;
        for clock in 0..20_000 {
            let record = StepRecord {
                clock,
                wall: 1000.0 + clock as f64,
                samples: 500,
                samples_applied: 500 * (clock + 1),
                ..template.clone()
            };
            total += record.compute_seconds;
            board.take(&[record]).unwrap();
        }
        let events = events(&root.path().join("tensorboard/group-0"));
        let points = curve(&events, "loss").len() as u64;
        assert!((POINTS_MAX..=POINTS_MAX + 1).contains(&points), "{points}");
        let rates = curve(&events, "samples_per_second");
        assert_eq!(rates[10].1, 500.0);
        let mean = curve(&events, "seconds/compute")[10].1;
        assert!((f64::from(mean) - total / 20_000.0).abs() < 1e-6);
        let (mut histograms, mut counted) = (0, 0.0);
        for event in &events {
            let Some(What::Summary(summary)) = &event.what else {
                continue;
            };
            for value in summary
                .value
                .iter()
                .filter(|value| value.tag == "step_seconds")
            {
                let told = value.counted().unwrap();
                histograms += 1;
                counted += told.bucket.iter().sum::<f64>();
                assert_eq!(told.bucket.iter().sum::<f64>(), told.num);
                assert_eq!(told.bucket.len(), told.bucket_limit.len());
            }
        }
        assert!((HISTOGRAMS_MAX..=HISTOGRAMS_MAX + 1).contains(&histograms));
        assert!(counted > 19_000.0);
    }

    #[test]
    fn a_resumed_run_says_where_it_begins_again() {
        let root = tempfile::tempdir().unwrap();
        let records = run(1, 8);
        let take = |records: &[StepRecord]| {
            let mut board = Board::new(root.path(), "", 100);
            board.take(records).unwrap();
        };
        take(&records[..6]);
        let again: Vec<StepRecord> = records[3..]
            .iter()
            .map(|record| StepRecord {
                wall: record.wall + 100.0,
                ..record.clone()
            })
            .collect();
        take(&again);
        let events = events(&root.path().join("tensorboard/group-0"));
        let starts: Vec<i64> = events
            .iter()
            .filter(|event| matches!(event.what, Some(What::SessionLog(_))))
            .map(|event| event.step)
            .collect();
        let want = [0, 3].map(|at: usize| records[at].samples_applied as i64);
        assert_eq!(starts, want);
        let measure = Measure {
            name: "validation RMSE".into(),
            unit: "K".into(),
            value: 0.5,
        };
        Board::measured(
            root.path(),
            &[(10, 1e9, &measure), (20, 1e9 + 1.0, &measure)],
        )
        .unwrap();
        let events = self::events(&root.path().join("tensorboard/run"));
        assert_eq!(
            curve(&events, "validation RMSE (K)"),
            [(10, 0.5), (20, 0.5)]
        );
    }

    #[test]
    fn a_disk_that_is_full_is_told_once() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(FOLDER), "in the way").unwrap();
        let mut board = Board::new(root.path(), "", 100);
        assert!(board.take(&run(1, 2)).is_err());
        board.take(&run(1, 2)).unwrap();
    }
}
