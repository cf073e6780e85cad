//! Files of one JSON object a line, as they grow and as they were left.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use tradewind_common::record::StepRecord;

/// Line numbers of damaged lines that are remembered.
const DAMAGED_MAX: usize = 8;

/// `metrics.jsonl`.
pub(crate) type Metrics = Lines<StepRecord>;

/// A reader of records that goes on where it stopped. A last line without its end may still
/// be written, and waits; another line that is no record, such as one that a full disk has torn, is
/// left out and remembered.
#[derive(Debug)]
pub(crate) struct Lines<T> {
    path: PathBuf,
    reader: Option<BufReader<File>>,
    partial: Vec<u8>,
    lines: usize,
    damaged: Vec<usize>,
    record: PhantomData<T>,
}

impl<T: DeserializeOwned> Lines<T> {
    /// The file at `path`, which need not exist yet.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            reader: None,
            partial: Vec::new(),
            lines: 0,
            damaged: Vec::new(),
            record: PhantomData,
        }
    }

    /// Where it reads.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The records that are new since the last call.
    pub(crate) fn fresh(&mut self) -> std::io::Result<Vec<T>> {
        if self.reader.is_none() {
            match File::open(&self.path) {
                Ok(file) => self.reader = Some(BufReader::new(file)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
                Err(error) => return Err(error),
            }
        }
        let reader = self.reader.as_mut().expect("opened above");
        let mut records = Vec::new();
        while reader.read_until(b'\n', &mut self.partial)? > 0 && self.partial.ends_with(b"\n") {
            self.lines += 1;
            match serde_json::from_slice(&self.partial) {
                Ok(record) => records.push(record),
                Err(_) if self.partial.trim_ascii().is_empty() => {}
                Err(_) if self.damaged.len() < DAMAGED_MAX => self.damaged.push(self.lines),
                Err(_) => {}
            }
            self.partial.clear();
        }
        Ok(records)
    }

    /// A word about the lines that were left out, if there were any.
    pub(crate) fn complaint(&self) -> Option<String> {
        let path = self.path.display();
        (!self.damaged.is_empty()).then(|| {
            format!(
                "{path}: left out lines that are no records: {:?}",
                self.damaged
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::report::loss::tests::run;

    #[test]
    fn torn_lines_wait_or_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut metrics = Metrics::new(path.clone());
        assert!(metrics.fresh().unwrap().is_empty(), "no file yet");
        let row = serde_json::to_string(&run(1, 1)[0]).unwrap();
        let (head, rest) = row.split_at(row.len() / 2);
        let mut file = File::create(&path).unwrap();
        let mut check = |written: &str, records: usize, complaint: Option<&str>| {
            file.write_all(written.as_bytes()).unwrap();
            assert_eq!(metrics.fresh().unwrap().len(), records, "{written:?}");
            let told = metrics.complaint();
            assert_eq!(told.is_some(), complaint.is_some(), "{told:?}");
            assert!(told.unwrap_or_default().ends_with(complaint.unwrap_or("")));
        };
        check(&format!("{row}\n{head}"), 1, None);
        check(&format!("{rest}\n\n"), 1, None);
        check(&format!("{head}\n{row}\n"), 1, Some("[4]"));
        check(&format!("{head}{row}\n"), 0, Some("[4, 6]"));
    }
}
