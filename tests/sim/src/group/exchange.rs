//! One rank's exchanges: frames out, answers in, on streams to whoever answers for each shard.

use std::collections::BTreeSet;
use std::sync::Arc;

use tradewind_client::core::session::{self, Frame, Identity, Kind, Purpose, Session};
use tradewind_common::pieces::{Cut, Measured, Norms, Spanning};
use tradewind_common::shares::{first_step, sync_share};
use tradewind_common::spec::ConsistencySpec;
use tradewind_common::{BlockId, Clock, GroupId, Rank, ServerId, ShardId, TensorKind};
use tradewind_core::askers::{Fresh, Wants};
use tradewind_core::block::Gradient;
use tradewind_core::decided::Verdict;
use tradewind_core::refusal::Refusal;
use tradewind_core::shard::{self, Action, Push, Reply};

use super::rank::{Process, Stream};
use super::talk::{Common, Directory, Out, Wake};
use crate::values::{self, Life};

/// Pause before a refused stream is tried again.
const PAUSE_US: u64 = 20_000;

impl Process {
    pub(super) fn begin(&mut self, start: Clock, purpose: Purpose, common: &Common) {
        let identity = Identity {
            run: common.run.clone(),
            group: self.group,
            incarnation: self.incarnation,
        };
        self.finished = None;
        if matches!(purpose, Purpose::Create | Purpose::Pull) {
            let slice = common.layout.slice(self.number_among(), self.size());
            let shard = |block: &BlockId| common.placement.shard(*block).expect("placed");
            let slice = slice.iter().map(|block| (*block, shard(block)));
            let session = Session::new(identity, start, slice);
            self.session = Some(session.with_overlap(common.overlap));
        }
        let session = self.session.as_mut().expect("it has pulled");
        session.begin(purpose, self.seen);
        let shards: BTreeSet<_> = session.slice().map(|(_, shard)| shard).collect();
        for shard in shards {
            if !self.streams.contains_key(&shard) {
                self.open(shard);
            }
            self.send(shard, common);
        }
        // A rank of a large group may have no block at all.
        self.finish();
    }

    pub(super) fn contribute(&mut self, common: &Common) {
        let life = (self.group, self.incarnation);
        let clock = self.session.as_ref().map_or(Clock(0), Session::clock);
        let some = values::gradient(life, clock, BlockId(0), 1, common.brought).is_some();
        let steps = values::local_steps(life, clock, common.spec.local_steps);
        let samples = self.size() * self.batch(clock, common) * steps;
        let purpose = if some {
            Purpose::Gradient { samples }
        } else {
            Purpose::Skip
        };
        self.begin(clock, purpose, common);
    }

    /// Samples of a rank's step at a clock: under `sync` the clock says where its data begin.
    /// Otherwise that is where a chunk begins, and nobody leases any here: what the group knows to be
    /// applied stands for it, which is the same for all its ranks.
    fn batch(&self, clock: Clock, common: &Common) -> u32 {
        let (spec, batches) = (&common.spec, common.spec.batches());
        if spec.consistency != ConsistencySpec::Sync {
            return batches.at(self.seen.samples);
        }
        let first = |clock| first_step(clock, spec.local_steps);
        let origin = (first(self.origin.0), self.origin.1);
        let who = (first(clock), GroupId(0), Rank(0));
        let share = sync_share(&spec.group_sizes, batches, spec.epoch_samples, origin, who);
        let positions = share.expect("an epoch has many batches").positions;
        (positions.end - positions.start) as u32
    }

    /// A shard has answered a frame; whether the process that did so lives.
    pub fn replied(
        &mut self,
        (shard, stream, lives): (ShardId, u64, bool),
        result: Result<Reply, Refusal>,
        common: &Common,
    ) {
        let open = self.streams.get(&shard);
        let current = open.is_some_and(|open| open.number == stream);
        match result {
            Ok(reply)
                if current || (lives && common.late_answers && self.given_up(shard, stream)) =>
            {
                self.take(&reply, common);
            }
            Err(Refusal::NotLive(_) | Refusal::StaleIncarnation { .. }) if current => {
                self.not_live();
            }
            // The run became ready while the answers to its creator were lost.
            Err(Refusal::NotCreator(_)) if current && self.creating => self.created(false),
            // Late duplicates are refused, and a refusal ends its stream.
            Err(Refusal::ClockPassed { .. } | Refusal::NotCreator(_) | Refusal::Superseded(_))
                if current =>
            {
                self.broken(shard, stream, common)
            }
            // Somebody else answers, or this one does not yet.
            Err(
                Refusal::NotPrimary(_) | Refusal::UnknownRun(_) | Refusal::NotReady | Refusal::Busy,
            ) if current => {
                let again = Wake::Broken(shard, stream);
                self.outs.push(Out::Wake(PAUSE_US, again));
            }
            Err(refusal) if current => {
                let text = format!("{:?}: {refusal}", self.caller());
                self.outs.push(Out::Unexpected(text));
            }
            _ => {}
        }
    }

    fn take(&mut self, reply: &Reply, common: &Common) {
        let Some(session) = &mut self.session else {
            return;
        };
        if !session.answer(&answer(reply)) {
            return;
        }
        let version = (reply.lineage, reply.version);
        let life = (self.group, self.incarnation);
        if let Some(values) = self.take_values(reply, common) {
            self.outs
                .push(Out::Took(life, reply.block, version, values));
        }
        self.answered.insert(reply.block, version);
        self.finish();
    }

    /// Takes the values of an answer in, as a client does. What it has of the block then, where
    /// answers may be differences.
    fn take_values(&mut self, reply: &Reply, common: &Common) -> Option<Vec<f32>> {
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

    fn finish(&mut self) {
        let Some(summary) = self.session.as_mut().and_then(Session::finish) else {
            return;
        };
        if self.creating {
            return self.created(true);
        }
        self.finished = Some(summary);
        self.exchanged(summary);
    }

    /// Hears who answers for the shards, and turns to whoever does now.
    pub(super) fn learn(&mut self, directory: Arc<Directory>, common: &Common) {
        if directory.generation <= self.directory.generation {
            return;
        }
        self.directory = directory;
        let shards = self.session.iter().flat_map(|session| session.slice());
        let shards: BTreeSet<_> = shards.map(|(_, shard)| shard).collect();
        for shard in shards {
            let primary = self.directory.primary(shard);
            let known = self.streams.get(&shard).map(|stream| stream.to);
            if primary.is_some() && primary != known {
                self.open(shard);
                self.send(shard, common);
            }
        }
    }

    pub(super) fn broken(&mut self, shard: ShardId, stream: u64, common: &Common) {
        if self.streams.get(&shard).is_some_and(|s| s.number == stream) {
            self.open(shard);
            self.send(shard, common);
        }
    }

    pub(super) fn server_gone(&mut self, server: ServerId, common: &Common) {
        let gone = self.streams.iter().filter(|(_, s)| s.to.server == server);
        let gone: Vec<_> = gone.map(|(shard, s)| (*shard, s.number)).collect();
        for (shard, stream) in gone {
            self.broken(shard, stream, common);
        }
    }

    /// A new stream to whoever answers for the shard; none while nobody does.
    fn open(&mut self, shard: ShardId) {
        let former = self.streams.remove(&shard);
        if let Some(to) = self.directory.primary(shard) {
            let number = self.next();
            let same = former.filter(|former| former.to == to);
            let first = same.map_or(number, |same| same.first);
            self.streams.insert(shard, Stream { to, number, first });
        }
    }

    /// Sends what is unanswered.
    fn send(&mut self, shard: ShardId, common: &Common) {
        let (Some(session), Some(stream)) = (&self.session, self.streams.get(&shard)) else {
            return;
        };
        let frames: Vec<Frame> = session.frames(shard).collect();
        let (server, number) = (stream.to.server, stream.number);
        let wrong = frames.iter().find(|frame| {
            let computed_on = self.computed_on.get(&frame.block).copied();
            matches!(frame.purpose, Purpose::Gradient { .. })
                && (frame.lineage, frame.pulled_version) != computed_on.unwrap_or_default()
        });
        if let Some(frame) = wrong {
            let text = format!("{frame:?} was computed on {:?}", self.computed_on);
            self.outs.push(Out::Unexpected(text));
        }
        for frame in &frames {
            let push = self.push(frame, common);
            self.outs.push(Out::Frame(server, shard, number, push));
        }
    }

    fn push(&self, frame: &Frame, common: &Common) -> Push {
        let life = (self.group, self.incarnation);
        let block = common.layout.block(frame.block).expect("a block");
        let length = block.elements.len();
        let gradient = || values::gradient(life, frame.clock, frame.block, length, common.brought);
        let action = match frame.purpose {
            Purpose::Gradient { samples } => {
                Action::Contribute(gradient().map(|values| Gradient {
                    values,
                    samples,
                    pulled_version: frame.pulled_version,
                    lineage: frame.lineage,
                    seen: frame.seen,
                    norms: norms(life, frame.clock, frame.block, common),
                }))
            }
            Purpose::Skip => Action::Contribute(None),
            Purpose::Pull => Action::Pull,
            Purpose::Create => {
                Action::Create(values::initial(life, frame.block, length, common.brought))
            }
        };
        Push {
            group: self.group,
            incarnation: self.incarnation,
            clock: frame.clock,
            block: frame.block,
            wants: Wants::Difference { holds: frame.holds },
            action,
        }
    }
}

/// The norms that a block's gradient is pushed with, as a client finds them.
fn norms(life: Life, clock: Clock, block: BlockId, common: &Common) -> Vec<Norms> {
    if !common.spec.optimizer.capabilities().layerwise() {
        return Vec::new();
    }
    let (cut, layout) = (Cut::of(&common.spec), &common.layout);
    let spanning = Arc::new(Spanning::new(cut, layout, &[block]));
    let tensors = spanning.tensors().iter();
    let norms = tensors.map(|tensor| values::norms(life, clock, layout, tensor));
    Measured::new(&spanning, norms.collect())
        .of_block(block)
        .to_vec()
}

/// What a session needs to know of a reply.
fn answer(reply: &Reply) -> session::Answer {
    let (kind, decided) = match reply.answer {
        shard::Answer::Decided(decided, _) => (Kind::Decided, Some(decided)),
        shard::Answer::Read => (Kind::Read, None),
        shard::Answer::Created => (Kind::Created, None),
    };
    let of = |verdict| decided.filter(|decided| decided.verdict == verdict);
    session::Answer {
        block: reply.block,
        clock: reply.clock,
        kind,
        next: reply.next,
        version: reply.version,
        lineage: reply.lineage,
        values: true,
        delay: of(Verdict::Applied).map(|decided| decided.delay),
        dropped: of(Verdict::Dropped).is_some(),
        lag: reply.lag,
        waited_us: reply.waited_us,
        samples_applied: reply.samples_applied,
        stop: reply.stop,
    }
}
