//! Snapshots of a run: when one is taken, of whom, and when it is whole (rule 10).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tradewind_common::data::Ledger;
use tradewind_common::{Clock, ShardId};

use super::outbox::Outbox;
use crate::ReplyTo;
use crate::answer::{Answer, Refused};
use crate::event::{Event, EventKind};
use crate::order::{Capture, NotCaptured, ShardFile};
use crate::refusal::Refusal;
use crate::shared;

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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Taking {
    number: u64,
    at_clock: Option<Clock>,
    margin: u64,
    files: BTreeMap<ShardId, ShardFile>,
    /// As it was when this began: what was finished then is in every block.
    #[serde(with = "shared")]
    ledger: Arc<Ledger>,
    /// The manifest is being written.
    writing: bool,
    last: bool,
}

impl Taking {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Every block is as after the clocks before this one; `None` where blocks may differ.
    pub(super) fn at_clock(&self) -> Option<Clock> {
        self.at_clock
    }

    /// The parts that are there, by shard.
    pub(super) fn files(&self) -> impl Iterator<Item = &ShardFile> {
        self.files.values()
    }

    /// Which training data were out.
    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

/// How far a run has come, for whether a snapshot of it can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its values are being created; whether every holder has all.
    Creating {
        /// Every holder has.
        complete: bool,
    },
    /// It may train.
    Ready,
    /// There is nothing to be taken.
    Other,
}

/// What a snapshot depends on: where the run stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    pub(super) stage: Stage,
    /// Whether every block of a snapshot has to be as after the same clock.
    pub(super) sync: bool,
    /// How often one is taken; 0 for only when somebody asks.
    pub(super) interval_ms: u64,
    /// Whether a group is there that makes clocks advance.
    pub(super) trains: bool,
    /// Whether every shard has a primary, and none is being restored.
    pub(super) answered: bool,
    /// How many shards there are.
    pub(super) shards: usize,
    /// The highest clock that is known of any group, pushed or about to be.
    pub(super) clock: Option<Clock>,
    pub(super) now_ms: u64,
}

/// What a server's word of its part of a snapshot has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// It is there.
    Taken,
    /// A block had decided this clock already; the snapshot is to be set so far ahead of it.
    Passed {
        /// The clock.
        clock: Clock,
        /// How far ahead.
        margin: u64,
    },
    /// It could not be written, and why.
    Failed(String),
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
    /// What was written down last.
    #[serde(skip)]
    known: Option<SnapshotsChange>,
}

/// What has changed in the snapshots of a run since it was written down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SnapshotsChange {
    number: u64,
    whole: VecDeque<u64>,
    /// Without its ledger, if it had begun before.
    taking: Option<Taking>,
    begun: bool,
    last_wanted: bool,
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
            known: None,
        }
    }

    /// What has changed since this was last asked, if anything has.
    pub(super) fn take_change(&mut self) -> Option<SnapshotsChange> {
        let mut change = SnapshotsChange {
            number: self.number,
            whole: self.whole.clone(),
            taking: self.taking.clone(),
            begun: false,
            last_wanted: self.last_wanted,
        };
        if self.known.as_ref() == Some(&change) {
            return None;
        }
        let number = |of: &Option<Taking>| of.as_ref().map(Taking::number);
        let known = self.known.replace(change.clone());
        change.begun = number(&change.taking) != known.and_then(|known| number(&known.taking));
        if let Some(taking) = change.taking.as_mut().filter(|_| !change.begun) {
            taking.ledger = Arc::new(Ledger::new(taking.ledger.chunking()));
        }
        Some(change)
    }

    /// Makes a change, in what was written down before.
    pub(super) fn change(&mut self, mut change: SnapshotsChange) {
        if let (false, Some(now), Some(before)) = (change.begun, &mut change.taking, &self.taking) {
            now.ledger = before.ledger.clone();
        }
        (self.number, self.whole, self.taking) = (change.number, change.whole, change.taking);
        self.last_wanted = change.last_wanted;
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

    /// Goes on with what a former coordinator was at: captures are ordered again with the next order,
    /// and a manifest is to be written again ([`written_out`](Self::written_out)).
    pub(super) fn recover(&mut self, enabled: bool, interval_ms: u64, now_ms: u64) {
        self.enabled = enabled;
        self.schedule(interval_ms, now_ms);
    }

    pub(super) fn newest(&self) -> Option<u64> {
        self.whole.back().copied()
    }

    /// Whether the snapshot that a run needs before it is ready is there, or none is taken.
    pub(super) fn first_taken(&self) -> bool {
        !self.enabled || !self.whole.is_empty()
    }

    /// Whether none is wanted or under way.
    pub(super) fn is_idle(&self) -> bool {
        !self.last_wanted && self.taking.is_none()
    }

    /// The next one is due after the run's interval.
    pub(super) fn schedule(&mut self, interval_ms: u64, now_ms: u64) {
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

    /// The snapshot whose parts are all there, and whose manifest is being written.
    pub(super) fn written_out(&self) -> Option<&Taking> {
        self.taking.as_ref().filter(|taking| taking.writing)
    }

    /// Somebody asks for a snapshot of a run in this stage; answered when one that begins now or later is
    /// whole.
    pub(super) fn ask(&mut self, to: ReplyTo, stage: Stage, out: &mut Outbox) {
        let waiting = self.waiting.len() + self.waiting_next.len();
        let refused = match stage {
            _ if !self.enabled => Refused::NoFolder,
            Stage::Ready if waiting >= WAITING_MAX => Refused::TooManyWaiting(waiting),
            Stage::Ready => return self.waiting_next.push(to),
            Stage::Creating { .. } | Stage::Other => Refusal::NotReady.into(),
        };
        out.reply(to, Err(refused));
    }

    /// A primary has written its part, or could not; `None` if nobody waits for that.
    pub(super) fn part(
        &mut self,
        shard: ShardId,
        number: u64,
        result: Result<ShardFile, NotCaptured>,
        out: &mut Outbox,
    ) -> Option<Part> {
        let taking = self.taking.as_mut();
        let taking = taking.filter(|taking| taking.number == number && !taking.writing)?;
        out.touch();
        Some(match result {
            Ok(file) => {
                taking.files.entry(shard).or_insert(file);
                Part::Taken
            }
            Err(NotCaptured::Passed(clock)) => {
                taking.margin = (taking.margin * 2).min(MARGIN_MAX);
                let margin = taking.margin;
                Part::Passed { clock, margin }
            }
            Err(NotCaptured::Failed(why)) => Part::Failed(why),
        })
    }

    /// The manifest is on disk, or could not be written. Whether that was waited for.
    pub(super) fn manifest_is_written(
        &mut self,
        number: u64,
        result: Result<(), String>,
        situation: Situation,
        out: &mut Outbox,
    ) -> bool {
        let Some(taking) = self.written_out().filter(|t| t.number == number) else {
            return false;
        };
        let last = taking.last;
        match result {
            Ok(()) => {
                out.touch();
                self.last_wanted &= !last;
                self.taking = None;
                self.whole.push_back(number);
                self.schedule(situation.interval_ms, situation.now_ms);
                let text = format!("snapshot {number} of run {} is whole", out.run());
                out.tell(Event::new(EventKind::Snapshot, text));
                let waiting = std::mem::take(&mut self.waiting);
                out.reply_all(waiting, Ok(Answer::Snapshot { number }));
            }
            Err(why) => {
                let why = format!("its manifest could not be written: {why}");
                self.give_up(why, situation, out);
            }
        }
        true
    }

    /// Begins a snapshot that is due, or ends one whose parts are all there: whether its manifest is to
    /// be written.
    pub(super) fn advance(
        &mut self,
        situation: Situation,
        ledger: &Ledger,
        out: &mut Outbox,
    ) -> bool {
        if !self.enabled {
            return false;
        }
        if let Some(taking) = &mut self.taking {
            if taking.files.len() == situation.shards && !taking.writing {
                taking.writing = true;
                out.touch();
                return true;
            }
            if taking.at_clock.is_some() && self.last_wanted && !situation.trains {
                // Nobody will reach that clock any more.
                self.begin(MARGIN, situation, ledger, out);
            }
            return false;
        }
        let asked = !self.waiting_next.is_empty();
        let now_ms = situation.now_ms;
        let due = match situation.stage {
            Stage::Creating { complete } => complete && self.whole.is_empty(),
            Stage::Ready => {
                let interval =
                    situation.interval_ms > 0 && now_ms >= self.due_ms && situation.trains;
                asked || self.last_wanted || interval
            }
            Stage::Other => false,
        };
        if due && situation.answered && (asked || now_ms >= self.retry_ms) {
            self.begin(MARGIN, situation, ledger, out);
        }
        false
    }

    /// Begins a snapshot under a new number, instead of the one that is being taken.
    pub(super) fn begin(
        &mut self,
        margin: u64,
        situation: Situation,
        ledger: &Ledger,
        out: &mut Outbox,
    ) {
        self.drop_taking(out);
        let training = situation.stage == Stage::Ready && situation.trains;
        let ahead = || Clock(situation.clock.map_or(0, |clock| clock.0) + margin);
        let at_clock = (situation.sync && training).then(ahead);
        self.number += 1;
        self.taking = Some(Taking {
            number: self.number,
            at_clock,
            margin,
            files: BTreeMap::new(),
            ledger: Arc::new(ledger.all_returned()),
            writing: false,
            last: self.last_wanted,
        });
        let asked = std::mem::take(&mut self.waiting_next);
        self.waiting.extend(asked);
        out.order();
    }

    fn drop_taking(&mut self, out: &mut Outbox) {
        if let Some(taking) = self.taking.take() {
            out.delete_snapshot(taking.number);
        }
    }

    /// The one that is being taken cannot be: whoever waits for it is told why.
    pub(super) fn give_up(&mut self, why: String, situation: Situation, out: &mut Outbox) {
        let is_last = self.taking.as_ref().is_some_and(|taking| taking.last);
        self.drop_taking(out);
        let doublings = self.last_failures.min(PAUSE_DOUBLINGS);
        self.retry_ms = situation.now_ms.saturating_add(RETRY_MS << doublings);
        self.schedule(situation.interval_ms, situation.now_ms);
        let text = format!("a snapshot of run {} was given up: {why}", out.run());
        out.tell(Event::new(EventKind::SnapshotFailed, text));
        if is_last {
            self.last_failed(out);
        }
        let waiting = std::mem::take(&mut self.waiting);
        out.reply_all(waiting, Err(Refused::Snapshot(why)));
    }

    /// Values that cannot be written, such as NaN, would otherwise keep the run for ever.
    fn last_failed(&mut self, out: &mut Outbox) {
        self.last_failures += 1;
        if self.last_failures < LAST_TRIES {
            return;
        }
        self.last_wanted = false;
        out.touch();
        let kept = match self.newest() {
            Some(number) => format!("what was trained since snapshot {number} is not kept"),
            None => "nothing of it is kept".to_owned(),
        };
        let run = out.run();
        let text = format!(
            "the last snapshot of run {run} is not tried again after {LAST_TRIES} times: {kept}"
        );
        out.tell(Event::new(EventKind::SnapshotFailed, text));
    }

    /// A shard that has not written its part loses its primary. What that one may still write must
    /// not count: the snapshot is taken anew, under another number, as soon as it can be.
    pub(super) fn disturb(&mut self, out: &mut Outbox) {
        self.drop_taking(out);
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_next.extend(waiting);
    }

    /// The run has failed: no snapshot of it is taken any more.
    pub(super) fn stop(&mut self, refused: Refused, out: &mut Outbox) {
        self.drop_taking(out);
        self.last_wanted = false;
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.append(&mut self.waiting_next);
        out.reply_all(waiting, Err(refused));
    }

    /// Nobody trains any more: what was trained is kept.
    pub(super) fn want_last(&mut self, out: &mut Outbox) {
        self.last_wanted = self.enabled;
        self.last_failures = 0;
        out.touch();
    }

    /// Deletes the oldest snapshots beyond those that are kept.
    pub(super) fn prune(&mut self, kept: u32, out: &mut Outbox) {
        while self.whole.len() > kept as usize {
            let oldest = self.whole.pop_front().expect("there are some");
            out.delete_snapshot(oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use tradewind_common::data::Chunking;
    use tradewind_common::{Generation, RunId};

    use super::*;
    use crate::output::Output;

    const SHARD: ShardId = ShardId(0);

    /// The snapshots of a synchronous run of one shard that trains and has come to clock 5.
    struct Bench {
        ledger: Ledger,
        out: Outbox,
        snapshots: Snapshots,
    }

    impl Bench {
        fn new() -> Self {
            let chunking = Chunking {
                epoch_samples: 50,
                chunk_samples: 10,
                sets: 1,
            };
            Self {
                ledger: Ledger::new(chunking),
                out: Outbox::new(RunId::new("r").unwrap(), Generation(1)),
                snapshots: Snapshots::new(true),
            }
        }

        fn situation() -> Situation {
            Situation {
                stage: Stage::Ready,
                sync: true,
                interval_ms: 0,
                trains: true,
                answered: true,
                shards: 1,
                clock: Some(Clock(5)),
                now_ms: 1_000,
            }
        }

        fn ask(&mut self, to: ReplyTo) {
            self.snapshots.ask(to, Stage::Ready, &mut self.out);
        }

        fn begin(&mut self) {
            let situation = Self::situation();
            self.snapshots
                .begin(MARGIN, situation, &self.ledger, &mut self.out);
        }

        fn advance(&mut self) -> bool {
            let situation = Self::situation();
            self.snapshots
                .advance(situation, &self.ledger, &mut self.out)
        }

        fn part(&mut self, number: u64, result: Result<ShardFile, NotCaptured>) -> Option<Part> {
            self.snapshots.part(SHARD, number, result, &mut self.out)
        }

        fn written(&mut self, number: u64) -> bool {
            let situation = Self::situation();
            self.snapshots
                .manifest_is_written(number, Ok(()), situation, &mut self.out)
        }

        fn outputs(&mut self) -> Vec<Output> {
            self.out.take_changes().outputs.into()
        }
    }

    fn file() -> ShardFile {
        ShardFile {
            name: "shard-0".into(),
            bytes: 1,
            digest: String::new(),
            versions: (1, 1),
            samples: (1, 1),
            clock_next: Clock(7),
        }
    }

    #[test]
    fn one_that_is_asked_for_is_answered_when_it_is_whole() {
        let mut bench = Bench::new();
        bench.ask(ReplyTo(3));
        assert!(!bench.advance());
        let capture = bench.snapshots.capture(SHARD).unwrap();
        assert_eq!((capture.number, capture.at_clock), (1, Some(Clock(7))));
        assert_eq!(bench.part(1, Ok(file())), Some(Part::Taken));
        assert!(bench.advance(), "its parts are all there");
        assert!(bench.written(1));
        let answer = Output::Reply(ReplyTo(3), Ok(Answer::Snapshot { number: 1 }));
        assert!(bench.outputs().contains(&answer));
        assert_eq!(bench.snapshots.newest(), Some(1));
    }

    #[test]
    fn a_part_of_another_snapshot_changes_nothing() {
        let mut bench = Bench::new();
        bench.begin();
        bench.out.take_changes();
        assert_eq!(bench.part(2, Ok(file())), None);
        assert!(!bench.written(1));
        assert!(!bench.out.take_changes().dirty);
    }

    #[test]
    fn a_clock_that_was_passed_doubles_the_margin() {
        let mut bench = Bench::new();
        bench.begin();
        let passed = Part::Passed {
            clock: Clock(9),
            margin: 2 * MARGIN,
        };
        let part = bench.part(1, Err(NotCaptured::Passed(Clock(9))));
        assert_eq!(part, Some(passed));
    }

    #[test]
    fn one_that_loses_a_primary_is_deleted_and_taken_anew() {
        let mut bench = Bench::new();
        bench.ask(ReplyTo(1));
        bench.advance();
        bench.snapshots.disturb(&mut bench.out);
        let run = RunId::new("r").unwrap();
        assert_eq!(bench.outputs(), [Output::Delete { run, number: 1 }]);
        bench.advance();
        assert_eq!(bench.snapshots.capture(SHARD).unwrap().number, 2);
    }

    #[test]
    fn the_last_one_is_not_tried_for_ever() {
        let mut bench = Bench::new();
        bench.snapshots.want_last(&mut bench.out);
        for _ in 0..LAST_TRIES {
            assert!(!bench.snapshots.is_idle());
            bench.begin();
            let situation = Bench::situation();
            bench
                .snapshots
                .give_up("NaN".into(), situation, &mut bench.out);
        }
        assert!(bench.snapshots.is_idle());
    }
}
