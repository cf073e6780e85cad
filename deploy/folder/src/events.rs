//! `events.jsonl`: what happened in a run, and why. The coordinator and the launcher write it.

#[doc(hidden)]
pub mod fixture;

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tradewind_common::{RunId, run_files};
use tradewind_core::event::LEASE_RAN_OUT;

use crate::lines::Lines;
use crate::member::Member;

/// The events of a run, or of all runs of a fleet, as they are written down. Whoever reads them reads
/// them here: runs that share servers share the file, and their groups and ranks have the same numbers.
#[derive(Debug)]
pub struct Events {
    lines: Lines<Event>,
    run: Option<RunId>,
}

impl Events {
    /// What is in the folder of the servers and concerns the run.
    pub fn of(fleet: &Path, run: &RunId) -> Self {
        Self {
            run: Some(run.clone()),
            ..Self::of_fleet(fleet)
        }
    }

    /// What is in the folder of the servers, of all their runs.
    pub fn of_fleet(fleet: &Path) -> Self {
        Self {
            lines: Lines::new(fleet.join(run_files::EVENTS)),
            run: None,
        }
    }

    /// All there are, as far as they can be read; complaints are told.
    pub fn all(mut self) -> Vec<Event> {
        let events = self.fresh().unwrap_or_else(|error| {
            tradewind_process::complain!("{}: {error}", self.lines.path().display());
            Vec::new()
        });
        if let Some(complaint) = self.lines.complaint() {
            tradewind_process::complain!("{complaint}");
        }
        events
    }

    /// Those that are new since the last call.
    pub fn fresh(&mut self) -> io::Result<Vec<Event>> {
        let mut events = self.lines.fresh()?;
        if let Some(run) = &self.run {
            events.retain(|event| event.concerns(run));
        }
        Ok(events)
    }
}

/// A line of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Seconds since the Unix epoch.
    pub wall: f64,
    /// A word for programs.
    pub kind: String,
    /// A sentence for people.
    pub text: String,
    /// The run that it is about; `None` in what concerns all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The server that it is about, if it is about one.
    #[serde(default)]
    pub server: Option<u32>,
    /// The group, likewise.
    #[serde(default)]
    pub group: Option<u32>,
    /// The rank in that group, likewise.
    #[serde(default)]
    pub rank: Option<u32>,
    /// The shard, likewise.
    #[serde(default)]
    pub shard: Option<u32>,
    /// Which life of the server or rank; 0 where none is meant.
    #[serde(default)]
    pub life: u64,
}

/// The launcher has begun to end a run before its end.
pub const ENDING: &str = "run_ending";

/// Kinds of what happens in a run without faults, too, or that only follow from another one.
const ORDINARY: &[&str] = &[
    "server_up",
    "heir",
    "copy_added",
    "copy_full",
    "group_formed",
    "group_reforms",
    "group_left",
    "group_attached",
    "group_drained",
    "group_revoked",
    "certificate_revoked",
    "run_ready",
    ENDING,
    "run_removed",
    "snapshot",
    "coordinator",
];

/// Kinds of the coordinator's that are worth a line while the run goes on. What happens to processes
/// the launcher tells itself.
const SHOWN: &[&str] = &[
    "group_revoked",
    "certificate_revoked",
    "promoted",
    "orphaned",
    "restored",
    "damaged_snapshot",
    "updates_lost",
    "run_failed",
    "snapshot_failed",
    "disk",
];

/// Kinds that say how something was mended.
const MENDED: &[&str] = &[
    "process_restarted",
    "coordinator_moved",
    "promoted",
    "restored",
];

/// A rank that the coordinator counts no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostRank {
    /// Its group.
    pub group: u32,
    /// Its number in the group.
    pub rank: u32,
    /// It was silent for its lease; otherwise its connection broke, and it comes back by itself.
    pub silent: bool,
}

/// The rank that an event says is lost, if it does: in the file, or in the coordinator's status.
pub fn lost_rank(
    kind: &str,
    text: &str,
    group: Option<u32>,
    rank: Option<u32>,
) -> Option<LostRank> {
    let lost = LostRank {
        group: group?,
        rank: rank?,
        silent: text.contains(LEASE_RAN_OUT),
    };
    (kind == "rank_lost").then_some(lost)
}

impl Event {
    /// Whether it is a fault, or what was done about one.
    pub fn is_fault(&self) -> bool {
        !ORDINARY.contains(&self.kind.as_str())
    }

    /// Whether it is about the run, or about all that are on its servers.
    pub fn concerns(&self, run: &RunId) -> bool {
        self.run.as_ref().is_none_or(|about| about == run.as_str())
    }

    /// Whether it is worth a line while the run goes on.
    pub fn is_shown(&self) -> bool {
        SHOWN.contains(&self.kind.as_str())
    }

    /// Whether it says how something was mended.
    pub fn is_mended(&self) -> bool {
        MENDED.contains(&self.kind.as_str())
    }

    /// The rank that the coordinator has lost, if it has.
    pub fn lost_rank(&self) -> Option<LostRank> {
        lost_rank(&self.kind, &self.text, self.group, self.rank)
    }

    /// The same, of a rank of this run: its servers may have other runs as well, whose ranks are others.
    pub fn in_run(self, run: &RunId) -> Self {
        let run = self.rank.map(|_| run.to_string());
        Self { run, ..self }
    }

    /// Of a run as a whole.
    pub fn of_run(wall: f64, kind: &str, text: String, run: &RunId) -> Self {
        Self {
            wall,
            kind: kind.to_owned(),
            text,
            run: Some(run.to_string()),
            server: None,
            group: None,
            rank: None,
            shard: None,
            life: 0,
        }
    }

    /// Of a member.
    pub fn of(wall: f64, kind: &str, text: String, member: Member, life: u64) -> Self {
        let (server, group, rank) = match member {
            Member::Server(server) => (Some(server), None, None),
            Member::Rank { group, rank } => (None, Some(group), Some(rank)),
        };
        Self {
            wall,
            kind: kind.to_owned(),
            text,
            run: None,
            server,
            group,
            rank,
            shard: None,
            life,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::run;
    use super::*;

    /// A rank of one run has the same numbers as one of the other, and servers are everybody's.
    #[test]
    fn a_run_hears_of_its_own_ranks_and_of_all_servers() {
        let folder = tempfile::tempdir().unwrap();
        let rank = Member::Rank { group: 0, rank: 0 };
        let lost = |wall, name| {
            let text = format!("rank 0 of group 0 is lost: {LEASE_RAN_OUT}");
            Event::of(wall, "rank_lost", text, rank, 1).in_run(&run(name))
        };
        let up = |wall| {
            let text = "server 0 is up".to_owned();
            Event::of(wall, "server_up", text, Member::Server(0), 1).in_run(&run("a"))
        };
        let written = [lost(1.0, "a"), lost(2.0, "b"), up(3.0), lost(4.0, "a")];
        let lines = written
            .iter()
            .map(|event| serde_json::to_string(event).unwrap() + "\n");
        std::fs::write(
            folder.path().join("events.jsonl"),
            lines.collect::<String>(),
        )
        .unwrap();
        let check = |mut events: Events, want: &[f64]| {
            let found = events.fresh().unwrap();
            let walls: Vec<f64> = found.iter().map(|event| event.wall).collect();
            assert_eq!(walls, want);
        };
        check(Events::of(folder.path(), &run("a")), &[1.0, 3.0, 4.0]);
        check(Events::of(folder.path(), &run("b")), &[2.0, 3.0]);
        check(Events::of_fleet(folder.path()), &[1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn a_line_needs_no_more_than_it_says() {
        let line = r#"{"wall":1.5,"kind":"rank_lost","text":"rank 1 of group 0 is lost, and the group forms again: its lease ran out","group":0,"rank":1,"run":"r","number":7}"#;
        let event: Event = serde_json::from_str(line).unwrap();
        let lost = |silent| LostRank {
            group: 0,
            rank: 1,
            silent,
        };
        assert_eq!(event.lost_rank(), Some(lost(true)));
        assert!(event.is_fault() && !event.is_shown());
        let broke = Event {
            text: "its heartbeat connection broke".into(),
            ..event.clone()
        };
        assert_eq!(broke.lost_rank(), Some(lost(false)));
        let written = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&written).unwrap(), event);
    }
}
