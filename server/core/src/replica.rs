//! A primary's side of its copies: what each was sent and has not confirmed. And a copy's side: how
//! far it has come.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tradewind_common::holders::CopyHolder;
use tradewind_common::{BlockId, Generation, ServerId};

use super::frame::Output;
use super::log::{Confirm, LogEntry, Record};
use super::refusal::Refusal;
use super::state::BlockState;

/// Most blocks that are on their way to a copy that is being filled.
pub const FILL_WINDOW: usize = 8;

/// The way to one copy.
#[derive(Debug)]
struct Outbox {
    fill: Generation,
    /// Number of the last record.
    last: u64,
    /// Oldest first. Bounded by what streams may have in flight, because the answers to what is
    /// recorded here wait for the copy, and by [`FILL_WINDOW`].
    unconfirmed: VecDeque<Record>,
    /// Blocks among them.
    states: usize,
    /// Blocks with values that it has not been sent.
    unsent: BTreeSet<BlockId>,
    /// It has confirmed every block.
    full: bool,
    /// The first record that waited when it was looked last, and since when it was seen to be that,
    /// microseconds.
    waits: Option<(u64, u64)>,
    /// It has confirmed nothing for too long.
    stalled: bool,
}

/// What a primary owes its copies: one log, as each of them is sent it.
#[derive(Debug, Default)]
pub struct Outboxes {
    log: Generation,
    /// Number of the last entry.
    seq: u64,
    copies: BTreeMap<ServerId, Outbox>,
}

impl Outboxes {
    /// The log of the primary since `log`, without copies.
    pub fn new(log: Generation) -> Self {
        Self {
            log,
            ..Self::default()
        }
    }

    /// Whether nobody has to confirm anything.
    pub fn none(&self) -> bool {
        self.copies.is_empty()
    }

    /// Number of the last entry: what is decided now is confirmed with it.
    pub fn last(&self) -> u64 {
        self.seq
    }

    /// Has these copies and no others. One that is new here, or was added anew, has to be sent the
    /// blocks of `created`. Answers those to whom former records are void.
    pub fn follow(
        &mut self,
        copies: &[CopyHolder],
        created: impl Fn() -> BTreeSet<BlockId>,
    ) -> Vec<ServerId> {
        let same = |server: &ServerId, outbox: &Outbox| {
            let named = copies.iter().find(|copy| copy.server == *server);
            named.is_some_and(|copy| copy.since == outbox.fill)
        };
        let gone = self
            .copies
            .extract_if(.., |server, outbox| !same(server, outbox));
        let gone = gone.map(|(server, _)| server).collect();
        for copy in copies {
            self.copies.entry(copy.server).or_insert_with(|| Outbox {
                fill: copy.since,
                last: 0,
                unconfirmed: VecDeque::new(),
                states: 0,
                unsent: created(),
                full: false,
                waits: None,
                stalled: false,
            });
        }
        gone
    }

    /// Records an entry for every copy. One that has not been sent the block of an update is sent
    /// the block later, and a probe now.
    pub fn append(&mut self, entry: LogEntry, outputs: &mut VecDeque<Output>) {
        if self.none() {
            return;
        }
        self.seq += 1;
        for (to, outbox) in &mut self.copies {
            let entry = match &entry {
                LogEntry::Update(update) if outbox.unsent.contains(&update.block) => {
                    LogEntry::Probe
                }
                other => other.clone(),
            };
            outbox.send(*to, (self.log, self.seq), entry, outputs);
        }
    }

    /// Sends copies the next blocks, as many as may be on their way.
    pub fn fill(&mut self, state: impl Fn(BlockId) -> BlockState, outputs: &mut VecDeque<Output>) {
        for (to, outbox) in &mut self.copies {
            while outbox.states < FILL_WINDOW
                && let Some(id) = outbox.unsent.pop_first()
            {
                self.seq += 1;
                let entry = LogEntry::State(state(id));
                outbox.send(*to, (self.log, self.seq), entry, outputs);
            }
        }
    }

    /// What a copy has not confirmed, to be sent again on a new link.
    pub fn unconfirmed_of(&self, copy: ServerId) -> impl Iterator<Item = &Record> {
        let outbox = self.copies.get(&copy);
        outbox.into_iter().flat_map(|outbox| &outbox.unconfirmed)
    }

    /// A copy has come so far; one that speaks of another log or another fill, or of what it was
    /// never sent, changes nothing.
    pub fn confirm(&mut self, confirm: Confirm) {
        let outbox = self.copies.get_mut(&confirm.copy);
        let Some(outbox) = outbox.filter(|outbox| {
            (self.log, outbox.fill) == (confirm.log, confirm.fill) && confirm.seq <= outbox.last
        }) else {
            return;
        };
        while let Some(record) = outbox.unconfirmed.front()
            && record.seq <= confirm.seq
        {
            outbox.states -= usize::from(matches!(record.entry, LogEntry::State(_)));
            outbox.unconfirmed.pop_front();
        }
    }

    /// Whether every copy has confirmed what it was sent up to entry `seq`.
    pub fn confirmed(&self, seq: u64) -> bool {
        let first = |outbox: &Outbox| outbox.unconfirmed.front().map(|record| record.seq);
        let mut waits = self.copies.values().filter_map(first);
        waits.all(|first| first > seq)
    }

    /// Notes which copies have every block of a shard, all of whose blocks have values; answers
    /// whether one is new among them.
    pub fn look_full(&mut self) -> bool {
        let mut news = false;
        for outbox in self.copies.values_mut() {
            if !outbox.full && outbox.unsent.is_empty() && outbox.states == 0 {
                outbox.full = true;
                news = true;
            }
        }
        news
    }

    /// Copies that have everything, and since when each is one.
    pub fn full(&self) -> Vec<(ServerId, Generation)> {
        let full = self.copies.iter().filter(|(_, outbox)| outbox.full);
        full.map(|(server, outbox)| (*server, outbox.fill))
            .collect()
    }

    /// Notes which copies have confirmed nothing for so long, though something waits for them; answers
    /// whether there are any.
    pub fn look_stalled(&mut self, now_us: u64, patience_us: u64) -> bool {
        for outbox in self.copies.values_mut() {
            let first = outbox.unconfirmed.front().map(|record| record.seq);
            let same = outbox.waits.filter(|(seq, _)| Some(*seq) == first);
            outbox.waits = same.or_else(|| first.map(|seq| (seq, now_us)));
            outbox.stalled = outbox
                .waits
                .is_some_and(|(_, since_us)| now_us.saturating_sub(since_us) >= patience_us);
        }
        self.copies.values().any(|outbox| outbox.stalled)
    }

    /// Copies that had confirmed nothing for too long when it was looked last, and since when each is
    /// one.
    pub fn stalled(&self) -> Vec<(ServerId, Generation)> {
        let stalled = self.copies.iter().filter(|(_, outbox)| outbox.stalled);
        stalled
            .map(|(server, outbox)| (*server, outbox.fill))
            .collect()
    }

    /// Records that copies have not confirmed.
    pub fn unconfirmed(&self) -> u64 {
        let each = self
            .copies
            .values()
            .map(|outbox| outbox.unconfirmed.len() as u64);
        each.sum()
    }
}

impl Outbox {
    fn send(
        &mut self,
        to: ServerId,
        (log, seq): (Generation, u64),
        entry: LogEntry,
        outputs: &mut VecDeque<Output>,
    ) {
        self.states += usize::from(matches!(entry, LogEntry::State(_)));
        let record = Record {
            log,
            fill: self.fill,
            previous: self.last,
            seq,
            entry,
        };
        self.last = seq;
        self.unconfirmed.push_back(record.clone());
        outputs.push_back(Output::Record { to, record });
    }
}

/// How far a copy has come in the newest log that it knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    log: Generation,
    fill: Generation,
    seq: u64,
}

/// What a record is to a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordPlace {
    /// It is to be applied.
    Next,
    /// It was applied before.
    Had,
}

impl Position {
    /// Before the first record of a log; records of older ones will be refused.
    pub fn start(log: Generation) -> Self {
        Self {
            log,
            ..Self::default()
        }
    }

    /// The newest log that is known.
    pub fn log(&self) -> Generation {
        self.log
    }

    /// The number of the last record that was applied.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Is to follow a log, and to be filled in it. Answers whether it is a new one, in which nothing has
    /// come yet.
    pub fn reach(&mut self, log: Generation, fill: Generation) -> bool {
        let new = (log, fill) > (self.log, self.fill);
        if new {
            *self = Self { log, fill, seq: 0 };
        }
        new
    }

    /// What record `seq`, which was sent after record `previous`, is here.
    pub fn place(&self, previous: u64, seq: u64) -> Result<RecordPlace, Refusal> {
        if seq <= self.seq {
            Ok(RecordPlace::Had)
        } else if previous == self.seq {
            Ok(RecordPlace::Next)
        } else {
            Err(Refusal::Gap {
                reached: self.seq,
                previous,
            })
        }
    }

    /// Record `seq` is applied.
    pub fn advance(&mut self, seq: u64) {
        self.seq = seq;
    }
}
