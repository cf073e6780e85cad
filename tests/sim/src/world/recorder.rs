//! What has happened in a world: counts and times for its report, its trace, and what groups were
//! answered.

use std::hash::{DefaultHasher, Hash, Hasher};

use tradewind_common::{GroupId, placement::Placement};
use tradewind_core::event::{self, EventKind};
use tradewind_core::shard::{Push, Reply};

use super::event::{Address, Event};
use super::recording::Recording;
use crate::checker::Violation;
use crate::report::{Counts, Report};
use crate::scenario::Scenario;
use crate::seeds::TRACE_VARIABLE;

/// Writes down what happens.
#[derive(Debug)]
pub(super) struct Recorder {
    report: Report,
    trace: DefaultHasher,
    /// When anything was decided, or a clock ticked, last.
    progress_us: u64,
    /// What groups ask and are answered, where values are vector clocks.
    recording: Option<Recording>,
    /// Whether somebody replays the seed and wants to read along.
    tells: bool,
}

impl Recorder {
    pub(super) fn new(scenario: &Scenario, placement: &Placement) -> Self {
        Self {
            report: Report::default(),
            trace: DefaultHasher::new(),
            progress_us: 0,
            recording: scenario.clocks.then(|| Recording::new(scenario, placement)),
            tells: std::env::var_os(TRACE_VARIABLE).is_some(),
        }
    }

    pub(super) fn counts(&mut self) -> &mut Counts {
        &mut self.report.counts
    }

    /// Something happens; answers how much has.
    pub(super) fn happens(&mut self, event: &Event, now_us: u64) -> u64 {
        self.say(now_us, || format!("{event:?}"));
        now_us.hash(&mut self.trace);
        event.trace(&mut self.trace);
        self.report.events += 1;
        self.report.events
    }

    /// Tells whoever replays a seed what happens.
    pub(super) fn say(&self, now_us: u64, what: impl FnOnce() -> String) {
        if self.tells {
            eprintln!("{now_us:>9} {:.400}", what());
        }
    }

    /// Something was decided.
    pub(super) fn progresses(&mut self, now_us: u64) {
        self.progress_us = now_us;
    }

    pub(super) fn progress_us(&self) -> u64 {
        self.progress_us
    }

    /// A group has finished a clock.
    pub(super) fn ticked(&mut self, group: GroupId, now_us: u64) {
        self.progress_us = now_us;
        *self.report.clocks.entry(group).or_default() += 1;
    }

    /// A shard has held a block of a group back for so long.
    pub(super) fn waited(&mut self, group: GroupId, waited_us: u64) {
        let longest = self.report.waited_us.entry(group).or_default();
        *longest = (*longest).max(waited_us);
    }

    /// The run has failed where it may.
    pub(super) fn fails(&mut self, reason: String) {
        self.report.counts.stopped += 1;
        self.report.failed = Some(reason);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.report.failed.is_some()
    }

    /// A rank sends a frame on a stream.
    pub(super) fn sent(&mut self, of: (Address, u64), push: &Push, now_us: u64) {
        if let Some(recording) = &mut self.recording {
            recording.sent(of, push, now_us);
        }
    }

    /// A rank is answered on a stream.
    pub(super) fn answered(&mut self, of: (Address, u64), reply: &Reply, now_us: u64) {
        if let Some(recording) = &mut self.recording {
            recording.answered(of, reply, now_us);
        }
    }

    /// A coordinator tells people something.
    pub(super) fn told(&mut self, event: &event::Event) {
        let counts = &mut self.report.counts;
        counts.lost += event.lost_updates.unwrap_or(0);
        match event.kind {
            EventKind::CopyFull => counts.filled += 1,
            EventKind::Snapshot => counts.snapshots += 1,
            EventKind::SnapshotFailed => counts.snapshots_failed += 1,
            EventKind::DamagedSnapshot => counts.passed_over += 1,
            EventKind::GroupFormed => counts.reformed += 1,
            EventKind::GroupAttached => counts.attached += 1,
            EventKind::ServerUp
            | EventKind::ServerLost
            | EventKind::Heir
            | EventKind::Promoted
            | EventKind::CopyAdded
            | EventKind::CopyRemoved
            | EventKind::Orphaned
            | EventKind::Restored
            | EventKind::UpdatesLost
            | EventKind::RankLost
            | EventKind::GroupReforms
            | EventKind::GroupLeft
            | EventKind::GroupDrained
            | EventKind::GroupRevoked
            | EventKind::CertificateRevoked
            | EventKind::RunReady
            | EventKind::RunFailed
            | EventKind::RunStopped
            | EventKind::RunRemoved
            | EventKind::Coordinator
            | EventKind::Disk => {}
        }
        if let Some(recording) = &mut self.recording {
            recording.told(event);
        }
    }

    /// Judges what groups were answered.
    pub(super) fn check(&self) -> Result<(), Violation> {
        self.recording.as_ref().map_or(Ok(()), Recording::check)
    }

    /// What the run came to, at its end.
    pub(super) fn finish(self, end_us: u64) -> Report {
        Report {
            end_us,
            trace: self.trace.finish(),
            ..self.report
        }
    }
}
