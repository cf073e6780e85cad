//! Files of one JSON object a line, as they grow and as they were left, in however many parts
//! ([`crate::rotation`] says how these come about).

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use tradewind_common::record::StepRecord;

use crate::parts::{Id, Parts};

/// Line numbers of damaged lines that are remembered.
const DAMAGED_MAX: usize = 8;

/// How often the parts of a file are looked for while they change under the reader.
const TRIES: u32 = 8;

/// `metrics.jsonl`.
pub type Metrics = Lines<StepRecord>;

/// A reader of records that goes on where it stopped. A last line without its end may still
/// be written, and waits; another line that is no record, such as one that a full disk has torn, is
/// left out and remembered.
#[derive(Debug)]
pub struct Lines<T> {
    path: PathBuf,
    is_alone: bool,
    reader: Option<Open>,
    /// Parts that are there already, and come after the one that is read.
    next: VecDeque<Open>,
    partial: Vec<u8>,
    lines: usize,
    damaged: Vec<usize>,
    record: PhantomData<T>,
}

/// A file that is read, whatever its name is by now.
#[derive(Debug)]
struct Open {
    reader: BufReader<File>,
    id: Id,
}

impl Open {
    /// `None` if there is no such file.
    fn at(path: &Path) -> io::Result<Option<Self>> {
        match File::open(path) {
            Ok(file) => Ok(Some(Self {
                id: Id::of(&file.metadata()?),
                reader: BufReader::new(file),
            })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl<T: DeserializeOwned> Lines<T> {
    /// The file at `path`, which need not exist yet.
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            is_alone: false,
            reader: None,
            next: VecDeque::new(),
            partial: Vec::new(),
            lines: 0,
            damaged: Vec::new(),
            record: PhantomData,
        }
    }

    /// This file alone, and no parts of it.
    pub fn only(path: PathBuf) -> Self {
        Self {
            is_alone: true,
            ..Self::new(path)
        }
    }

    /// Where it reads.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The records that are new since the last call.
    pub fn fresh(&mut self) -> io::Result<Vec<T>> {
        let mut records = Vec::new();
        self.each(|record| records.push(record))?;
        Ok(records)
    }

    /// The same, one after the other: they need not all fit into memory.
    pub fn each(&mut self, mut take: impl FnMut(T)) -> io::Result<()> {
        if self.reader.is_none() {
            self.next = self.all_parts()?;
            self.reader = self.next.pop_front();
        }
        while self.reader.is_some() {
            self.read(&mut take)?;
            let Some(next) = self.following()? else { break };
            // What was written just before it was moved aside.
            self.read(&mut take)?;
            self.take(&mut take);
            self.reader = Some(next);
        }
        Ok(())
    }

    fn read(&mut self, take: &mut impl FnMut(T)) -> io::Result<()> {
        while let Some(open) = &mut self.reader {
            let read = open.reader.read_until(b'\n', &mut self.partial)?;
            if read == 0 || !self.partial.ends_with(b"\n") {
                break;
            }
            self.take(take);
        }
        Ok(())
    }

    /// Takes a line in, whole or not.
    fn take(&mut self, take: &mut impl FnMut(T)) {
        if self.partial.is_empty() {
            return;
        }
        self.lines += 1;
        match serde_json::from_slice(&self.partial) {
            Ok(record) => take(record),
            Err(_) if self.partial.trim_ascii().is_empty() => {}
            Err(_) if self.damaged.len() < DAMAGED_MAX => self.damaged.push(self.lines),
            Err(_) => {}
        }
        self.partial.clear();
    }

    /// What is there, oldest first. Parts may be moved aside, or become one, just now.
    fn all_parts(&self) -> io::Result<VecDeque<Open>> {
        for _ in 1..TRIES {
            if let Some(parts) = self.try_all_parts()? {
                return Ok(parts);
            }
        }
        let path = self.path.display();
        let text = format!("{path}: its parts change faster than they can be read");
        Err(io::Error::other(text))
    }

    /// `None` if one has gone meanwhile.
    fn try_all_parts(&self) -> io::Result<Option<VecDeque<Open>>> {
        if self.is_alone {
            return Ok(Some(Open::at(&self.path)?.into_iter().collect()));
        }
        // Last first: what is moved aside meanwhile is then found twice, and not never.
        let last = Open::at(&self.path)?;
        let mut all = VecDeque::new();
        for path in Parts::of(&self.path)?.paths() {
            let Some(part) = Open::at(&path)? else {
                return Ok(None);
            };
            if last.as_ref().is_some_and(|last| last.id == part.id) {
                break;
            }
            all.push_back(part);
        }
        all.extend(last);
        Ok(Some(all))
    }

    /// What comes after the file that is read; `None` while that may grow.
    fn following(&mut self) -> io::Result<Option<Open>> {
        if let Some(next) = self.next.pop_front() {
            return Ok(Some(next));
        }
        let Some(own) = self.reader.as_ref().map(|open| open.id) else {
            return Ok(None);
        };
        match std::fs::metadata(&self.path) {
            Ok(is) if Id::of(&is) == own => return Ok(None),
            // It is moved aside, and nobody has written since.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        let mut later = self.all_parts()?;
        match later.iter().position(|part| part.id == own) {
            Some(at) => later.drain(..=at),
            // It has become a part of what was thinned, which is known.
            None => later.drain(..Parts::of(&self.path)?.thinned().min(later.len())),
        };
        self.next = later;
        Ok(self.next.pop_front())
    }

    /// A word about the lines that were left out, if there were any.
    pub fn complaint(&self) -> Option<String> {
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
    use tradewind_common::record::fixture::run;

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

    fn numbers(lines: &mut Lines<u32>) -> Vec<u32> {
        lines.fresh().unwrap()
    }

    #[test]
    fn parts_are_read_as_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let path = file("m.jsonl");
        let write = |name: &str, text: &str| std::fs::write(file(name), text).unwrap();
        write("m-thinned-2.jsonl", "1\n2\n");
        // They are in the thinned one, but for whoever died right after writing that.
        write("m-thinned-1.jsonl", "1\n");
        write("m-2.jsonl", "2\n");
        write("m-10.jsonl", "4\n");
        write("m-9.jsonl", "3\n");
        write("m-thinned-3.jsonl.part", "1\n2\n3");
        let mut lines = Lines::new(path.clone());
        assert_eq!(numbers(&mut lines), [1, 2, 3, 4], "none has begun after");
        write("m.jsonl", "5\n6");
        let mut late = Lines::new(path.clone());
        assert_eq!(numbers(&mut late), [1, 2, 3, 4, 5]);
        assert_eq!(numbers(&mut lines), [5]);
        // The line ends after it was moved aside.
        std::fs::rename(&path, file("m-11.jsonl")).unwrap();
        write("m-11.jsonl", "5\n67\n");
        write("m.jsonl", "8\n");
        assert_eq!(numbers(&mut late), [67, 8]);
        // Two at once, of which the first is thinned already.
        std::fs::rename(&path, file("m-12.jsonl")).unwrap();
        write("m-13.jsonl", "9\n");
        write("m-thinned-12.jsonl", "1\n");
        std::fs::remove_file(file("m-12.jsonl")).unwrap();
        write("m.jsonl", "10\n");
        assert_eq!(numbers(&mut late), [9, 10]);
        assert_eq!(numbers(&mut late), <[u32; 0]>::default());
        assert_eq!((late.complaint(), lines.complaint()), (None, None));
    }
}
