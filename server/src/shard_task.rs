//! One task owns one shard: mailbox, clock, replies, the ways to its copies, its part of snapshots.

mod message;
mod recorder;
mod replication;
#[cfg(test)]
pub(crate) mod tests;
mod traces;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tradewind_common::holders::Role;
use tradewind_common::milestone::Milestone;
use tradewind_common::{Clock, GroupId, RunId, ShardId};
use tradewind_process::{supervise, supervise_blocking};

use crate::clock;
use crate::milestone;
use crate::snapshot;
use crate::surroundings::{ReportToSend, Surroundings};
use crate::telemetry;
use crate::turn::Turn;
pub use message::{Answers, Message, Moved, Ordered, ShardStatus};
pub use recorder::Recorder;
use replication::Copies;
pub use replication::Copy;
use traces::Traces;
use tradewind_core::ReplyTo;
use tradewind_core::log::{Confirm, Record};
use tradewind_core::mark::Lacking;
use tradewind_core::mark::Mark;
use tradewind_core::order::{Capture, NotCaptured, ShardFile, ShardReport};
use tradewind_core::refusal::Refusal;
use tradewind_core::shard::{Action, Answer, Output, Reply, Shard};
use tradewind_core::state::BlockState;
use tradewind_core::view::{Acknowledge, Behind, OrderedView};

/// Messages that wait for a shard; senders wait when it is full.
pub const MAILBOX_MAX: usize = 1024;

/// Milestones of a shard that are being written: each holds a copy of its values.
const MILESTONES_MAX: usize = 4;

/// The way to a shard.
#[derive(Clone, Debug)]
pub struct ShardHandle(mpsc::Sender<Message>);

/// The shard's task has ended: the server is shutting down, or does not hold it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is shutting down, or holds the shard no longer")]
pub struct Gone;

impl ShardHandle {
    /// Starts the task.
    pub fn spawn(shard: Shard, name: (RunId, ShardId), surroundings: Surroundings) -> Self {
        let (mailbox, inbox) = mpsc::channel(MAILBOX_MAX);
        let copies = Copies::new(
            name.clone(),
            surroundings.credentials.clone(),
            mailbox.downgrade(),
        );
        let now_us = surroundings.origin.now_us();
        let traces = telemetry::tracer().map(|tracer| {
            let blocks = shard.blocks().count();
            Traces::new(tracer.clone(), &name, surroundings.server, now_us, blocks)
        });
        let task = ShardTask {
            shard,
            name,
            copies,
            streams: HashMap::new(),
            capture: None,
            captured: mpsc::channel(1),
            milestones: Arc::new(Semaphore::new(MILESTONES_MAX)),
            recorder: None,
            restored: false,
            surroundings,
            moved: Moved::default(),
            traces,
        };
        let (run, shard) = &task.name;
        // It ends when the shard is closed, or nobody can speak to it any more.
        supervise(format!("shard {shard} of run {run}"), task.run(inbox));
        Self(mailbox)
    }

    /// Puts a message into the mailbox, waiting while it is full.
    pub async fn send(&self, message: Message) -> Result<(), Gone> {
        self.0.send(message).await.map_err(|_| Gone)
    }

    async fn ask<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> Message) -> Result<T, Gone> {
        let (reply, answer) = oneshot::channel();
        self.send(message(reply)).await?;
        answer.await.map_err(|_| Gone)
    }

    /// Has the shard follow an order. One that goes on from a view that is not here changes nothing.
    pub async fn follow(&self, ordered: Ordered) -> Result<Result<Acknowledge, Behind>, Gone> {
        self.ask(|reply| Message::Order(Box::new(ordered), reply))
            .await
    }

    /// Hands a record of the primary's log over.
    pub async fn record(&self, record: Record) -> Result<Result<Confirm, Refusal>, Gone> {
        self.ask(|reply| Message::Record(Box::new(record), reply))
            .await
    }

    /// Asks for counters and versions; with `digest` for that of the values, too.
    pub async fn status(&self, digest: bool) -> Result<ShardStatus, Gone> {
        self.ask(|reply| Message::Status(digest, reply)).await
    }
}

/// A part of a snapshot as it came out.
type Part = (u64, Result<ShardFile, NotCaptured>);

/// The part of a snapshot that was asked for last.
struct CaptureState {
    number: u64,
    /// What came of it; `None` while it is under way.
    result: Option<Result<ShardFile, NotCaptured>>,
}

struct ShardTask {
    shard: Shard,
    name: (RunId, ShardId),
    surroundings: Surroundings,
    copies: Copies,
    streams: HashMap<ReplyTo, Answers>,
    capture: Option<CaptureState>,
    captured: (mpsc::Sender<Part>, mpsc::Receiver<Part>),
    /// Milestones that may be begun to be written.
    milestones: Arc<Semaphore>,
    /// Where is recorded what leaves, before it leaves.
    recorder: Option<Recorder>,
    /// Values were restored, and are not primary's yet.
    restored: bool,
    moved: Moved,
    /// What is told of steps, where somebody asks for it.
    traces: Option<Traces>,
}

impl ShardTask {
    async fn run(mut self, mut inbox: mpsc::Receiver<Message>) {
        let mut turn = Turn::default();
        loop {
            let moved = self.moved.bytes();
            let timeout = self.until_timeout();
            let message = tokio::select! {
                message = inbox.recv() => message,
                () = timeout => {
                    self.shard.handle_timeout(self.surroundings.origin.now_us());
                    self.drain();
                    continue;
                }
                Some((number, result)) = self.captured.1.recv() => {
                    self.finish_capture(number, result);
                    continue;
                }
            };
            match message {
                None => return,
                Some(Message::Close) => {
                    self.shard.close();
                    self.drain();
                    return;
                }
                Some(message) => self.handle(message),
            }
            self.drain();
            turn.spend(self.moved.bytes() - moved).await;
            // Counters are published between bursts, not once a frame.
            if inbox.is_empty() {
                let (run, shard) = &self.name;
                telemetry::shard(run, *shard, self.shard.counters(), self.shard.momentum());
            }
        }
    }

    /// Ends when the shard wants to be asked again; never, if it does not.
    fn until_timeout(&self) -> impl Future<Output = ()> + use<> {
        let at_us = self.shard.poll_timeout();
        let left_us = at_us.map(|at_us| at_us.saturating_sub(self.surroundings.origin.now_us()));
        let left = left_us.map(Duration::from_micros);
        async move {
            match left {
                Some(left) => tokio::time::sleep(left).await,
                None => std::future::pending().await,
            }
        }
    }

    fn handle(&mut self, message: Message) {
        let now_us = self.surroundings.origin.now_us();
        match message {
            Message::Open(stream, answers) => {
                self.streams.retain(|_, answers| !answers.is_closed());
                self.streams.insert(stream, answers);
            }
            Message::Push(push, bytes, to) => {
                if matches!(push.action, Action::Contribute(_)) {
                    self.moved.pushed += bytes as u64;
                }
                if let Some(traces) = &mut self.traces {
                    traces.pushed(&push, bytes, to, now_us);
                }
                self.shard.handle_push(push, to, now_us);
            }
            Message::Malformed(refusal, to) => self.shard.handle_malformed(refusal, to),
            Message::Order(ordered, reply) => {
                let _ = reply.send(self.order(*ordered, now_us));
            }
            Message::Record(record, reply) => {
                let entry = self.traces.is_some().then(|| record.entry.clone());
                let taken = self.shard.handle_record(*record);
                if let (Some(traces), Some(entry), Ok(_)) = (&mut self.traces, entry, &taken) {
                    let until_us = self.surroundings.origin.now_us();
                    traces.recorded(&entry, (now_us, until_us));
                }
                let _ = reply.send(taken);
            }
            Message::Linked(copy, since, records) => {
                if self.copies.linked(copy, since, records) {
                    self.shard.handle_link(copy);
                }
            }
            Message::Confirm(confirm) => self.shard.handle_confirm(confirm),
            // Who has gone meanwhile need not be waited for by those that exchange.
            Message::Status(_, answer) if answer.is_closed() => {}
            Message::Status(digest, answer) => {
                let _ = answer.send(self.status(digest));
            }
            Message::Close => unreachable!("handled by the caller"),
        }
    }

    fn order(&mut self, ordered: Ordered, now_us: u64) -> Result<Acknowledge, Behind> {
        if let OrderedView::Since(change) = &ordered.view {
            change.check(self.shard.generation())?;
        }
        if let Some((states, lineage)) = ordered.restored {
            self.shard.restore(states, lineage);
            self.restored = true;
        }
        let seen = self
            .shard
            .handle_ordered(ordered.view, &ordered.holders, now_us)?;
        self.recorder = ordered.recorder.or(self.recorder.take());
        if matches!(self.shard.role(), Some(Role::Primary(_))) && std::mem::take(&mut self.restored)
        {
            self.mark_all();
        }
        self.copies.follow(ordered.copies);
        for capture in ordered.captures {
            self.begin_capture(capture);
        }
        Ok(seen)
    }

    /// What was restored is what there is of this lineage: who restores it again counts from here.
    fn mark_all(&mut self) {
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        let lineage = self.shard.lineage();
        for (id, block) in self.shard.blocks() {
            let mark = Mark {
                lineage,
                version: block.version(),
                samples: block.samples_applied(),
            };
            recorder.note(id, mark);
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.shard.poll_output() {
            match output {
                // A stream that has gone asks again on another one.
                Output::Reply { to, result } => {
                    if let Some(answers) = self.streams.get(&to) {
                        if let (Some(recorder), Ok(reply)) = (&mut self.recorder, &result) {
                            recorder.note(reply.block, mark(reply));
                        }
                        if let (Some(traces), Ok(reply)) = (&mut self.traces, &result) {
                            let now_us = self.surroundings.origin.now_us();
                            traces.answered(to, reply, now_us);
                        }
                        if let Ok(reply) = &result
                            && matches!(reply.answer, Answer::Decided(..))
                        {
                            self.moved.pulled += reply.fresh.bytes() as u64;
                        }
                        let _ = answers.send(Box::new(result));
                    }
                }
                Output::Record { to, record } => self.copies.send(to, record),
                Output::Report(seen) => {
                    let (run, shard) = self.name.clone();
                    let report = ShardReport {
                        shard,
                        seen,
                        restored: None,
                        damaged: Vec::new(),
                        lost: Lacking::default(),
                        failure: None,
                    };
                    self.report(ReportToSend::Shard(run, report));
                }
                Output::Captured { number, result } => self.write_capture(number, result),
                Output::Milestone { samples, states } => self.write_milestone(samples, states),
            }
        }
    }

    fn begin_capture(&mut self, capture: Capture) {
        match &self.capture {
            Some(known) if known.number == capture.number => {
                if let Some(result) = known.result.clone() {
                    self.finish_capture(capture.number, result);
                }
            }
            Some(known) if known.number > capture.number => {}
            _ => {
                let number = capture.number;
                self.capture = Some(CaptureState {
                    number,
                    result: None,
                });
                self.shard.handle_capture(number, capture.at_clock);
            }
        }
    }

    /// Writes beside the exchanges: the states are shared with the blocks until those change.
    fn write_capture(&mut self, number: u64, captured: Result<Vec<BlockState>, NotCaptured>) {
        let states = match captured {
            Ok(states) => states,
            Err(not) => return self.finish_capture(number, Err(not)),
        };
        let Some(folder) = self.surroundings.snapshots() else {
            let text = "this server has no folder to write snapshots into".to_owned();
            return self.finish_capture(number, Err(NotCaptured::Failed(text)));
        };
        let ((run, shard), done) = (self.name.clone(), self.captured.0.clone());
        let what = format!("the writing of shard {shard} of run {run}");
        supervise_blocking(what, move || {
            let written = snapshot::write::shard(&folder, &run, number, shard, &states);
            let written = written.map_err(|error| NotCaptured::Failed(error.to_string()));
            let _ = done.blocking_send((number, written));
        });
    }

    /// Writes beside the exchanges. One that cannot be written is missing from the evaluation, and
    /// training goes on.
    fn write_milestone(&self, samples: u64, states: Vec<BlockState>) {
        let Some(folder) = self.surroundings.folder.clone() else {
            return;
        };
        let ((run, shard), wall) = (self.name.clone(), clock::wall());
        let Ok(writes) = self.milestones.clone().try_acquire_owned() else {
            tracing::warn!(
                %run, %shard, samples,
                "a milestone is missing: {MILESTONES_MAX} are still being written; the disk is too slow for evaluation.every_samples"
            );
            return;
        };
        let what = format!("the writing of a milestone of run {run}");
        supervise_blocking(what, move || {
            let _writes = writes;
            let path = Milestone::new(&folder, &run, samples).shard(shard);
            if let Err(error) = milestone::write(&path, wall, &states) {
                tracing::warn!(%run, %shard, samples, "a milestone is missing: {error}");
            }
        });
    }

    fn finish_capture(&mut self, number: u64, result: Result<ShardFile, NotCaptured>) {
        if let Some(capture) = &mut self.capture
            && capture.number == number
        {
            capture.result = Some(result.clone());
        }
        let (run, shard) = self.name.clone();
        self.report(ReportToSend::Captured(run, shard, number, result));
    }

    /// A full channel means that the bond with the coordinator is broken; it asks again.
    fn report(&self, report: ReportToSend) {
        let _ = self.surroundings.reports.try_send(report);
    }

    fn status(&mut self, digest: bool) -> ShardStatus {
        let blocks = || self.shard.blocks().map(|(_, block)| block);
        let versions = || blocks().map(|b| b.version());
        ShardStatus {
            generation: self.shard.generation().0,
            primary: matches!(self.shard.role(), Some(Role::Primary(_))),
            bytes: blocks().map(|b| b.length() as u64 * 4).sum(),
            blocks: blocks().count() as u64,
            versions: (versions().min().unwrap_or(0), versions().max().unwrap_or(0)),
            version_sum: versions().sum(),
            lineage: self.shard.lineage(),
            decided: lowest(blocks().map(|block| block.clocks_decided().collect())),
            counters: self.shard.counters().clone(),
            digest: digest.then(|| self.shard.digest()),
            unconfirmed: self.shard.unconfirmed(),
            moved: self.moved,
            momentum: self.shard.momentum(),
        }
    }
}

/// How far the values of an answer have come.
fn mark(reply: &Reply) -> Mark {
    Mark {
        lineage: reply.lineage,
        version: reply.version,
        samples: reply.samples_applied,
    }
}

/// For each group that is in all of the maps the lowest of its clocks.
fn lowest(mut all: impl Iterator<Item = BTreeMap<GroupId, Clock>>) -> BTreeMap<GroupId, Clock> {
    let mut lowest = all.next().unwrap_or_default();
    for block in all {
        lowest.retain(|group, clock| match block.get(group) {
            Some(other) => {
                *clock = (*clock).min(*other);
                true
            }
            None => false,
        });
    }
    lowest
}
