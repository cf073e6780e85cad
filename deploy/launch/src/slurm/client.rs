//! Slurm's own commands.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, bail};

use super::printed::{number, rows, with_script};

pub(super) use super::printed::Row;

/// What squeue is asked for: fields of [`Row`].
const FORMAT: &str = "%i|%j|%T|%M|%R";

/// Hands a script in; the job's number. sbatch holds `input` open, and reads nothing of it.
pub(super) fn submit(script: &Path, options: &[String], input: File) -> anyhow::Result<u32> {
    let mut arguments = vec!["--parsable".to_owned()];
    arguments.extend_from_slice(options);
    arguments.push(script.display().to_string());
    let output = call_with("sbatch", &arguments, input.into())?;
    let told = told("sbatch", output)?;
    number(&told).with_context(|| format!("sbatch told no job number: {}", told.trim()))
}

/// What sbatch thinks of a script, without handing it in.
pub(super) fn test(script: &Path) -> anyhow::Result<String> {
    let arguments = ["--test-only".to_owned(), script.display().to_string()];
    let output = call("sbatch", &arguments)?;
    // It speaks on standard error, well or not.
    let told = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if !output.status.success() {
        bail!("sbatch would not take it: {told}");
    }
    Ok(told)
}

/// Those of these jobs that Slurm still knows, with their components.
pub(super) fn queue(jobs: &[u32]) -> anyhow::Result<Vec<Row>> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let list: Vec<String> = jobs.iter().map(u32::to_string).collect();
    let jobs = format!("--jobs={}", list.join(","));
    let output = squeue(FORMAT, &jobs)?;
    let error = String::from_utf8_lossy(&output.stderr);
    // Of a job that ended long ago it knows nothing any more.
    if !output.status.success() && !error.contains("Invalid job id") {
        bail!("squeue: {}", error.trim());
    }
    Ok(rows(&String::from_utf8_lossy(&output.stdout)))
}

/// The jobs of this user that came of a script, in the order of their numbers.
pub(super) fn of_script(script: &Path) -> anyhow::Result<Vec<Row>> {
    let output = squeue(&format!("{FORMAT}|%o"), "--me")?;
    let script = script.display().to_string();
    Ok(with_script(&told("squeue", output)?, &script))
}

fn squeue(format: &str, which: &str) -> anyhow::Result<Output> {
    let arguments = [
        "--noheader".to_owned(),
        "--states=all".to_owned(),
        "--sort=i".to_owned(),
        format!("--format={format}"),
        which.to_owned(),
    ];
    call("squeue", &arguments)
}

/// Ends jobs: their processes are told to end, and killed after Slurm's `KillWait`.
pub(super) fn cancel(jobs: &[u32]) -> anyhow::Result<()> {
    let jobs: Vec<String> = jobs.iter().map(u32::to_string).collect();
    run("scancel", &jobs).map(|_| ())
}

/// Sends a signal to what the batch script of a job has become, and to nobody else.
pub(super) fn signal_batch(job: u32, signal: &str) -> anyhow::Result<()> {
    signal_with("--batch", job, signal)
}

/// Sends a signal to all tasks of a job's steps, and not to its batch script.
pub(super) fn signal_steps(job: u32, signal: &str) -> anyhow::Result<()> {
    signal_with("--quiet", job, signal)
}

fn signal_with(option: &str, job: u32, signal: &str) -> anyhow::Result<()> {
    let arguments = [
        option.to_owned(),
        format!("--signal={signal}"),
        job.to_string(),
    ];
    run("scancel", &arguments).map(|_| ())
}

/// Puts a job back into the queue, all of its components.
pub(super) fn requeue(job: u32) -> anyhow::Result<()> {
    let output = call("scontrol", &["requeue".to_owned(), job.to_string()])?;
    let error = String::from_utf8_lossy(&output.stderr);
    // It complains of components that are there already.
    if !output.status.success() && !error.contains("pending execution") {
        bail!("scontrol: {}", error.trim());
    }
    Ok(())
}

fn run(program: &str, arguments: &[impl AsRef<OsStr>]) -> anyhow::Result<String> {
    told(program, call(program, arguments)?)
}

/// What a program has printed, if it has succeeded.
fn told(program: &str, output: Output) -> anyhow::Result<String> {
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("{program}: {}", error.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn call(program: &str, arguments: &[impl AsRef<OsStr>]) -> anyhow::Result<Output> {
    call_with(program, arguments, Stdio::null())
}

fn call_with(
    program: &str,
    arguments: &[impl AsRef<OsStr>],
    input: Stdio,
) -> anyhow::Result<Output> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(input);
    command.output().with_context(|| {
        format!("cannot run {program}; is this a machine with Slurm, and are its commands in PATH?")
    })
}
