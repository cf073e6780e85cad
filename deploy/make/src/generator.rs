//! Generators apart: scripts in Python that make records of one length when they are asked, by simulation programs
//! that Tradewind neither ships nor links.
//!
//! ```text
//! python -I -c SCRIPT versions    one line on standard output: what decides what is made
//! python -I -c SCRIPT SEED        for each line on standard input so many records on standard output
//! ```
//!
//! A script ends when its standard input is closed or its records have no reader, as when this process is killed. One
//! that writes nothing for its patience hangs, and is ended.

use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tradewind_data::DataError;

use crate::folder::Told;

/// How much of the end of what a script says is told.
const TOLD_BYTES: usize = 2000;

/// How long a wait for bytes is at most. While this process is stopped, as by Ctrl-Z, its script is, too: of a pause
/// no more than this counts as silence.
const WAIT: Duration = Duration::from_secs(1);

/// A script, and what runs it.
pub(crate) struct Script<'a> {
    pub(crate) python: &'a Path,
    pub(crate) text: &'static str,
    /// What to do where the interpreter or its packages are missing.
    pub(crate) way_out: &'a str,
    /// How long it may write nothing, in whole seconds: many times what a record takes.
    pub(crate) patience: Duration,
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
        let script = self.spawn("versions");
        let mut script = script.map_err(|error| self.unusable(&error.to_string()))?;
        let mut text = String::new();
        let read = script.records.read_to_string(&mut text);
        let (status, said) = script.end(read.is_err());
        let reason = match (read, status) {
            (Err(error), _) | (_, Err(error)) => error.to_string(),
            (_, Ok(status)) if status.success() && !text.trim().is_empty() => {
                return Ok(text.trim().to_owned());
            }
            (_, Ok(status)) => status.to_string(),
        };
        Err(self.unusable(&format!("it does not run the generator ({reason}){said}")))
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
        let started = self.spawn(&seed.to_string());
        started.map_err(|error| DataError::of_system(self.python, &error))
    }

    fn spawn(&self, argument: &str) -> io::Result<Generator> {
        let mut command = self.command(argument);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        let stderr = child.stderr.take().expect("it is a pipe");
        let records = Patient {
            records: child.stdout.take().expect("it is a pipe"),
            patience: self.patience,
        };
        Ok(Generator {
            python: self.python.into(),
            requests: child.stdin.take(),
            records: BufReader::new(records),
            // Not supervised: it ends with the script, and who asks the script learns of that.
            said: Some(std::thread::spawn(move || end_of(stderr))),
            child,
        })
    }
}

/// What a script writes, as long as it writes.
struct Patient {
    records: ChildStdout,
    patience: Duration,
}

impl Read for Patient {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let wait = Timespec::try_from(WAIT).expect("it is a second");
        for _ in 0..self.patience.as_secs().max(1) {
            let mut waited = [PollFd::new(&self.records, PollFlags::IN)];
            if poll(&mut waited, Some(&wait))? > 0 {
                return self.records.read(into);
            }
        }
        let reason = format!("it has written nothing for {} s", self.patience.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, reason))
    }
}

/// A script that runs; dropped, it is ended.
pub(crate) struct Generator {
    python: PathBuf,
    child: Child,
    requests: Option<ChildStdin>,
    records: BufReader<Patient>,
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
        let hangs = error.kind() == io::ErrorKind::TimedOut;
        let ended = match hangs {
            true => "hangs and was ended",
            false => "has ended",
        };
        let (status, said) = self.end(hangs);
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        let reason = format!(
            "the generator {ended} ({status}; {error}) after {got} of {want} records of {request:?}{said}\nWhat is whole is \
             kept: the same command goes on from there"
        );
        DataError::file(&self.python, reason)
    }

    /// Waits for its end, which comes at once where it `hangs`, and gives what it said last.
    fn end(&mut self, hangs: bool) -> (io::Result<ExitStatus>, String) {
        self.requests = None;
        if hangs {
            // It may have ended by itself.
            let _ = self.child.kill();
        }
        let status = self.child.wait();
        let text = self.said.take().and_then(|said| said.join().ok());
        (status, said(&text.unwrap_or_default()))
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// What a script comes to that runs this, in Python's place, for a request of three records of two bytes.
    fn asked(text: &str) -> Result<Vec<Vec<u8>>, String> {
        let root = tempfile::tempdir().unwrap();
        let python = root.path().join("python");
        std::fs::write(&python, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
        let script = Script {
            python: &python,
            text: "",
            way_out: "fetch it",
            patience: Duration::from_secs(2),
        };
        script.versions().map_err(|error| error.to_string())?;
        let mut generator = script.start(7).unwrap();
        let records = generator.ask("signal 12 3", 3, 2, &mut |_| {});
        records.map_err(|error| error.to_string())
    }

    #[test]
    fn a_script_that_hangs_is_ended_and_named() {
        let versions = "test \"$4\" != versions || { echo 1.0; exit; }";
        let check = |text: &str, parts: &[&str]| {
            let told = asked(text).unwrap_err();
            for part in parts {
                assert!(told.contains(part), "{part:?} is not in {told:?}");
            }
        };
        check(
            &format!("{versions}\nread -r line; echo stuck >&2; printf aab; exec sleep 600"),
            &[
                "hangs and was ended (signal: 9",
                "it has written nothing for 2 s) after 1 of 3 records of \"signal 12 3\"",
                "stuck",
                "goes on from there",
            ],
        );
        check(
            "exec sleep 600",
            &["it has written nothing for 2 s", "fetch it"],
        );
        // One that is slow, but not silent for so long, does not.
        let slow = "read -r line; for each in 1 2 3; do sleep 1; printf aa; done";
        let records = asked(&format!("{versions}\n{slow}")).unwrap();
        assert_eq!(records, vec![b"aa".to_vec(); 3]);
    }
}
