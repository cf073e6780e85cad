//! Snapshots of a run: when one is taken, of whom, and when it is whole (rule 10).

mod manifest;

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use tradewind_common::data::Ledger;
use tradewind_common::spec::ConsistencySpec;
use tradewind_common::{Clock, ServerId, ShardId};

use super::{Group, GroupState, Phase, Run};
use crate::ReplyTo;
use crate::answer::{Answer, Refused};
use crate::event::{Event, EventKind};
use crate::order::{Capture, NotCaptured, ShardFile};
use crate::output::Output;
use crate::refusal::Refusal;

/// Callers that may wait for a snapshot.
pub const WAITING_MAX: usize = 64;

/// Pause after a snapshot that a run needs has failed.
const RETRY_MS: u64 = 3_000;

/// How often the last snapshot of a run is tried, pauses doubling up to [`PAUSE_DOUBLINGS`] times: for five
/// minutes. Until then the run cannot be removed.
const LAST_TRIES: u32 = 8;
const PAUSE_DOUBLINGS: u32 = 5;

/// How far ahead of the highest known clock a snapshot under `sync` is set at first, and at most.
const MARGIN: u64 = 2;
const MARGIN_MAX: u64 = 1 << 16;

/// A snapshot that is being taken.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Taking {
    number: u64,
    at_clock: Option<Clock>,
    margin: u64,
    files: BTreeMap<ShardId, ShardFile>,
    /// As it was when this began: what was finished then is in every block.
    ledger: Ledger,
    /// The manifest is being written.
    writing: bool,
    last: bool,
}

/// The snapshots of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Snapshots {
    #[serde(skip)]
    enabled: bool,
    /// The number that was given out last.
    number: u64,
    /// Those that are whole, oldest first; at most as many as are kept, and a few more while a
    /// shard is being restored.
    whole: VecDeque<u64>,
    taking: Option<Taking>,
    /// The groups are done, and what they have trained is not in a snapshot yet.
    last_wanted: bool,
    /// How often that one has failed.
    #[serde(skip)]
    last_failures: u32,
    #[serde(skip)]
    due_ms: u64,
    #[serde(skip)]
    retry_ms: u64,
    /// Who waits for the one that is being taken, and for the next one.
    #[serde(skip)]
    waiting: Vec<ReplyTo>,
    #[serde(skip)]
    waiting_next: Vec<ReplyTo>,
}

impl Snapshots {
    pub(super) fn new(enabled: bool) -> Self {
        Self {
            enabled,
            number: 0,
            whole: VecDeque::new(),
            taking: None,
            last_wanted: false,
            last_failures: 0,
            due_ms: 0,
            retry_ms: 0,
            waiting: Vec::new(),
            waiting_next: Vec::new(),
        }
    }

    /// Those of a run that goes on from the snapshot `newest`.
    pub(super) fn resumed(enabled: bool, newest: u64, numbers: &[u64]) -> Self {
        let mut whole: Vec<u64> = numbers.iter().copied().filter(|n| *n < newest).collect();
        whole.push(newest);
        whole.sort_unstable();
        whole.dedup();
        Self {
            number: numbers.iter().copied().fold(newest, u64::max),
            whole: whole.into(),
            ..Self::new(enabled)
        }
    }

    pub(super) fn newest(&self) -> Option<u64> {
        self.whole.back().copied()
    }

    /// Whether the snapshot that a run needs before it is ready is there, or none is taken.
    pub(super) fn first_taken(&self) -> bool {
        !self.enabled || !self.whole.is_empty()
    }

    pub(super) fn schedule(&mut self, now_ms: u64, interval_ms: u64) {
        self.due_ms = now_ms.saturating_add(interval_ms);
    }

    /// What the primary of a shard has to write.
    pub(super) fn capture(&self, shard: ShardId) -> Option<Capture> {
        let taking = self.taking.as_ref().filter(|taking| !taking.writing)?;
        (!taking.files.contains_key(&shard)).then_some(Capture {
            shard,
            number: taking.number,
            at_clock: taking.at_clock,
        })
    }
}

impl Run {
    /// Somebody asks for a snapshot, and is answered when one that begins now or later is whole.
    pub(crate) fn snapshot(&mut self, to: ReplyTo, now_ms: u64) {
        let waiting = self.snapshots.waiting.len() + self.snapshots.waiting_next.len();
        let refused = match &self.phase {
            _ if self.is_over() => self.over(),
            _ if !self.snapshots.enabled => Some(Refused::NoFolder),
            Phase::Ready if waiting >= WAITING_MAX => Some(Refused::TooManyWaiting(waiting)),
            Phase::Ready => None,
            _ => Some(Refusal::NotReady.into()),
        };
        match refused {
            Some(refused) => self.reply(to, Err(refused)),
            None => self.snapshots.waiting_next.push(to),
        }
        self.advance(now_ms);
    }

    /// A primary has written its part, or could not.
    pub(crate) fn captured(
        &mut self,
        server: ServerId,
        shard: ShardId,
        number: u64,
        result: Result<ShardFile, NotCaptured>,
        now_ms: u64,
    ) {
        let holders = self.holders.get(shard.0 as usize);
        let primary = holders.and_then(|holders| holders.primary);
        let taking = self.snapshots.taking.as_mut();
        let taking = taking.filter(|taking| taking.number == number && !taking.writing);
        let Some(taking) = taking.filter(|_| primary.is_some_and(|p| p.server == server)) else {
            return;
        };
        self.dirty = true;
        match result {
            Ok(file) => {
                taking.files.entry(shard).or_insert(file);
            }
            Err(NotCaptured::Passed(clock)) => {
                taking.margin = (taking.margin * 2).min(MARGIN_MAX);
                let margin = taking.margin;
                self.clock_seen = self.clock_seen.max(Some(clock));
                self.begin_snapshot(margin);
            }
            Err(NotCaptured::Failed(why)) => {
                let why = format!("server {server} could not write shard {shard}: {why}");
                self.give_up_snapshot(why, now_ms);
            }
        }
        self.advance(now_ms);
    }

    /// The manifest is on disk, or could not be written.
    pub(crate) fn written(&mut self, number: u64, result: Result<(), String>, now_ms: u64) {
        let taking = self.snapshots.taking.as_ref();
        let Some(taking) = taking.filter(|taking| taking.number == number && taking.writing) else {
            return;
        };
        match result {
            Ok(()) => {
                self.dirty = true;
                self.snapshots.last_wanted &= !taking.last;
                self.snapshots.taking = None;
                self.snapshots.whole.push_back(number);
                self.snapshots
                    .schedule(now_ms, self.spec.faults.snapshot_ms);
                let text = format!("snapshot {number} of run {} is whole", self.name);
                self.tell(Event::new(EventKind::Snapshot, text));
                let waiting = std::mem::take(&mut self.snapshots.waiting);
                self.reply_all(waiting, Ok(Answer::Snapshot { number }));
                self.prune();
            }
            Err(why) => {
                self.give_up_snapshot(format!("its manifest could not be written: {why}"), now_ms);
            }
        }
        self.advance(now_ms);
    }

    /// Begins a snapshot that is due, or ends one whose parts are all there.
    pub(super) fn advance_snapshots(&mut self, now_ms: u64) {
        let snapshots = &self.snapshots;
        if !snapshots.enabled {
            return;
        }
        if let Some(taking) = &snapshots.taking {
            if taking.files.len() == self.holders.len() && !taking.writing {
                self.write_manifest();
            } else if taking.at_clock.is_some() && snapshots.last_wanted && !self.trains() {
                // Nobody will reach that clock any more.
                self.begin_snapshot(MARGIN);
            }
            return;
        }
        let asked = !snapshots.waiting_next.is_empty();
        let interval_ms = self.spec.faults.snapshot_ms;
        let due = match self.phase {
            Phase::Creating(..) => self.created_everywhere() && snapshots.whole.is_empty(),
            Phase::Ready => {
                let interval = interval_ms > 0 && now_ms >= snapshots.due_ms && self.trains();
                asked || snapshots.last_wanted || interval
            }
            _ => false,
        };
        let possible = self.answers_everywhere() && self.restoring.is_empty();
        if due && possible && (asked || now_ms >= snapshots.retry_ms) {
            self.begin_snapshot(MARGIN);
        }
    }

    /// Whether a group is there that makes clocks advance.
    fn trains(&self) -> bool {
        self.groups.values().any(Group::holds_leases)
    }

    /// Begins a snapshot under a new number, instead of the one that is being taken.
    fn begin_snapshot(&mut self, margin: u64) {
        self.drop_taking();
        let training = self.phase == Phase::Ready && self.trains();
        let sync = self.spec.consistency == ConsistencySpec::Sync;
        let ahead = || Clock(self.clock_known().map_or(0, |clock| clock.0) + margin);
        let at_clock = (sync && training).then(ahead);
        let snapshots = &mut self.snapshots;
        snapshots.number += 1;
        snapshots.taking = Some(Taking {
            number: snapshots.number,
            at_clock,
            margin,
            files: BTreeMap::new(),
            ledger: self.ledger.all_returned(),
            writing: false,
            last: snapshots.last_wanted,
        });
        let asked = std::mem::take(&mut snapshots.waiting_next);
        snapshots.waiting.extend(asked);
        self.dirty = true;
        self.order_due = true;
    }

    /// The highest clock that is known of any group, pushed or about to be.
    fn clock_known(&self) -> Option<Clock> {
        let beats = self.groups.values().map(Group::clock).max();
        self.clock_seen.max(beats.filter(|clock| *clock > Clock(0)))
    }

    fn drop_taking(&mut self) {
        if let Some(taking) = self.snapshots.taking.take() {
            let (run, number) = (self.name.clone(), taking.number);
            self.outputs.push_back(Output::Delete { run, number });
            self.dirty = true;
        }
    }

    fn give_up_snapshot(&mut self, why: String, now_ms: u64) {
        let is_last = self.snapshots.taking.as_ref().is_some_and(|t| t.last);
        self.drop_taking();
        let doublings = self.snapshots.last_failures.min(PAUSE_DOUBLINGS);
        self.snapshots.retry_ms = now_ms.saturating_add(RETRY_MS << doublings);
        self.snapshots
            .schedule(now_ms, self.spec.faults.snapshot_ms);
        let text = format!("a snapshot of run {} was given up: {why}", self.name);
        self.tell(Event::new(EventKind::SnapshotFailed, text));
        if is_last {
            self.last_failed();
        }
        let waiting = std::mem::take(&mut self.snapshots.waiting);
        self.reply_all(waiting, Err(Refused::Snapshot(why)));
    }

    /// Values that cannot be written, such as NaN, would otherwise keep the run for ever.
    fn last_failed(&mut self) {
        self.snapshots.last_failures += 1;
        if self.snapshots.last_failures < LAST_TRIES {
            return;
        }
        self.snapshots.last_wanted = false;
        self.dirty = true;
        let kept = match self.newest_snapshot() {
            Some(number) => format!("what was trained since snapshot {number} is not kept"),
            None => "nothing of it is kept".to_owned(),
        };
        let text = format!(
            "the last snapshot of run {} is not tried again after {LAST_TRIES} times: {kept}",
            self.name
        );
        self.tell(Event::new(EventKind::SnapshotFailed, text));
    }

    /// A shard that has not written its part loses its primary. What that one may still write must
    /// not count: the snapshot is taken anew, under another number, as soon as it can be.
    pub(super) fn disturb_snapshots(&mut self) {
        self.drop_taking();
        let waiting = std::mem::take(&mut self.snapshots.waiting);
        self.snapshots.waiting_next.extend(waiting);
    }

    /// The run has failed: no snapshot of it is taken any more.
    pub(super) fn stop_snapshots(&mut self, refused: Refused) {
        self.drop_taking();
        self.snapshots.last_wanted = false;
        let mut waiting = std::mem::take(&mut self.snapshots.waiting);
        waiting.append(&mut self.snapshots.waiting_next);
        self.reply_all(waiting, Err(refused));
    }

    /// Whether nobody trains, and no snapshot is wanted or under way.
    pub(crate) fn is_idle(&self) -> bool {
        let snapshots = &self.snapshots;
        !self.has_groups() && !snapshots.last_wanted && snapshots.taking.is_none()
    }

    fn has_groups(&self) -> bool {
        let there = |group: &Group| group.state != GroupState::Left && !group.members.is_empty();
        self.groups.values().any(there)
    }

    /// A group has left: when nobody is there any more, what was trained is kept.
    pub(super) fn want_last_snapshot(&mut self) {
        if self.phase == Phase::Ready && !self.has_groups() {
            self.snapshots.last_wanted = self.snapshots.enabled;
            self.snapshots.last_failures = 0;
            self.dirty = true;
        }
    }

    /// Deletes the oldest snapshots, but none while a shard may be read from it.
    pub(super) fn prune(&mut self) {
        let kept = self.spec.faults.snapshots_kept as usize;
        while self.snapshots.whole.len() > kept && self.restoring.is_empty() {
            let oldest = self.snapshots.whole.pop_front().expect("there are some");
            let (run, number) = (self.name.clone(), oldest);
            self.outputs.push_back(Output::Delete { run, number });
            self.dirty = true;
        }
    }

    /// Goes on with what a former coordinator was at: captures are ordered again with the next
    /// order, a manifest is written again.
    pub(super) fn recover_snapshots(&mut self, enabled: bool, now_ms: u64) {
        self.snapshots.enabled = enabled;
        self.snapshots
            .schedule(now_ms, self.spec.faults.snapshot_ms);
        let manifest = self.manifest();
        self.outputs.extend(manifest.map(Output::Manifest));
    }
}
