//! What a rank writes down of its steps.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use tradewind_common::record::{METRICS_PART_BYTES, StepRecord};

/// For appending; what others write into it stays.
fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Appends step records to `metrics.jsonl`, which all groups of a local run share: a line is one
/// write, so lines of different groups do not mix.
#[derive(Debug)]
pub struct Recorder {
    file: Option<(PathBuf, File)>,
    failing: bool,
    part_bytes: u64,
}

impl Recorder {
    /// Opens the file for appending; without a path nothing is recorded.
    pub fn open(path: Option<&Path>) -> std::io::Result<Self> {
        Self::with_parts(path, METRICS_PART_BYTES)
    }

    fn with_parts(path: Option<&Path>, part_bytes: u64) -> std::io::Result<Self> {
        let open = |path: &Path| Ok::<_, std::io::Error>((path.to_owned(), open(path)?));
        Ok(Self {
            file: path.map(open).transpose()?,
            failing: false,
            part_bytes,
        })
    }

    /// A file that is full has been moved aside, or will be: what has its name now is written to.
    fn follow(&mut self) {
        if let Some((path, file)) = &mut self.file
            && file.metadata().is_ok_and(|is| is.len() > self.part_bytes)
            && let Ok(fresh) = open(path)
        {
            *file = fresh;
        }
    }

    /// Appends a line; after one that may be torn, on a new line. A full disk does not stop the training: it
    /// is told once, and again when writing works again.
    pub fn write(&mut self, record: &StepRecord) {
        self.follow();
        let Some((_, file)) = &mut self.file else {
            return;
        };
        let mut line = if self.failing { "\n" } else { "" }.to_owned();
        line += &serde_json::to_string(record).expect("a record is plain data");
        line.push('\n');
        match (file.write_all(line.as_bytes()), self.failing) {
            (Err(error), false) => {
                tracing::error!(
                    "metrics.jsonl cannot be written ({error}); training goes on without it"
                );
                self.failing = true;
            }
            (Ok(()), true) => {
                tracing::warn!("metrics.jsonl can be written again; it has a gap");
                self.failing = false;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(clock: u64) -> StepRecord {
        let text = format!(
            r#"{{"wall":1.0,"group":0,"clock":{clock},"loss":1.0,"samples":8,"samples_applied":8,"updates":1,"lag":0,"delay":0,"skipped":false,"buckets_skipped":0,"compute_seconds":1.0,"reduce_seconds":0.0,"exchange_seconds":0.0,"exposed_seconds":0.0,"wait_seconds":0.0}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_full_file_that_was_moved_aside_is_left_for_a_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let (path, aside) = (folder.path().join("m"), folder.path().join("m-1"));
        let clocks = |path: &Path| {
            let text = std::fs::read_to_string(path).unwrap();
            let row = |line| serde_json::from_str::<StepRecord>(line).unwrap().clock;
            text.lines().map(row).collect::<Vec<u64>>()
        };
        let mut recorder = Recorder::with_parts(Some(&path), 1_000).unwrap();
        (0..5).for_each(|clock| recorder.write(&record(clock)));
        assert_eq!(clocks(&path), [0, 1, 2, 3, 4], "nobody has moved it");
        std::fs::rename(&path, &aside).unwrap();
        (5..7).for_each(|clock| recorder.write(&record(clock)));
        assert_eq!(
            (clocks(&aside), clocks(&path)),
            (vec![0, 1, 2, 3, 4], vec![5, 6])
        );
    }
}
