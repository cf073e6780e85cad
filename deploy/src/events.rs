//! `events.jsonl`: what happened in a run, and why. The coordinator and the launcher write it.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tradewind_common::RunId;
use tradewind_server::core::event::LEASE_RAN_OUT;

use crate::launch::Member;
use crate::lines::Lines;

/// The events of a run, or of all runs of a fleet, as they are written down.
#[derive(Debug)]
pub(crate) struct Events {
    lines: Lines<Event>,
    run: Option<RunId>,
}

impl Events {
    /// What is in the folder of the servers and concerns the run; everything if none is named.
    pub(crate) fn new(fleet: &Path, run: Option<&RunId>) -> Self {
        Self {
            lines: Lines::new(fleet.join("events.jsonl")),
            run: run.cloned(),
        }
    }

    /// Those that are new since the last call.
    pub(crate) fn fresh(&mut self) -> io::Result<Vec<Event>> {
        let mut events = self.lines.fresh()?;
        if let Some(run) = &self.run {
            events.retain(|event| event.concerns(run));
        }
        Ok(events)
    }
}

/// A line of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Event {
    /// Seconds since the Unix epoch.
    pub(crate) wall: f64,
    /// A word for programs.
    pub(crate) kind: String,
    /// A sentence for people.
    pub(crate) text: String,
    /// The run that it is about; `None` in what concerns all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<String>,
    #[serde(default)]
    pub(crate) server: Option<u32>,
    #[serde(default)]
    pub(crate) group: Option<u32>,
    #[serde(default)]
    pub(crate) rank: Option<u32>,
    #[serde(default)]
    pub(crate) shard: Option<u32>,
    /// Which life of the server or rank; 0 where none is meant.
    #[serde(default)]
    pub(crate) life: u64,
}

/// Kinds of what happens in a run without faults, too, or that only follow from another one.
const ORDINARY: &[&str] = &[
    "server_up",
    "copy_added",
    "copy_full",
    "group_formed",
    "group_reforms",
    "group_left",
    "group_attached",
    "group_drained",
    "run_ready",
    "run_removed",
    "snapshot",
    "coordinator",
];

/// Kinds of the coordinator's that are worth a line while the run goes on. What happens to processes
/// the launcher tells itself.
const SHOWN: &[&str] = &[
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
pub(crate) struct LostRank {
    pub(crate) group: u32,
    pub(crate) rank: u32,
    /// It was silent for its lease; otherwise its connection broke, and it comes back by itself.
    pub(crate) silent: bool,
}

/// The rank that an event says is lost, if it does: in the file, or in the coordinator's status.
pub(crate) fn lost_rank(
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
    pub(crate) fn is_fault(&self) -> bool {
        !ORDINARY.contains(&self.kind.as_str())
    }

    /// Whether it is about the run, or about all that are on its servers.
    pub(crate) fn concerns(&self, run: &RunId) -> bool {
        self.run.as_ref().is_none_or(|about| about == run.as_str())
    }

    /// Whether it is worth a line while the run goes on.
    pub(crate) fn is_shown(&self) -> bool {
        SHOWN.contains(&self.kind.as_str())
    }

    /// Whether it says how something was mended.
    pub(crate) fn is_mended(&self) -> bool {
        MENDED.contains(&self.kind.as_str())
    }

    /// The rank that the coordinator has lost, if it has.
    pub(crate) fn lost_rank(&self) -> Option<LostRank> {
        lost_rank(&self.kind, &self.text, self.group, self.rank)
    }

    /// Of a member.
    pub(crate) fn of(wall: f64, kind: &str, text: String, member: Member, life: u64) -> Self {
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
pub(crate) mod tests {
    use super::*;

    /// An event about nobody.
    pub(crate) fn event(wall: f64, kind: &str, text: &str) -> Event {
        Event {
            group: None,
            rank: None,
            ..Event::of(
                wall,
                kind,
                text.into(),
                Member::Rank { group: 0, rank: 0 },
                0,
            )
        }
    }

    #[test]
    fn a_line_needs_no_more_than_it_says() {
        let line = r#"{"wall":1.5,"kind":"rank_lost","text":"rank 1 of group 0 is lost, and the group forms anew: its lease ran out","group":0,"rank":1,"run":"r","number":7}"#;
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
