//! One rank's process: how it enters its group, stays and leaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use tradewind_client::core::session::{Purpose, Session, Summary};
use tradewind_common::schedule::Seen;
use tradewind_common::{BlockId, Clock, Generation, GroupId, Incarnation, Rank, ServerId, ShardId};
use tradewind_core::answer::{Answer, Refused};
use tradewind_core::run::Caller;

use super::talk::{Call, Common, Directory, Meeting, Out, Outcome, UNTRACKED, Wake, fenced, waits};
use super::{Primary, numbered};

/// A call to the coordinator that has no answer yet is made again after so long.
const CALL_RETRY_US: u64 = 250_000;

/// A version of a lineage.
pub(super) type Version = (Generation, u64);

/// One process of a group.
#[derive(Debug)]
pub struct Process {
    pub(super) group: GroupId,
    rank: Rank,
    life: u64,
    pub(super) incarnation: Incarnation,
    /// The last one that it was in.
    last: Incarnation,
    size: u32,
    number: u32,
    /// Where the data of the run begin, and at which clock.
    pub(super) origin: (Clock, u64),
    /// Of streams and calls; it goes on through all lives of the rank.
    next_number: u64,
    pub(super) directory: Arc<Directory>,
    pub(super) session: Option<Session>,
    pub(super) streams: BTreeMap<ShardId, Stream>,
    /// Versions of the values that have been answered, that the present step computes on, and that
    /// the last gradient was computed on: what sessions must say of themselves.
    pub(super) answered: BTreeMap<BlockId, Version>,
    pub(super) computing_on: BTreeMap<BlockId, Version>,
    pub(super) computed_on: BTreeMap<BlockId, Version>,
    /// As answered; of parameters, where answers are differences.
    pub(super) held: BTreeMap<BlockId, Vec<f32>>,
    call: Option<(u64, Call)>,
    pub(super) creating: bool,
    contributing: bool,
    /// A gradient is there and waits for the exchange before its own.
    computed: bool,
    /// It waits for its peers.
    meeting: bool,
    leaving: bool,
    /// It was asked to leave.
    asked: bool,
    pub(super) seen: Seen,
    pub(super) finished: Option<Summary>,
    /// What it wants done.
    pub outs: Vec<Out>,
}

/// A stream to whom it takes for the primary of a shard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) to: Primary,
    /// Of this one, and of the first one to the same primary.
    pub(super) number: u64,
    pub(super) first: u64,
}

impl Process {
    /// A process that starts now; `numbers` is [`numbers`](Self::numbers) of the one before.
    pub fn start(group: GroupId, rank: Rank, life: u64, numbers: u64) -> Self {
        let mut process = Self {
            group,
            rank,
            life,
            incarnation: Incarnation(0),
            last: Incarnation(0),
            size: 0,
            number: 0,
            origin: (Clock(0), 0),
            next_number: numbers,
            directory: Arc::default(),
            session: None,
            streams: BTreeMap::new(),
            answered: BTreeMap::new(),
            computing_on: BTreeMap::new(),
            computed_on: BTreeMap::new(),
            held: BTreeMap::new(),
            call: None,
            creating: false,
            contributing: false,
            computed: false,
            meeting: false,
            leaving: false,
            asked: false,
            seen: Seen::default(),
            finished: None,
            outs: Vec::new(),
        };
        process.call(Call::Join { life });
        process
    }

    /// Names it.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// The life of its group that it is in; 0 if it is in none.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Ranks in that life.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Its number among them.
    pub(super) fn number_among(&self) -> Rank {
        Rank(self.number)
    }

    /// Whether it was asked to leave.
    pub(super) fn is_asked(&self) -> bool {
        self.asked
    }

    /// Whether it is done and says so.
    pub fn leaving(&self) -> bool {
        self.leaving
    }

    /// Whether it brings something in the present exchange.
    pub(super) fn contributing(&self) -> bool {
        self.contributing
    }

    /// The clock that it is at.
    pub fn clock(&self) -> Clock {
        self.session.as_ref().map_or(Clock(0), Session::clock)
    }

    /// The clock behind it.
    pub(super) fn ticked(&self) -> Option<Clock> {
        let next = self.session.as_ref()?.clock();
        next.0.checked_sub(1).map(Clock)
    }

    /// How many numbers have been given out.
    pub fn numbers(&self) -> u64 {
        self.next_number
    }

    /// What it waits for, in words.
    pub fn stands(&self) -> String {
        let due = self.session.iter().flat_map(|session| {
            let shards = self.streams.keys();
            shards.flat_map(move |shard| session.frames(*shard))
        });
        let due: Vec<_> = due
            .map(|frame| (frame.shard, frame.block, frame.clock))
            .collect();
        format!(
            "life {}, call {:?}, meeting {}, creating {}, leaving {}, due {due:?}, streams {:?}",
            self.incarnation, self.call, self.meeting, self.creating, self.leaving, self.streams
        )
    }

    /// As whom it calls.
    pub fn caller(&self) -> Caller {
        Caller {
            group: self.group,
            incarnation: self.incarnation,
            rank: self.rank,
        }
    }

    /// Servers that it has streams to.
    pub fn servers(&self) -> impl Iterator<Item = ServerId> + '_ {
        self.streams.values().map(|stream| stream.to.server)
    }

    /// The coordinator has answered a call that was made in life `asked_in` of the group.
    pub fn answered(
        &mut self,
        (number, asked_in): (u64, Incarnation),
        answer: Result<Option<Answer>, Refused>,
        directory: Arc<Directory>,
        common: &Common,
    ) {
        self.learn(directory, common);
        let current = self.call.as_ref().is_some_and(|(n, _)| *n == number);
        let beat = number == UNTRACKED && asked_in == self.incarnation;
        if !current && !beat {
            return;
        }
        let call = if current { self.call.take() } else { None };
        match (call.map(|(_, call)| call), answer) {
            (Some(Call::Leave(_)), Ok(_)) => self.outs.push(Out::Left(self.asked)),
            (Some(Call::Leave(_)), Err(refused)) if fenced(&refused) => self.left_too_late(),
            (_, Err(Refused::Drained(_))) => self.outs.push(Out::Left(true)),
            (Some(call), Err(refused)) if waits(&refused) => self.call = Some((number, call)),
            (_, Err(Refused::Failed(reason) | Refused::Stopped(reason))) => {
                self.outs.push(Out::Failed(reason))
            }
            (_, Err(refused)) if fenced(&refused) => self.enter_again(true),
            (_, Err(refused)) => {
                let text = format!("rank {:?}: {refused}", self.caller());
                self.outs.push(Out::Unexpected(text));
            }
            (None, Ok(_)) => {}
            (Some(_), Ok(answer)) => self.go_on(answer, common),
        }
    }

    fn go_on(&mut self, answer: Option<Answer>, common: &Common) {
        match answer {
            Some(Answer::Joined {
                incarnation,
                group_size,
                group_rank,
                origin,
                ..
            }) => {
                // One of a former life, whose answer was late.
                if incarnation <= self.last {
                    return self.call(Call::Join { life: self.life });
                }
                (self.incarnation, self.size, self.number) = (incarnation, group_size, group_rank);
                self.origin = origin;
                self.outs.push(Out::Wake(0, Wake::Heartbeat(incarnation)));
                self.call(Call::AwaitReady(self.caller(), false));
            }
            Some(Answer::Create) => {
                self.creating = true;
                self.begin(Clock(0), Purpose::Create, common);
            }
            Some(Answer::Ready { start, .. }) => self.begin(start, Purpose::Pull, common),
            Some(
                Answer::Snapshot { .. }
                | Answer::Attached(_)
                | Answer::Draining
                | Answer::Removed
                | Answer::Resumes
                | Answer::Revoked { .. },
            )
            | None => {}
        }
    }

    /// Time has come, or something was noticed.
    pub fn wake(&mut self, wake: Wake, common: &Common) {
        let now = self.incarnation;
        match wake {
            Wake::Retry(number) => {
                if let Some((_, call)) = self.call.take_if(|(n, _)| *n == number) {
                    self.call(call);
                }
            }
            Wake::Heartbeat(life) if life == now => self.beat(common),
            Wake::Computed(life) if life == now => self.outs.push(Out::Meet(Meeting::Reduce, None)),
            Wake::Met(life, Meeting::Reduce, _) if life == now => {
                self.computed = true;
                self.go_on_training(common);
            }
            Wake::Met(life, Meeting::Gather, outcome) if life == now => {
                self.gathered(outcome, common);
            }
            Wake::Deserted(life) if life == now && !self.leaving => self.enter_again(false),
            Wake::Asked(life) if life == now => self.asked = true,
            Wake::Stuck(life) if life == now && !self.leaving => self.outs.push(Out::Exit),
            Wake::Broken(shard, stream) => self.broken(shard, stream, common),
            Wake::ServerGone(server) => self.server_gone(server, common),
            // Of a life of the group that is over, or of a rank that leaves.
            Wake::Heartbeat(_)
            | Wake::Computed(_)
            | Wake::Met(..)
            | Wake::Deserted(_)
            | Wake::Asked(_)
            | Wake::Stuck(_) => {}
        }
    }

    fn beat(&mut self, common: &Common) {
        let beat = Call::Heartbeat(self.caller(), self.clock());
        self.outs.push(Out::Call(UNTRACKED, beat));
        let every_us = common.spec.lease_ms * 1000 / 5;
        let next = Wake::Heartbeat(self.incarnation);
        self.outs.push(Out::Wake(every_us, next));
    }

    /// This life of the group is over; it does not matter any more to one that leaves. Who waits
    /// for its peers may not be able to stop: it ends when its time is up, and is started again.
    fn enter_again(&mut self, may_be_stuck: bool) {
        if self.leaving {
            return;
        }
        if self.incarnation == Incarnation(0) {
            // It waited for a life that ended before it began.
            if self.call.is_none() {
                self.call(Call::Join { life: self.life });
            }
            return;
        }
        if self.meeting && may_be_stuck && (self.life ^ self.incarnation.0).is_multiple_of(2) {
            let stuck = Wake::Stuck(self.incarnation);
            return self.outs.push(Out::Wake(100_000, stuck));
        }
        self.outs.push(Out::Abandon(self.incarnation));
        self.last = std::mem::take(&mut self.incarnation);
        self.streams.clear();
        self.session = None;
        self.finished = None;
        (self.creating, self.contributing) = (false, false);
        (self.computed, self.meeting) = (false, false);
        self.answered.clear();
        self.held.clear();
        self.call(Call::Join { life: self.life });
    }

    /// Its life was over before it could leave. What said stop may be lost with a server meanwhile, so
    /// it enters again and looks; but not if it was asked to leave.
    fn left_too_late(&mut self) {
        if self.asked {
            return self.outs.push(Out::Left(true));
        }
        self.leaving = false;
        self.enter_again(false);
    }

    /// A shard has refused it as one that is not live.
    pub(super) fn not_live(&mut self) {
        self.enter_again(false);
    }

    /// Its creation is over, whoever did it.
    pub(super) fn created(&mut self, by_itself: bool) {
        self.creating = false;
        self.session = None;
        self.call(Call::AwaitReady(self.caller(), by_itself));
    }

    /// It has the answers of all its blocks.
    pub(super) fn exchanged(&mut self, summary: Summary) {
        self.meeting = true;
        self.outs.push(Out::Meet(Meeting::Gather, Some(summary)));
    }

    fn gathered(&mut self, outcome: Outcome, common: &Common) {
        self.meeting = false;
        let contributed = std::mem::take(&mut self.contributing);
        self.seen = outcome.seen;
        // Who has only pulled begins where the coordinator said.
        if let Some(session) = self.session.as_mut().filter(|_| contributed) {
            session.go_on_at(outcome.next);
        }
        self.asked |= outcome.leave;
        if outcome.stop || outcome.leave {
            self.leaving = true;
            self.call(Call::Leave(self.caller()));
        } else if contributed && common.overlap {
            self.go_on_training(common);
        } else {
            self.compute();
        }
    }

    /// Brings the gradient, if it is there and no exchange is under way; nothing after stop.
    fn go_on_training(&mut self, common: &Common) {
        if self.contributing || self.leaving || !std::mem::take(&mut self.computed) {
            return;
        }
        self.computed_on = self.computing_on.clone();
        if common.overlap {
            // What has been answered so far is loaded before the next step begins.
            self.compute();
        }
        self.contributing = true;
        self.contribute(common);
    }

    fn compute(&mut self) {
        self.computing_on = self.answered.clone();
        self.outs.push(Out::Compute);
    }

    fn call(&mut self, call: Call) {
        let number = self.next();
        self.call = Some((number, call.clone()));
        self.outs.push(Out::Call(number, call));
        let retry = Wake::Retry(number);
        self.outs.push(Out::Wake(CALL_RETRY_US, retry));
    }

    /// Whether a stream is a former one to whoever answers for the shard now.
    pub(super) fn given_up(&self, shard: ShardId, stream: u64) -> bool {
        let present = self.streams.get(&shard);
        present.is_some_and(|present| (present.first..present.number).contains(&stream))
    }

    /// Unique among all ranks; grows with time.
    pub(super) fn next(&mut self) -> u64 {
        self.next_number += 1;
        numbered(self.group, self.rank, self.next_number)
    }
}
