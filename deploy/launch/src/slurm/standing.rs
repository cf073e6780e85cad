//! `tradewind slurm status`: the jobs of runs beside the runs themselves.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use tokio::time::timeout;
use tradewind_proto::v1::StatusReply;

use super::client::{self, Row};
use super::handing_in::jobs_of;
use super::jobs::{self, Job};
use tradewind_folder::found::FoundRun;
use tradewind_process::log::say;

/// What is typed behind `tradewind slurm status`.
#[derive(Debug, clap::Args)]
pub struct Status {
    /// The run's folder; all in runs/ that have jobs if not given.
    run: Option<PathBuf>,
}

/// How long a coordinator may take to answer.
const ANSWER: Duration = Duration::from_secs(3);

/// Prints the jobs, and what the run says of what they have.
pub async fn status(arguments: &Status) -> anyhow::Result<()> {
    let runs = match &arguments.run {
        Some(run) => vec![run.clone()],
        None => with_jobs(Path::new("runs")),
    };
    if runs.is_empty() {
        bail!("no run in runs/ has jobs; name a run's folder");
    }
    let mut failed = None;
    for run in runs {
        match of_run(&run).await {
            Ok(text) => say(text),
            Err(error) => {
                tradewind_process::complain!("{}: {error:#}", run.display());
                failed = Some(error);
            }
        }
    }
    match failed {
        Some(_) => bail!("not all runs could be looked at"),
        None => Ok(()),
    }
}

/// The table of a run.
async fn of_run(run: &Path) -> anyhow::Result<String> {
    let place = FoundRun::find(Some(run))?;
    let known = jobs_of(&place.path)?;
    let numbers: Vec<u32> = known.iter().map(|job| job.job).collect();
    let rows = client::queue(&numbers)?;
    let told = told(&place).await;
    let head = match (place.ended(), &told) {
        (Some(ended), _) => ended,
        (None, Some(told)) => head(told, place.is_fleet()),
        (None, None) => silent(&rows, place.is_fleet()),
    };
    let head = format!("{}: {head}", run.display());
    Ok(table(&head, told.as_ref(), &known, &rows))
}

/// What the coordinator says, if it answers.
async fn told(place: &FoundRun) -> Option<StatusReply> {
    if place.ended().is_some() {
        return None;
    }
    let access = place.access().ok()?;
    let there = place.coordinator().ok()??;
    let asked = async {
        match place.is_fleet() {
            true => access.fleet(&there.address).await,
            false => access.status(&there.address, &place.config.name).await,
        }
    };
    timeout(ANSWER, asked).await.ok()?.ok()
}

/// How a run or a fleet stands of which nobody tells, in a line.
fn silent(rows: &[Row], is_fleet: bool) -> String {
    if rows.iter().all(is_over) {
        return abandoned(is_fleet);
    }
    let mut left = rows.iter().filter(|row| !is_over(row));
    match left.all(|row| row.state == "PENDING") {
        true => "not begun, or to go on; its job waits".into(),
        false => "not ended; no coordinator answers".into(),
    }
}

/// What is said of a run or a fleet that nobody keeps.
pub fn abandoned(is_fleet: bool) -> String {
    let verb = if is_fleet { "serve" } else { "submit" };
    format!(
        "its jobs are over, and it has not ended; `tradewind slurm {verb} --resume` goes on from a snapshot"
    )
}

/// How a run or a fleet stands, in a line.
fn head(told: &StatusReply, is_fleet: bool) -> String {
    if is_fleet {
        return match told.runs.is_empty() {
            true => "a fleet without runs".into(),
            false => format!("a fleet with runs {}", told.runs.join(", ")),
        };
    }
    if !told.failure.is_empty() {
        return format!("failed: {}", told.failure);
    }
    let live = told.groups.iter().filter(|group| group.state == "live");
    let clock = told.groups.iter().map(|group| group.clock).max();
    format!(
        "{}, {} of {} groups live, clock {}",
        told.phase,
        live.count(),
        told.group_sizes.len(),
        clock.unwrap_or_default()
    )
}

/// The folders in `runs` that have jobs.
fn with_jobs(runs: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(runs).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for entry in entries {
        let run = entry.path();
        // One that cannot be read is told about when it is its turn.
        if run.is_dir() && jobs::read(&run).map_or(true, |jobs| !jobs.is_empty()) {
            found.push(run);
        }
    }
    found.sort();
    found
}

/// A job of a run that is not over.
pub(super) fn unfinished(run: &Path) -> anyhow::Result<Option<u32>> {
    let numbers: Vec<u32> = jobs_of(run)?.iter().map(|job| job.job).collect();
    let rows = client::queue(&numbers)?;
    Ok(rows.iter().find(|row| !is_over(row)).and_then(Row::number))
}

/// Whether Slurm will do nothing more for a job.
pub(super) fn is_over(row: &Row) -> bool {
    const OVER: [&str; 9] = [
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "TIMEOUT",
    ];
    OVER.contains(&row.state.as_str())
}

fn table(head: &str, told: Option<&StatusReply>, jobs: &[Job], rows: &[Row]) -> String {
    let mut text = format!("{head}\n");
    let mut line = |fields: [&str; 6]| {
        let [job, what, state, time, within, reason] = fields;
        let _ = writeln!(
            text,
            "  {job:10} {what:24} {state:12} {time:>12}  {within:20} {reason}"
        );
    };
    line([
        "job",
        "what",
        "state",
        "time",
        "in the run",
        "nodes, or why not",
    ]);
    for job in jobs {
        let own: Vec<&Row> = rows
            .iter()
            .filter(|row| row.number() == Some(job.job))
            .collect();
        if own.is_empty() {
            line([
                &job.job.to_string(),
                &what(&parts(job, None)),
                "gone",
                "",
                &within(&parts(job, None), told),
                "Slurm does not know it any more",
            ]);
        }
        for row in own {
            let component = row.job.split('+').nth(1).and_then(|n| n.parse().ok());
            let parts = parts(job, component);
            line([
                &row.job,
                &what(&parts),
                &row.state,
                &row.elapsed,
                &within(&parts, told),
                &row.reason,
            ]);
        }
    }
    text.pop();
    text
}

/// What a component of a job has.
#[derive(Clone, Copy, Debug)]
enum Part {
    Servers,
    Group(u32),
}

/// What a job, or a component of it, has.
fn parts(job: &Job, component: Option<usize>) -> Vec<Part> {
    let servers = job.servers.then_some(Part::Servers).into_iter();
    let groups = job.groups.iter().copied().map(Part::Group);
    let all: Vec<Part> = servers.chain(groups).collect();
    match component.and_then(|number| all.get(number)) {
        Some(one) => vec![*one],
        None => all,
    }
}

fn what(parts: &[Part]) -> String {
    let one = |part: &Part| match part {
        Part::Servers => "servers".to_owned(),
        Part::Group(number) => format!("group {number}"),
    };
    parts.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// What the run says of it.
fn within(parts: &[Part], told: Option<&StatusReply>) -> String {
    let Some(told) = told else {
        return "-".into();
    };
    let one = |part: &Part| match part {
        Part::Servers => {
            let up = told.servers.iter().filter(|server| server.alive).count();
            format!("{up} of {} up", told.servers.len())
        }
        Part::Group(number) => {
            let known = told.groups.iter().find(|group| group.group == *number);
            match known {
                Some(group) if group.draining && group.state != "left" => "leaves".to_owned(),
                Some(group) => format!("{}, clock {}", group.state, group.clock),
                None => "not yet there".to_owned(),
            }
        }
    };
    parts.iter().map(one).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use tradewind_proto::v1::{GroupStatus, ServerStatus};

    use super::*;

    #[test]
    fn a_run_of_which_nobody_tells_stands_as_its_jobs_do() {
        let row = |state: &str| Row {
            job: "12".into(),
            name: "r".into(),
            state: state.into(),
            elapsed: "1:02".into(),
            reason: String::new(),
        };
        let rows = |states: &[&str]| states.iter().map(|state| row(state)).collect::<Vec<_>>();
        let check = |states: &[&str], want: &str| {
            let told = silent(&rows(states), false);
            assert!(told.contains(want), "{states:?}: {told}");
        };
        check(&[], "`tradewind slurm submit --resume`");
        check(&["CANCELLED", "TIMEOUT"], "its jobs are over");
        check(&["CANCELLED", "PENDING"], "its job waits");
        check(&["RUNNING", "PENDING"], "no coordinator answers");
        assert!(silent(&[], true).contains("`tradewind slurm serve --resume`"));
    }

    #[test]
    fn components_stand_beside_what_they_have() {
        let jobs = [
            Job {
                job: 12,
                leads: true,
                servers: true,
                groups: vec![0, 1],
            },
            Job {
                job: 14,
                leads: false,
                servers: false,
                groups: vec![2],
            },
            Job {
                job: 15,
                leads: false,
                servers: false,
                groups: vec![3],
            },
        ];
        let row = |job: &str, state: &str, reason: &str| Row {
            job: job.into(),
            name: "r".into(),
            state: state.into(),
            elapsed: "1:02".into(),
            reason: reason.into(),
        };
        let rows = [
            row("12+0", "RUNNING", "n[1-2]"),
            row("12+2", "RUNNING", "n4"),
            row("14", "PENDING", "(Resources)"),
        ];
        let told = StatusReply {
            groups: vec![GroupStatus {
                group: 1,
                state: "live".into(),
                clock: 412,
                ..GroupStatus::default()
            }],
            servers: [true, true, false]
                .map(|alive| ServerStatus {
                    alive,
                    ..ServerStatus::default()
                })
                .into(),
            ..StatusReply::default()
        };
        let want = "\
runs/r: ready
  job        what                     state                time  in the run           nodes, or why not
  12+0       servers                  RUNNING              1:02  2 of 3 up            n[1-2]
  12+2       group 1                  RUNNING              1:02  live, clock 412      n4
  14         group 2                  PENDING              1:02  not yet there        (Resources)
  15         group 3                  gone                       not yet there        Slurm does not know it any more";
        assert_eq!(table("runs/r: ready", Some(&told), &jobs, &rows), want);
        let silent = table("runs/r: completed", None, &jobs, &rows);
        assert!(silent.contains("1:02  -                    n4"), "{silent}");
    }
}
