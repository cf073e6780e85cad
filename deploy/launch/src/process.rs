//! One child process: its role, its log, and its end.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{
    Pid, Signal, getppid, kill_process, kill_process_group, set_parent_process_death_signal,
};

use tradewind_folder::member::{Ended, Role};

use super::LOOK;

/// How long processes may take to end before they are killed.
const GRACE: Duration = Duration::from_secs(5);

/// Lines of a log that are shown when its process has died.
const TAIL_LINES: usize = 12;

/// A log that has become longer begins anew; what it had is kept beside it, once.
const LOG_BYTES: u64 = 16 << 20;

/// Bytes of a log that are looked at for them.
const TAIL_BYTES: u64 = 8192;

/// A child that dies with the launcher.
#[derive(Debug)]
pub struct Process {
    role: Role,
    child: Child,
    log: PathBuf,
    /// What is before it in the log is a previous process's.
    log_begin: u64,
    ended: Option<Ended>,
}

impl Process {
    /// Starts it, its output going to `log`. Must be called on a thread that lives as long as the
    /// launcher: the kernel kills the child when that thread ends.
    pub fn start(
        role: Role,
        program: &Path,
        arguments: &[impl AsRef<OsStr>],
        environment: &BTreeMap<&'static str, String>,
        log: &Path,
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments).envs(environment);
        Self::start_command(role, command, log)
    }

    /// As [`start`](Self::start), with a command that knows its program, arguments and environment.
    pub fn start_command(role: Role, mut command: Command, log: &Path) -> anyhow::Result<Self> {
        let output = open(log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?);
        Self::spawn(role, command, output, log)
    }

    /// As [`start`](Self::start), but its input and its standard output are the caller's; its
    /// errors go to `log`.
    pub fn start_piped(
        role: Role,
        program: &Path,
        arguments: &[impl AsRef<OsStr>],
        environment: &BTreeMap<&'static str, String>,
        log: &Path,
    ) -> anyhow::Result<(Self, ChildStdin, ChildStdout)> {
        let mut command = Command::new(program);
        command.args(arguments).envs(environment);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Self::spawn(role, command, open(log)?, log)?;
        let input = process.child.stdin.take().expect("it is piped");
        let output = process.child.stdout.take().expect("it is piped");
        Ok((process, input, output))
    }

    fn spawn(role: Role, mut command: Command, errors: File, log: &Path) -> anyhow::Result<Self> {
        let log_begin = errors.metadata().map_or(0, |metadata| metadata.len());
        command
            .stderr(errors)
            // Ctrl-C reaches the launcher only, which then ends the others in order.
            .process_group(0);
        let launcher = rustix::process::getpid();
        // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                set_parent_process_death_signal(Some(Signal::KILL))?;
                // The launcher may have died before the call above.
                if getppid() == Some(launcher) {
                    Ok(())
                } else {
                    Err(std::io::Error::from_raw_os_error(
                        rustix::io::Errno::SRCH.raw_os_error(),
                    ))
                }
            });
        }
        let program = command.get_program().to_owned();
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self {
            role,
            child,
            log: log.to_owned(),
            log_begin,
            ended: None,
        })
    }

    /// Its number, as the kernel counts.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it is in its run.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Where its output goes.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// How it ended, if it has.
    pub fn poll(&mut self) -> anyhow::Result<Option<Ended>> {
        if self.ended.is_none()
            && let Some(status) = self.child.try_wait()?
        {
            self.kill_group();
            self.ended = Some(Ended {
                role: self.role,
                success: status.success(),
                status: status.code(),
                how: describe(status),
                log: self.log.clone(),
                tail: tail(&self.log, self.log_begin),
            });
        }
        if self.ended.is_none() && trim(&self.log, LOG_BYTES)? {
            self.log_begin = 0;
        }
        Ok(self.ended.clone())
    }

    /// Ends it without asking, with what it has started; it is reaped by the next [`poll`](Self::poll) that
    /// finds it ended.
    pub fn kill(&self) {
        if self.ended.is_none() {
            self.kill_group();
        }
    }

    /// A script may have started others, which are of no use without it.
    fn kill_group(&self) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    /// Asks it to end, and does not wait.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Asks all to end, waits a while, and kills what is left.
    pub fn stop_all(mut processes: Vec<&mut Self>) {
        let mut waited = Duration::ZERO;
        let running = |p: &mut &mut Self| matches!(p.poll(), Ok(None));
        processes.retain_mut(running);
        for process in &processes {
            process.signal(Signal::TERM);
        }
        while waited < GRACE && !processes.is_empty() {
            std::thread::sleep(LOOK);
            waited += LOOK;
            processes.retain_mut(running);
        }
        for process in &mut processes {
            process.kill();
            let _ = process.child.wait();
        }
    }

    fn signal(&self, signal: Signal) {
        if self.ended.is_some() {
            return;
        }
        // It may have ended a moment ago; it is not reaped yet, so the number is still its own.
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process(pid, signal);
        }
    }
}

/// For appending: what a previous process of the same name said stays.
fn open(log: &Path) -> anyhow::Result<File> {
    let opened = OpenOptions::new().create(true).append(true).open(log);
    opened.with_context(|| format!("cannot write {}", log.display()))
}

/// Copies a log that has become too long to `LOG.1` and empties it; whether it did. Its process has the
/// file open and goes on at its new end. A line that is written in the moment between is lost; if the
/// launcher dies there, none is.
fn trim(log: &Path, most: u64) -> std::io::Result<bool> {
    match std::fs::metadata(log) {
        Ok(is) if is.len() > most => {}
        _ => return Ok(false),
    }
    let beside = |more: &str| {
        let mut name = log.as_os_str().to_owned();
        name.push(more);
        PathBuf::from(name)
    };
    let mut file = OpenOptions::new().read(true).write(true).open(log)?;
    let mut copy = File::create(beside(".1.part"))?;
    std::io::copy(&mut file, &mut copy)?;
    std::fs::rename(beside(".1.part"), beside(".1"))?;
    // What came while it was renamed.
    std::io::copy(&mut file, &mut copy)?;
    file.set_len(0)?;
    Ok(true)
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(0), _) => "ended".into(),
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => format!("ended: {status}"),
    }
}

/// The last lines of what was written into a log since it had `begin` bytes.
fn tail(log: &Path, begin: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(
            length.saturating_sub(TAIL_BYTES).max(begin),
        ))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// The process has its log open all the time, and writes at its end.
    #[test]
    fn a_log_that_grows_begins_anew_and_the_last_part_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("server-0.log");
        let mut output = open(&log).unwrap();
        let mut most = 0;
        for line in 0..1_000 {
            writeln!(output, "line {line}").unwrap();
            trim(&log, 1_000).unwrap();
            let read = |name| std::fs::read_to_string(folder.path().join(name));
            let kept = read("server-0.log.1").unwrap_or_default() + &read("server-0.log").unwrap();
            most = most.max(kept.len());
            let lines: Vec<&str> = kept.lines().collect();
            let first = line + 1 - lines.len();
            let want: Vec<String> = (first..=line).map(|line| format!("line {line}")).collect();
            assert_eq!(lines, want, "all that are left follow each other");
        }
        assert!(most <= 2 * 1_020, "{most}");
        assert!(!folder.path().join("server-0.log.1.part").exists());
    }

    #[test]
    fn how_a_process_ended_is_told_though_its_log_began_anew() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        std::fs::write(&log, "previous\n").unwrap();
        let script = format!(
            "yes {} | head -c {}; sleep 0.3; echo the last words >&2; exit 3",
            "x".repeat(99),
            LOG_BYTES + 1_000
        );
        let (program, arguments) = (Path::new("sh"), ["-c".to_owned(), script]);
        let role = Role::Bench("x", 0);
        let mut process =
            Process::start(role, program, &arguments, &BTreeMap::new(), &log).unwrap();
        let ended = loop {
            if let Some(ended) = process.poll().unwrap() {
                break ended;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(ended.to_string().ends_with("the last words"), "{ended}");
        assert!(std::fs::metadata(&log).unwrap().len() < LOG_BYTES);
    }

    #[test]
    fn what_a_process_has_started_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & echo $!"]);
        let role = Role::Bench("x", 0);
        let mut process = Process::start_command(role, command, &log).unwrap();
        while process.poll().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let started = std::fs::read_to_string(&log).unwrap();
        let state = format!("/proc/{}/stat", started.trim());
        // Whoever inherits it may take a while to reap it.
        let runs = || std::fs::read_to_string(&state).is_ok_and(|stat| !stat.contains(") Z "));
        while runs() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
