//! Records of a log: core ↔ wire.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tradewind_common::{BlockId, Generation, GroupId, Incarnation, RunId, ShardId};
use tradewind_proto::convert::{self, Malformed};
use tradewind_proto::frame::Framed;
use tradewind_proto::v1;

use tradewind_core::decided::{Decided, Verdict};
use tradewind_core::log::{Applied, LogEntry, Record, Update};
use tradewind_core::refusal::Refusal;
use tradewind_core::state::BlockState;

/// A record as it travels.
pub fn encode((run, shard): (&RunId, ShardId), record: Record) -> Framed {
    let (entry, values) = match record.entry {
        LogEntry::Probe => (v1::record::Entry::Probe(v1::Probe {}), Bytes::new()),
        LogEntry::State(state) => {
            let (head, values) = encode_state(&state);
            (v1::record::Entry::State(head), values)
        }
        LogEntry::Update(update) => {
            let (head, values) = encode_update(update);
            (v1::record::Entry::Update(head), values)
        }
    };
    let head = v1::Record {
        run: run.to_string(),
        shard: shard.0,
        log: record.log.0,
        fill: record.fill.0,
        previous: record.previous,
        seq: record.seq,
        entry: Some(entry),
    };
    Framed::new(&head, values)
}

fn encode_state(state: &BlockState) -> (v1::State, Bytes) {
    let place = |(group, (incarnation, decided)): (&GroupId, &(Incarnation, Decided))| {
        place_to_wire(*group, *incarnation, decided)
    };
    let head = v1::State {
        block: state.id.0,
        version: state.version,
        samples_applied: state.samples_applied,
        places: state.decided.iter().map(place).collect(),
        slots: state.slots.len() as u32,
        values: Bytes::new(),
    };
    if state.slots.is_empty() {
        return (head, convert::bulk(state.values.clone()));
    }
    let mut all = BytesMut::with_capacity(state.values.len() * 4 * (1 + state.slots.len()));
    for vector in std::iter::once(&state.values).chain(&state.slots) {
        all.extend_from_slice(&convert::bulk(vector.clone()));
    }
    (head, all.freeze())
}

fn encode_update(update: Update) -> (v1::Update, Bytes) {
    let place = |(group, incarnation, decided): &(GroupId, Incarnation, Decided)| {
        place_to_wire(*group, *incarnation, decided)
    };
    let mut head = v1::Update {
        block: update.block.0,
        decided: update.decided.iter().map(place).collect(),
        ..v1::Update::default()
    };
    let Some(applied) = update.applied else {
        return (head, Bytes::new());
    };
    head.applied = true;
    head.rate = applied.rate;
    head.momentum = applied.momentum;
    head.scales = applied.scales;
    head.samples = applied.samples;
    head.weight = applied.weight;
    (head, convert::bulk(applied.gradient))
}

fn place_to_wire(group: GroupId, incarnation: Incarnation, decided: &Decided) -> v1::Place {
    v1::Place {
        group: group.0,
        incarnation: incarnation.0,
        clock: decided.clock.0,
        verdict: verdict_to_wire(decided.verdict).into(),
        delay: decided.delay,
    }
}

/// A verdict, for the wire.
pub fn verdict_to_wire(verdict: Verdict) -> v1::Verdict {
    match verdict {
        Verdict::Applied => v1::Verdict::Applied,
        Verdict::Dropped => v1::Verdict::Dropped,
        Verdict::Skipped => v1::Verdict::Skipped,
    }
}

/// Vectors beside a block's values that an optimizer keeps, at most.
const SLOTS_MAX: u32 = 3;

/// Refuses a record that brings more values than its block can take, before any of them is kept. `length` is how
/// many a block has.
pub fn most_of(
    head: &v1::Record,
    bulk: usize,
    length: impl Fn(BlockId) -> usize,
) -> Result<(), Refusal> {
    let (block, vectors) = match &head.entry {
        Some(v1::record::Entry::State(state)) => (state.block, 1 + state.slots.min(SLOTS_MAX)),
        Some(v1::record::Entry::Update(update)) => (update.block, 1),
        // Neither has any; the second is refused when it is complete.
        Some(v1::record::Entry::Probe(_)) | None => return Ok(()),
    };
    let block = BlockId(block);
    let expected = length(block) * vectors as usize;
    let given = bulk.div_ceil(4);
    match expected {
        0 => Err(Refusal::UnknownBlock(block)),
        _ if given > expected => Err(Refusal::WrongLength {
            block,
            expected,
            given,
        }),
        _ => Ok(()),
    }
}

/// A record whose values arrive.
pub struct Incoming {
    head: v1::Record,
    left: usize,
    values: Vec<f32>,
    cut: Vec<u8>,
}

impl Incoming {
    /// The record of `head`, after which `bulk` bytes follow.
    pub fn new(head: v1::Record, bulk: usize) -> Self {
        Self {
            head,
            left: bulk,
            // What it claims is no more than its block has: see `most_of`.
            values: Vec::with_capacity(bulk / 4),
            cut: Vec::new(),
        }
    }

    /// Takes the next bytes of its values in.
    pub fn take(&mut self, piece: &[u8]) {
        self.left -= piece.len();
        convert::append_bulk(piece, &mut self.values, &mut self.cut);
    }

    /// Whether all of it is here.
    pub fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// Which shard it is for.
    pub fn shard(&self) -> (&str, ShardId) {
        (&self.head.run, ShardId(self.head.shard))
    }

    /// The record.
    pub fn finish(self) -> Result<Record, Refusal> {
        let head = self.head;
        let entry = head
            .entry
            .ok_or_else(|| malformed("entry", "is missing".into()))?;
        let entry = match entry {
            v1::record::Entry::Probe(_) => LogEntry::Probe,
            v1::record::Entry::State(state) => LogEntry::State(decode_state(state, self.values)?),
            v1::record::Entry::Update(update) => {
                let samples = count("samples", update.samples)?;
                LogEntry::Update(Update {
                    block: BlockId(update.block),
                    decided: update.decided.iter().map(place).collect::<Result<_, _>>()?,
                    applied: update.applied.then(|| Applied {
                        rate: update.rate,
                        momentum: update.momentum,
                        scales: update.scales,
                        samples,
                        weight: update.weight,
                        gradient: Arc::new(self.values),
                    }),
                })
            }
        };
        Ok(Record {
            log: Generation(head.log),
            fill: Generation(head.fill),
            previous: count("previous", head.previous)?,
            seq: count("seq", head.seq)?,
            entry,
        })
    }
}

fn decode_state(state: v1::State, mut values: Vec<f32>) -> Result<BlockState, Refusal> {
    let parts = state.slots as usize + 1;
    if !values.len().is_multiple_of(parts) {
        let problem = format!("{} values are no {parts} vectors", values.len());
        return Err(malformed("values", problem));
    }
    let length = values.len() / parts;
    let slots = values.split_off(length);
    let slots = slots
        .chunks_exact(length.max(1))
        .map(|slot| Arc::new(slot.to_vec()));
    let places = state.places.iter().map(place);
    let places = places
        .map(|place| place.map(|(group, incarnation, decided)| (group, (incarnation, decided))));
    Ok(BlockState {
        id: BlockId(state.block),
        slots: slots.collect(),
        values: Arc::new(values),
        version: count("version", state.version)?,
        samples_applied: count("samples_applied", state.samples_applied)?,
        decided: places.collect::<Result<_, _>>()?,
    })
}

fn place(place: &v1::Place) -> Result<(GroupId, Incarnation, Decided), Refusal> {
    let verdict = match place.verdict() {
        v1::Verdict::Applied => Verdict::Applied,
        v1::Verdict::Dropped => Verdict::Dropped,
        v1::Verdict::Skipped => Verdict::Skipped,
        other => {
            let problem = format!("{} is no verdict on a contribution", other.as_str_name());
            return Err(malformed("verdict", problem));
        }
    };
    let decided = Decided {
        clock: convert::clock("clock", place.clock).map_err(refused)?,
        verdict,
        delay: count("delay", place.delay)?,
    };
    Ok((
        GroupId(place.group),
        Incarnation(place.incarnation),
        decided,
    ))
}

fn count(field: &'static str, given: u64) -> Result<u64, Refusal> {
    convert::count(field, given).map_err(refused)
}

fn refused(Malformed { field, problem }: Malformed) -> Refusal {
    Refusal::Malformed { field, problem }
}

fn malformed(field: &'static str, problem: String) -> Refusal {
    Refusal::Malformed { field, problem }
}
