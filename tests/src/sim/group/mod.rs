//! A group of ranks of the simulated world: the real sessions, and around them what a worker
//! process does: join, create if asked to, pull, then step after step; leave at stop. With overlap
//! the next step is computed while an exchange is under way.

mod talk;

use std::collections::{BTreeMap, BTreeSet};

use tradewind_client::core::session::{self, Identity, Kind, Purpose, Session, Summary};
use tradewind_common::{BlockId, Clock, GroupId, Incarnation, Rank, ServerId, TensorKind};
use tradewind_server::core::answer::{Answer, Refused};
use tradewind_server::core::askers::{Fresh, Wants};
use tradewind_server::core::block::Gradient;
use tradewind_server::core::refusal::Refusal;
use tradewind_server::core::run::Caller;
use tradewind_server::core::shard::{self, Action, Push, Reply};

use super::values;
pub use talk::{Call, Common, Out, UNTRACKED, Wake};

/// A call to the coordinator that has no answer yet is made again after so long.
const CALL_RETRY_US: u64 = 250_000;

/// One process of a group.
#[derive(Debug, Default)]
struct Process {
    session: Option<Session>,
    streams: BTreeMap<ServerId, u64>,
    /// Versions of the values that have been answered, that the present step computes on, and that
    /// the last gradient was computed on: what sessions must say of themselves.
    answered: BTreeMap<BlockId, u64>,
    computing_on: BTreeMap<BlockId, u64>,
    computed_on: BTreeMap<BlockId, u64>,
    /// As answered; of parameters, where answers are differences.
    held: BTreeMap<BlockId, Vec<f32>>,
    call: Option<(u64, Call)>,
    creating: bool,
    finished: Option<Summary>,
}

/// One life of a group's processes.
#[derive(Debug)]
pub struct Group {
    id: GroupId,
    process: u64,
    incarnation: Incarnation,
    ranks: Vec<Process>,
    samples_seen: u64,
    /// Numbers of streams and calls; they go on through all lives.
    next_number: u64,
    contributing: bool,
    /// A gradient is there and waits for the exchange before its own.
    computed: bool,
    leaving: bool,
    pub(super) outs: Vec<Out>,
}

impl Group {
    /// A group whose `life`th processes start now; `numbers` is [`numbers`](Self::numbers) of its
    /// former life.
    pub fn start(id: GroupId, life: u64, numbers: u64, common: &Common) -> Self {
        let size = common.spec.group_sizes[id.0 as usize];
        let mut group = Self {
            id,
            process: life,
            incarnation: Incarnation(0),
            ranks: (0..size).map(|_| Process::default()).collect(),
            samples_seen: 0,
            next_number: numbers,
            contributing: false,
            computed: false,
            leaving: false,
            outs: Vec::new(),
        };
        for rank in 0..size {
            group.call(Rank(rank), Call::Join { process: life });
        }
        group
    }

    /// How many numbers have been given out.
    pub fn numbers(&self) -> u64 {
        self.next_number
    }

    /// What the present exchange came to, rank by rank.
    fn summaries(&self) -> impl Iterator<Item = &Summary> {
        self.ranks.iter().filter_map(|r| r.finished.as_ref())
    }

    /// The coordinator has answered.
    pub fn answered(
        &mut self,
        rank: Rank,
        number: u64,
        answer: Result<Option<Answer>, Refused>,
        common: &Common,
    ) {
        let process = &mut self.ranks[rank.0 as usize];
        let current = process.call.as_ref().is_some_and(|(n, _)| *n == number);
        if !current && number != UNTRACKED {
            return;
        }
        let call = if current { process.call.take() } else { None };
        match (call.map(|(_, call)| call), answer) {
            (Some(Call::Leave(_)), _) => {
                if self.leaving && self.ranks.iter().all(|r| r.call.is_none()) {
                    self.outs.push(Out::Left);
                }
            }
            (Some(call), Err(Refused::GroupRunning(_) | Refused::ServersMissing { .. })) => {
                self.ranks[rank.0 as usize].call = Some((number, call));
            }
            (_, Err(refused)) if fenced(&refused) => self.start_again(),
            (_, Err(refused)) => self.outs.push(Out::Unexpected(refused.to_string())),
            (None, Ok(_)) => {}
            (Some(_), Ok(answer)) => self.go_on(rank, answer, common),
        }
    }

    fn go_on(&mut self, rank: Rank, answer: Option<Answer>, common: &Common) {
        match answer {
            Some(Answer::Joined { incarnation, .. }) => {
                self.incarnation = incarnation;
                self.outs.push(Out::Wake(0, Wake::Heartbeat(rank)));
                self.call(rank, Call::AwaitReady(self.caller(rank), false));
            }
            Some(Answer::Create) => {
                self.ranks[rank.0 as usize].creating = true;
                self.begin(rank, Clock(0), Purpose::Create, common);
            }
            Some(Answer::Ready { start, .. }) => self.begin(rank, start, Purpose::Pull, common),
            None => {}
        }
    }

    /// A shard has answered a frame.
    pub fn replied(
        &mut self,
        rank: Rank,
        (server, stream): (ServerId, u64),
        result: Result<Reply, Refusal>,
        common: &Common,
    ) {
        let process = &mut self.ranks[rank.0 as usize];
        let current = process.streams.get(&server) == Some(&stream);
        match result {
            Ok(reply) if current || common.late_answers => {
                let Some(session) = &mut process.session else {
                    return;
                };
                if session.answer(&answer(&reply)) {
                    let took = process.take(&reply, common);
                    let life = (self.id, self.incarnation);
                    self.outs.extend(
                        took.map(|values| Out::Took(life, reply.block, reply.version, values)),
                    );
                    process.answered.insert(reply.block, reply.version);
                    self.finish(rank, common);
                }
            }
            Err(Refusal::NotLive(_) | Refusal::StaleIncarnation { .. }) if current => {
                self.start_again();
            }
            // The run became ready while the answers to its creator were lost.
            Err(Refusal::NotCreator(_)) if current && process.creating => {
                process.creating = false;
                process.session = None;
                self.call(rank, Call::AwaitReady(self.caller(rank), false));
            }
            // Late duplicates are refused, and a refusal ends its stream.
            Err(Refusal::ClockPassed { .. } | Refusal::NotCreator(_)) if current => {
                self.broken(rank, server, stream, common);
            }
            Err(refusal) if current => self.outs.push(Out::Unexpected(refusal.to_string())),
            _ => {}
        }
    }

    /// It was taken for dead; that does not matter any more to one that leaves.
    fn start_again(&mut self) {
        if !self.leaving {
            self.outs.push(Out::Restart);
        }
    }

    /// Time has come.
    pub fn wake(&mut self, wake: Wake, common: &Common) {
        match wake {
            Wake::Retry(rank, number) => {
                let call = &mut self.ranks[rank.0 as usize].call;
                if let Some((_, call)) = call.take_if(|(n, _)| *n == number) {
                    self.call(rank, call);
                }
            }
            Wake::Heartbeat(rank) => {
                if !self.leaving {
                    let session = &self.ranks[rank.0 as usize].session;
                    let clock = session.as_ref().map_or(Clock(0), Session::clock);
                    let beat = Call::Heartbeat(self.caller(rank), clock);
                    self.outs.push(Out::Call(rank, UNTRACKED, beat));
                    let every_us = common.spec.lease_ms * 1000 / 5;
                    self.outs.push(Out::Wake(every_us, Wake::Heartbeat(rank)));
                }
            }
            Wake::Computed => {
                self.computed = true;
                self.go_on_training(common);
            }
            Wake::Broken(rank, server, stream) => self.broken(rank, server, stream, common),
        }
    }

    /// Brings the gradient, if it is there and no exchange is under way; nothing after stop.
    fn go_on_training(&mut self, common: &Common) {
        if self.contributing || self.leaving || !std::mem::take(&mut self.computed) {
            return;
        }
        for process in &mut self.ranks {
            process.computed_on = process.computing_on.clone();
        }
        if common.overlap {
            // What has been answered so far is loaded before the next step begins.
            self.compute();
        }
        self.contribute(common);
    }

    fn compute(&mut self) {
        for process in &mut self.ranks {
            process.computing_on = process.answered.clone();
        }
        self.outs.push(Out::Compute);
    }

    fn contribute(&mut self, common: &Common) {
        let life = (self.id, self.incarnation);
        let clock = self.ranks[0]
            .session
            .as_ref()
            .map_or(Clock(0), Session::clock);
        let some = values::gradient(life, clock, BlockId(0), 1, common.skip_one_in).is_some();
        let samples = self.ranks.len() as u32 * common.spec.batch;
        let purpose = if some {
            Purpose::Gradient { samples }
        } else {
            Purpose::Skip
        };
        self.contributing = true;
        for rank in 0..self.ranks.len() as u32 {
            self.begin(Rank(rank), clock, purpose, common);
        }
    }

    fn begin(&mut self, rank: Rank, start: Clock, purpose: Purpose, common: &Common) {
        let identity = Identity {
            run: common.run.clone(),
            group: self.id,
            incarnation: self.incarnation,
        };
        let slice = common.layout.slice(rank, self.ranks.len() as u32);
        let owners = slice
            .iter()
            .map(|b| (*b, common.placement.owner(*b).expect("placed")));
        let process = &mut self.ranks[rank.0 as usize];
        process.finished = None;
        match purpose {
            Purpose::Create | Purpose::Pull => {
                let session = Session::new(identity, start, owners);
                process.session = Some(session.with_overlap(common.overlap));
            }
            Purpose::Gradient { .. } | Purpose::Skip => {}
        }
        let session = process.session.as_mut().expect("it has pulled");
        session.begin(purpose, self.samples_seen);
        let servers: BTreeSet<_> = session.slice().map(|(_, server)| server).collect();
        for server in servers {
            if !self.ranks[rank.0 as usize].streams.contains_key(&server) {
                self.open(rank, server);
            }
            self.send(rank, server, common);
        }
        // A rank of a large group may have no block at all.
        self.finish(rank, common);
    }

    fn finish(&mut self, rank: Rank, common: &Common) {
        let process = &mut self.ranks[rank.0 as usize];
        let Some(summary) = process.session.as_mut().and_then(Session::finish) else {
            return;
        };
        if std::mem::take(&mut process.creating) {
            self.call(rank, Call::AwaitReady(self.caller(rank), true));
            return;
        }
        process.finished = Some(summary);
        self.gather(common);
    }

    /// The group goes on when all ranks have their slices.
    fn gather(&mut self, common: &Common) {
        if !self.ranks.iter().all(|r| r.finished.is_some()) {
            return;
        }
        let contributed = std::mem::take(&mut self.contributing);
        if contributed {
            let next = self.ranks[0].session.as_ref().map_or(0, |s| s.clock().0);
            self.outs.push(Out::Ticked(Clock(next - 1)));
        }
        let seen = self.summaries().map(|s| s.samples_applied).max();
        self.samples_seen = self.samples_seen.max(seen.unwrap_or(0));
        if self.summaries().any(|s| s.stop) {
            self.leaving = true;
            for rank in 0..self.ranks.len() as u32 {
                self.call(Rank(rank), Call::Leave(self.caller(Rank(rank))));
            }
        } else if contributed && common.overlap {
            self.go_on_training(common);
        } else {
            self.compute();
        }
    }

    fn broken(&mut self, rank: Rank, server: ServerId, stream: u64, common: &Common) {
        if self.ranks[rank.0 as usize].streams.get(&server) == Some(&stream) {
            self.open(rank, server);
            self.send(rank, server, common);
        }
    }

    fn open(&mut self, rank: Rank, server: ServerId) {
        let stream = self.number();
        self.ranks[rank.0 as usize].streams.insert(server, stream);
    }

    /// Sends what is unanswered.
    fn send(&mut self, rank: Rank, server: ServerId, common: &Common) {
        let process = &self.ranks[rank.0 as usize];
        let (Some(session), Some(stream)) = (&process.session, process.streams.get(&server)) else {
            return;
        };
        let life = (self.id, self.incarnation);
        let wrong = session.frames(server).find(|frame| {
            let computed_on = process.computed_on.get(&frame.block).copied();
            matches!(frame.purpose, Purpose::Gradient { .. })
                && frame.pulled_version != computed_on.unwrap_or_default()
        });
        if let Some(frame) = wrong {
            let text = format!("{frame:?} was computed on {:?}", process.computed_on);
            self.outs.push(Out::Unexpected(text));
        }
        let frames = session.frames(server).map(|frame| {
            let length = common
                .layout
                .block(frame.block)
                .expect("a block")
                .elements
                .len();
            let gradient =
                || values::gradient(life, frame.clock, frame.block, length, common.skip_one_in);
            let action = match frame.purpose {
                Purpose::Gradient { samples } => {
                    Action::Contribute(gradient().map(|values| Gradient {
                        values,
                        samples,
                        pulled_version: frame.pulled_version,
                        samples_seen: frame.samples_seen,
                    }))
                }
                Purpose::Skip => Action::Contribute(None),
                Purpose::Pull => Action::Pull,
                Purpose::Create => Action::Create(values::initial(life, frame.block, length)),
            };
            let push = Push {
                group: self.id,
                incarnation: self.incarnation,
                clock: frame.clock,
                block: frame.block,
                wants: Wants::Difference { holds: frame.holds },
                action,
            };
            Out::Frame(rank, server, *stream, push)
        });
        self.outs.extend(frames);
    }

    fn call(&mut self, rank: Rank, call: Call) {
        let number = self.number();
        self.ranks[rank.0 as usize].call = Some((number, call.clone()));
        self.outs.push(Out::Call(rank, number, call));
        self.outs
            .push(Out::Wake(CALL_RETRY_US, Wake::Retry(rank, number)));
    }

    /// Unique among all groups; grows with time.
    fn number(&mut self) -> u64 {
        self.next_number += 1;
        (self.next_number << 16) | u64::from(self.id.0)
    }

    fn caller(&self, rank: Rank) -> Caller {
        Caller {
            group: self.id,
            incarnation: self.incarnation,
            rank,
        }
    }

    /// Names the processes of this life.
    pub fn process(&self) -> u64 {
        self.process
    }
}

impl Process {
    /// Takes the values of an answer in, as a client does. What it has of the block then, where
    /// answers may be differences.
    fn take(&mut self, reply: &Reply, common: &Common) -> Option<Vec<f32>> {
        let block = common.layout.block(reply.block).expect("a block");
        if block.kind == TensorKind::Buffer || !common.spec.down.lossy() {
            return None;
        }
        let held = self.held.entry(reply.block).or_default();
        match &reply.fresh {
            Fresh::Nothing => {}
            Fresh::Values(values) => held.clone_from(values),
            Fresh::Difference(form, encoded) => {
                // To values that it does not have: what it keeps tells.
                let _ = form.decode_add(encoded, held);
            }
        }
        Some(held.clone())
    }
}

/// Whether a group that is refused so has to start again.
fn fenced(refused: &Refused) -> bool {
    matches!(
        refused,
        Refused::Refusal(Refusal::NotLive(_) | Refusal::StaleIncarnation { .. })
    )
}

/// What a session needs to know of a reply.
fn answer(reply: &Reply) -> session::Answer {
    let (kind, delay) = match reply.answer {
        shard::Answer::Decided(decided, _) => (Kind::Decided, Some(decided.delay)),
        shard::Answer::Read => (Kind::Read, None),
        shard::Answer::Created => (Kind::Created, None),
    };
    session::Answer {
        block: reply.block,
        clock: reply.clock,
        kind,
        version: reply.version,
        values: true,
        delay,
        lag: reply.lag,
        waited_us: reply.waited_us,
        samples_applied: reply.samples_applied,
        stop: reply.stop,
    }
}
