//! What a worker writes down, and the one place of the worker that reads a clock.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

use tradewind_common::record::StepRecord;

/// Seconds since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "the shell's clock")]
pub fn wall() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// Appends step records to `metrics.jsonl`, which all groups of a local run share: a line is one
/// write, so lines of different groups do not mix.
#[derive(Debug)]
pub struct Recorder {
    file: Option<File>,
    failing: bool,
}

impl Recorder {
    /// Opens the file for appending; without a path nothing is recorded.
    pub fn open(path: Option<&Path>) -> std::io::Result<Self> {
        let open = |path| OpenOptions::new().create(true).append(true).open(path);
        Ok(Self {
            file: path.map(open).transpose()?,
            failing: false,
        })
    }

    /// Appends a line; after one that may be torn, on a new line. A full disk does not stop the training: it is told once, and again when
    /// writing works again.
    pub fn write(&mut self, record: &StepRecord) {
        let Some(file) = &mut self.file else { return };
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
