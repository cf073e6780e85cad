//! Children of the check. All processes of a part are in its process group, so that they end with
//! it, however it ends.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_current_process_group, kill_process, kill_process_group};
use tradewind_client::stopwatch::Stopwatch;

use crate::report::End;

/// Pause between two looks at something that is waited for.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// Bytes of a log's end that are quoted.
const QUOTED_MAX: usize = 600;

/// Waits until `look` finds something; `None` after `limit`.
pub(crate) fn wait<T>(
    limit: Duration,
    mut look: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<Option<T>> {
    let watch = Stopwatch::start();
    loop {
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
        if watch.elapsed() > limit {
            return Ok(None);
        }
        thread::sleep(LOOK);
    }
}

/// A child whose output goes to a log. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it; its standard output and errors go to `NAME.log` in `folder`.
    pub(crate) fn start(name: &str, mut command: Command, folder: &Path) -> anyhow::Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file = OpenOptions::new().create(true).append(true).open(&log);
        let file = file.with_context(|| format!("cannot write {}", log.display()))?;
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);
        let child = command.spawn();
        Ok(Self {
            child: child.with_context(|| format!("{name} does not start"))?,
            name: name.to_owned(),
            log,
        })
    }

    /// How it ended, if it has.
    pub(crate) fn poll(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        if self.poll()?.is_none()
            && let Some(pid) = Pid::from_raw(self.child.id() as i32)
        {
            kill_process(pid, signal)?;
        }
        Ok(())
    }

    /// An error if it has ended, unless in order.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        match self.poll()? {
            Some(status) if !status.success() => bail!("{}", self.words(status)),
            _ => Ok(()),
        }
    }

    /// Waits for its end; an error if it is not in order or takes longer than `limit`.
    pub(crate) fn finish(self, limit: Duration) -> anyhow::Result<()> {
        self.finish_while(limit, || ())
    }

    /// The same, with a look at something again and again.
    pub(crate) fn finish_while(
        mut self,
        limit: Duration,
        mut look: impl FnMut(),
    ) -> anyhow::Result<()> {
        let mut poll = || {
            look();
            self.poll()
        };
        match wait(limit, &mut poll)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("{}", self.words(status)),
            None => bail!(
                "{} has not ended after {} s; it last said: {}",
                self.name,
                limit.as_secs(),
                tail(&self.log)
            ),
        }
    }

    fn words(&self, status: ExitStatus) -> String {
        format!("{} {}: {}", self.name, how(status), tail(&self.log))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The end of a log, on one line.
pub(crate) fn tail(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let end = &bytes[bytes.len().saturating_sub(QUOTED_MAX)..];
    let text = String::from_utf8_lossy(end);
    let lines: Vec<&str> = text.trim().lines().collect();
    if lines.is_empty() {
        return "nothing".into();
    }
    lines.join(" / ")
}

fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => format!("ended: {status}"),
    }
}

/// Runs a part in a process group of its own, for `limit` at most; returns what it told. Whatever it
/// leaves behind is killed.
pub(crate) fn run_part(mut command: Command, limit: Duration) -> anyhow::Result<(String, End)> {
    let mut child = command
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let group = Pid::from_child(&child);
    // While it is open the part knows that somebody waits for it.
    let _alive: Option<ChildStdin> = child.stdin.take();
    let output = child.stdout.take().context("it is piped")?;
    let told = listen(output);
    let ended = wait(limit, || Ok(child.try_wait()?))?;
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait();
    let text = told.join().unwrap_or_default();
    let end = match ended {
        None => End::OutOfTime,
        Some(status) if status.success() => End::Ended,
        // It has said why on its standard error, which is the check's, unless it crashed.
        Some(status) => End::Failed(format!("its process {}", how(status))),
    };
    Ok((text, end))
}

fn listen(mut output: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = output.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// In a part: ends all its processes when the check that has started it is gone.
pub(crate) fn end_with_the_check() {
    thread::spawn(|| {
        let mut input = std::io::stdin();
        let mut byte = [0];
        while matches!(input.read(&mut byte), Ok(read) if read > 0) {}
        let _ = kill_current_process_group(Signal::KILL);
    });
}

/// A command that runs this very program.
pub(crate) fn own(arguments: &[String]) -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("cannot tell where the check lies")?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

/// A file for a child to write its result into, JSON, and to be read once it has ended.
pub(crate) fn read_json(path: &Path) -> anyhow::Result<serde_json::Value> {
    let file = File::open(path).with_context(|| format!("no result in {}", path.display()))?;
    Ok(serde_json::from_reader(file)?)
}
