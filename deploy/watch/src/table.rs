//! How a run stands, in tables for people.

use std::fmt::Write;

use indicatif::HumanBytes;

use crate::device;
use crate::standing::{FleetRun, Group, Server, Shard, Standing};
use tradewind_launch::slurm::Queued;

/// Events that are shown.
const EVENTS_SHOWN: usize = 12;

/// Everything; `now` is seconds since the Unix epoch.
pub fn all(standing: &Standing, now: f64) -> String {
    let mut text = head(standing);
    let runs = standing.runs.iter().map(fleet_run).collect();
    part(&mut text, ["run", "state", "groups live", "clock"], runs);
    let groups = standing.groups.iter().map(group).collect();
    let header = ["group", "state", "ranks", "clock", "lag", "lease left"];
    part(&mut text, header, groups);
    // After the end they say nothing of the run that is of interest.
    let devices = standing.devices.iter();
    let devices = devices.filter(|_| standing.ended.is_none());
    for (number, device) in devices.enumerate() {
        let gap = if number == 0 { "\n" } else { "" };
        let _ = writeln!(text, "{gap}{}", device::line(device));
    }
    let servers = standing.servers.iter().map(server).collect();
    part(
        &mut text,
        ["server", "state", "life", "address", "lease left"],
        servers,
    );
    let shards = standing.shards.iter().map(shard).collect();
    part(
        &mut text,
        ["shard", "primary", "copies", "size", "versions"],
        shards,
    );
    for Shard {
        shard, waits_for, ..
    } in &standing.shards
    {
        for whom in waits_for {
            let _ = writeln!(text, "shard {shard} waits for {whom}");
        }
    }
    if !standing.is_fleet {
        text.push('\n');
    }
    match &standing.snapshot {
        _ if standing.is_fleet => {}
        Some(snapshot) => {
            let ago = snapshot
                .wall
                .map(|wall| format!(", {} ago", age(now - wall)));
            let ago = ago.unwrap_or_default();
            let _ = writeln!(text, "newest snapshot: {}{ago}", snapshot.number);
        }
        None => text += "newest snapshot: none yet\n",
    }
    if let Some(lost) = standing.lost {
        let lost = match lost.is_none() {
            true => "nothing".to_owned(),
            false => lost.to_string(),
        };
        let _ = writeln!(text, "lost by restoring: {lost}");
    }
    if !standing.events.is_empty() {
        text += "\nevents\n";
    }
    let old = standing.events.len().saturating_sub(EVENTS_SHOWN);
    for event in &standing.events[old..] {
        let ago = age(now - event.wall);
        // What happens on a fleet is told with the run that it is about.
        let run = event.run.as_ref().filter(|_| standing.is_fleet);
        let run = run.map(|run| format!("{run}: ")).unwrap_or_default();
        let _ = writeln!(text, "{ago:>10} ago  {run}{}", event.text);
    }
    text.truncate(text.trim_end().len());
    text
}

fn head(standing: &Standing) -> String {
    let Standing { run, folder, .. } = standing;
    let state = match (&standing.ended, &standing.phase, standing.abandoned) {
        (Some(ended), ..) => ended.clone(),
        (_, _, true) => "abandoned".into(),
        _ if standing.ending.is_some() => "ending".into(),
        (_, Some(phase), _) => stage(phase).into(),
        _ => "under way".into(),
    };
    let what = if standing.is_fleet { "fleet" } else { "run" };
    let mut text = format!("{what} {run}: {state}, in {folder}\n");
    if let Some(result) = &standing.result {
        let _ = writeln!(text, "{result}");
    }
    if let Some(failure) = &standing.failure {
        let _ = writeln!(text, "it has failed: {failure}");
    }
    let coordinator = &standing.coordinator;
    let which = match (coordinator.incarnation, &coordinator.address) {
        (Some(life), Some(address)) => format!("coordinator {life} at {address}"),
        (Some(life), None) => format!("coordinator {life}"),
        _ => "the coordinator".into(),
    };
    match (&coordinator.away, &standing.ended) {
        (None, _) => {
            let _ = writeln!(text, "{which}");
        }
        (Some(_), Some(_)) => {}
        (Some(_), None) if standing.ending.is_some() && !standing.abandoned => {
            let number = standing.ending.and_then(|ending| ending.snapshot);
            let snapshot = number.map(|number| format!("snapshot {number} is whole; "));
            let snapshot = snapshot.unwrap_or_default();
            let _ = writeln!(text, "{snapshot}its summary is being written");
        }
        (Some(away), None) => {
            let _ = writeln!(text, "{which} does not answer at the moment: {away}");
        }
    }
    for line in jobs(standing) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// What a phase of the coordinator's means for people.
fn stage(phase: &str) -> &str {
    match phase {
        "ready" => "training",
        other => other,
    }
}

/// Jobs that do not run. Of those that do the run itself tells more.
pub fn jobs(standing: &Standing) -> Vec<String> {
    let waits = standing.jobs.iter().filter(|job| job.state != "RUNNING");
    let told = waits.map(|Queued { job, state, reason }| format!("job {job} is {state} {reason}"));
    let unknown = standing.jobs_unknown.as_ref();
    let unknown = unknown.map(|why| format!("Slurm cannot be asked for its jobs: {why}"));
    told.chain(unknown).collect()
}

fn fleet_run(run: &FleetRun) -> [String; 4] {
    [
        run.run.clone(),
        match &run.failure {
            Some(failure) => format!("failed: {failure}"),
            None => stage(&run.phase).to_owned(),
        },
        format!("{} of {}", run.groups_live, run.groups),
        run.clock.to_string(),
    ]
}

fn group(group: &Group) -> [String; 6] {
    [
        group.group.to_string(),
        group.state.clone(),
        format!("{} of {}", group.ranks.len(), group.size),
        group.clock.to_string(),
        group.lag.to_string(),
        left(Some(group.lease_left_ms)),
    ]
}

fn server(server: &Server) -> [String; 5] {
    [
        server.server.to_string(),
        if server.alive { "up" } else { "gone" }.into(),
        server.incarnation.to_string(),
        server.address.clone(),
        left(server.lease_left_ms.filter(|_| server.alive)),
    ]
}

fn shard(shard: &Shard) -> [String; 5] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let copies = shard.copies.iter().map(|copy| {
        let filling = if copy.full { "" } else { " (filling)" };
        format!("{}{filling}", copy.server)
    });
    let copies: Vec<String> = copies.collect();
    let versions = shard.version_min.zip(shard.version_max);
    let versions = versions.map(|(min, max)| match min == max {
        true => min.to_string(),
        false => format!("{min} to {max}"),
    });
    [
        shard.shard.to_string(),
        or_dash(shard.primary.map(|server| server.to_string())),
        or_dash(Some(copies.join(", ")).filter(|text| !text.is_empty())),
        or_dash(shard.bytes.map(|bytes| HumanBytes(bytes).to_string())),
        or_dash(versions),
    ]
}

/// A table under the text, if it has rows.
fn part<const N: usize>(text: &mut String, header: [&str; N], rows: Vec<[String; N]>) {
    if !rows.is_empty() {
        text.push('\n');
        *text += &columns(header, rows);
    }
}

/// Rows in columns under a header, a line each.
pub fn columns<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> String {
    let all: Vec<[String; N]> = std::iter::once(header.map(str::to_owned))
        .chain(rows)
        .collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for row in &all {
        let cells = row.iter().zip(widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        let _ = writeln!(text, "{}", cells.join("   ").trim_end());
    }
    text
}

fn left(ms: Option<u64>) -> String {
    match ms {
        Some(ms) if ms > 0 => format!("{:.1} s", ms as f64 / 1000.0),
        _ => "-".into(),
    }
}

/// How long ago something was, in words.
pub fn age(seconds: f64) -> String {
    match seconds.max(0.0) as u64 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::super::standing::tests::standing;
    use super::super::standing::{Ending, Snapshot, Standing};
    use super::*;
    use tradewind_folder::events::Event;
    use tradewind_folder::events::fixture::event;

    #[test]
    fn everything_stands_in_columns() {
        let mut standing = standing();
        standing.snapshot = Some(Snapshot {
            number: 7,
            wall: Some(1000.0),
        });
        standing.events = vec![event(1010.0, "promoted", "server 1 answers for shard 0")];
        let want = "\
run r: training, in runs/r
coordinator 2

group   state       ranks    clock   lag   lease left
0       live        2 of 2   412     0     9.8 s
1       gathering   1 of 2   411     1     9.8 s

server   state   life   address          lease left
0        up      1      127.0.0.1:4000   9.1 s
1        up      1      127.0.0.1:4001   9.1 s
2        gone    1      127.0.0.1:4002   -

shard   primary   copies           size       versions
0       1         0, 2 (filling)   3.00 MiB   410 to 412
1       -         -                -          -
shard 1 waits for server 2, incarnation 1 (silent for 12 s)

newest snapshot: 7, 4 min ago
lost by restoring: 7 updates of blocks (40 samples)

events
     3 min ago  server 1 answers for shard 0";
        assert_eq!(all(&standing, 1240.0), want);
    }

    #[test]
    fn a_fleet_shows_its_runs() {
        let row = |run: &str, failure: Option<&str>| FleetRun {
            run: run.into(),
            phase: "ready".into(),
            failure: failure.map(str::to_owned),
            groups_live: 2,
            groups: 3,
            clock: 12,
        };
        let mut standing = Standing {
            run: "shared".into(),
            is_fleet: true,
            folder: "runs/shared".into(),
            runs: vec![row("a", None), row("b", Some("NaN"))],
            ..Standing::default()
        };
        let of_run = Event {
            run: Some("a".into()),
            ..event(10.0, "run_ready", "ready")
        };
        standing.events = vec![of_run, event(10.0, "server_up", "server 0 is up")];
        let want = "\
fleet shared: under way, in runs/shared
the coordinator

run   state         groups live   clock
a     training      2 of 3        12
b     failed: NaN   2 of 3        12

events
       5 s ago  a: ready
       5 s ago  server 0 is up";
        assert_eq!(all(&standing, 15.0), want);
    }

    #[test]
    fn a_job_that_waits_is_told_with_the_reason_and_one_that_runs_is_not() {
        let job = |job, state: &str, reason: &str| Queued {
            job,
            state: state.into(),
            reason: reason.into(),
        };
        let mut standing = Standing {
            run: "r".into(),
            folder: "runs/r".into(),
            jobs: vec![
                job(12, "RUNNING", "n[1-2]"),
                job(14, "PENDING", "(Resources)"),
            ],
            ..Standing::default()
        };
        let want = "run r: under way, in runs/r\nthe coordinator\njob 14 is PENDING (Resources)\n\nnewest snapshot: none yet";
        assert_eq!(all(&standing, 0.0), want);
        standing.jobs.clear();
        standing.jobs_unknown = Some("squeue: Socket timed out".into());
        let text = all(&standing, 0.0);
        assert!(text.contains("\nSlurm cannot be asked for its jobs: squeue: Socket timed out\n"));
    }

    #[test]
    fn without_the_coordinator_it_says_what_it_can() {
        let mut standing = Standing {
            run: "r".into(),
            folder: "runs/r".into(),
            ..Standing::default()
        };
        standing.coordinator.incarnation = Some(2);
        standing.coordinator.address = Some("127.0.0.1:4000".into());
        standing.coordinator.away = Some("cannot reach 127.0.0.1:4000".into());
        let text = all(&standing, 0.0);
        let want = "run r: under way, in runs/r\ncoordinator 2 at 127.0.0.1:4000 does not answer at the moment: cannot reach 127.0.0.1:4000\n\nnewest snapshot: none yet";
        assert_eq!(text, want);
        standing.ending = Some(Ending { snapshot: None });
        let want = "run r: ending, in runs/r\nits summary is being written\n";
        assert!(all(&standing, 0.0).starts_with(want));
        standing.ending = Some(Ending { snapshot: Some(3) });
        let want = "run r: ending, in runs/r\nsnapshot 3 is whole; its summary is being written\n";
        assert!(all(&standing, 0.0).starts_with(want));
        standing.abandoned = true;
        let text = all(&standing, 0.0);
        assert!(
            text.starts_with("run r: abandoned, in runs/r\ncoordinator 2 at"),
            "{text}"
        );
        standing.ended = Some("completed".into());
        standing.result = Some("RMSE 0.7 K".into());
        let want = "run r: completed, in runs/r\nRMSE 0.7 K\n\nnewest";
        assert!(all(&standing, 0.0).starts_with(want));
    }
}
