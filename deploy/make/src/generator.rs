//! Generators apart: scripts in Python that make records of one length when they are asked, by simulation programs
//! that Tradewind neither ships nor links.
//!
//! ```text
//! python -I -c SCRIPT versions    one line on standard output: what decides what is made
//! python -I -c SCRIPT SEED        for each line on standard input so many records on standard output
//! ```
//!
//! A script ends when its standard input is closed or its records have no reader, as when this process is killed.

use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;

use tradewind_data::DataError;

use crate::folder::Told;

/// How much of the end of what a script says is told.
const TOLD_BYTES: usize = 2000;

/// A script, and what runs it.
pub(crate) struct Script<'a> {
    pub(crate) python: &'a Path,
    pub(crate) text: &'static str,
    /// What to do where the interpreter or its packages are missing.
    pub(crate) way_out: &'a str,
}

impl Script<'_> {
    fn command(&self, argument: &str) -> Command {
        let mut command = Command::new(self.python);
        command.args(["-I", "-c", self.text, argument]);
        // A script is one of as many as there are cores.
        command.envs([("OMP_NUM_THREADS", "1"), ("OPENBLAS_NUM_THREADS", "1")]);
        command
    }

    /// The programs that decide what is made, and their versions.
    ///
    /// # Errors
    /// An interpreter that is missing, or has not the packages.
    pub(crate) fn versions(&self) -> Result<String, DataError> {
        let output = self.command("versions").output();
        let output = output.map_err(|error| self.unusable(&error.to_string()))?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() || text.is_empty() {
            let said = said(&output.stderr);
            let reason = format!("it does not run the generator ({}){said}", output.status);
            return Err(self.unusable(&reason));
        }
        Ok(text)
    }

    fn unusable(&self, reason: &str) -> DataError {
        DataError::Asked(format!(
            "{}: {reason}\n{}",
            self.python.display(),
            self.way_out
        ))
    }

    /// Starts it with a seed.
    ///
    /// # Errors
    /// An interpreter that cannot be started.
    pub(crate) fn start(&self, seed: u64) -> Result<Generator, DataError> {
        let mut command = self.command(&seed.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.stderr(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| DataError::of_system(self.python, &error))?;
        let stderr = child.stderr.take().expect("it is a pipe");
        Ok(Generator {
            python: self.python.into(),
            requests: child.stdin.take(),
            records: BufReader::new(child.stdout.take().expect("it is a pipe")),
            // Not supervised: it ends with the script, and who asks the script learns of that.
            said: Some(std::thread::spawn(move || end_of(stderr))),
            child,
        })
    }
}

/// A script that runs; dropped, it is ended.
pub(crate) struct Generator {
    python: PathBuf,
    child: Child,
    requests: Option<ChildStdin>,
    records: BufReader<ChildStdout>,
    said: Option<JoinHandle<Vec<u8>>>,
}

impl Generator {
    /// So many records of so many bytes each, for a request; tells of each when it is there.
    ///
    /// # Errors
    /// A script that has ended, or ends before it has written them.
    pub(crate) fn ask(
        &mut self,
        request: &str,
        records: usize,
        bytes: usize,
        told: Told<'_>,
    ) -> Result<Vec<Vec<u8>>, DataError> {
        let mut read = Vec::with_capacity(records);
        match self.exchange(request, records, bytes, (&mut read, told)) {
            Ok(()) => Ok(read),
            Err(error) => Err(self.ended(request, records, read.len(), &error)),
        }
    }

    fn exchange(
        &mut self,
        request: &str,
        records: usize,
        bytes: usize,
        (read, told): (&mut Vec<Vec<u8>>, Told<'_>),
    ) -> io::Result<()> {
        let requests = self.requests.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(requests, "{request}")?;
        while read.len() < records {
            let mut record = vec![0; bytes];
            self.records.read_exact(&mut record)?;
            read.push(record);
            told(1);
        }
        Ok(())
    }

    fn ended(&mut self, request: &str, want: usize, got: usize, error: &io::Error) -> DataError {
        self.requests = None;
        let status = self.child.wait();
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        let text = self.said.take().and_then(|said| said.join().ok());
        let reason = format!(
            "the generator has ended ({status}; {error}) after {got} of {want} records of {request:?}{}\nWhat is whole is \
             kept: the same command goes on from there",
            said(&text.unwrap_or_default())
        );
        DataError::file(&self.python, reason)
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads until the script ends, so that it never waits; gives the last bytes.
fn end_of(mut stderr: ChildStderr) -> Vec<u8> {
    let (mut kept, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(bytes @ 1..) = stderr.read(&mut piece) {
        kept.extend_from_slice(&piece[..bytes]);
        kept.drain(..kept.len().saturating_sub(TOLD_BYTES));
    }
    kept
}

fn said(stderr: &[u8]) -> String {
    let end = &stderr[stderr.len().saturating_sub(TOLD_BYTES)..];
    match String::from_utf8_lossy(end).trim() {
        "" => ", without a word".into(),
        text => format!("; it said last:\n{text}"),
    }
}
