//! What a shard tells of steps, where traces are asked for: from the first of a group's frames of a clock to the last
//! answer to them, and what a copy did of it. Of both a server knows group and clock in any case.

use std::collections::HashMap;

use tradewind_common::{Clock, GroupId, RunId, ServerId, ShardId};
use tradewind_core::ReplyTo;
use tradewind_core::log::LogEntry;
use tradewind_core::shard::{Action, Answer, Push, Reply};
use tradewind_traces::{Span, Tracer, Who};

use crate::clock::wall;

/// Groups whose steps are followed at a time; of more nothing is told.
const GROUPS_MAX: usize = 4096;

/// Streams of which it is known whose they are.
const STREAMS_MAX: usize = 1 << 16;

/// The steps that are under way at a shard.
pub(super) struct Traces {
    tracer: Tracer,
    run: String,
    shard: u32,
    server: u32,
    /// All that the shard has: each is in every exchange.
    blocks: u64,
    /// Nanoseconds since the Unix epoch at which the server's clock was 0.
    origin_ns: u64,
    /// Whose a stream is.
    streams: HashMap<ReplyTo, GroupId>,
    /// By group, as primary and as a copy.
    under_way: HashMap<(GroupId, bool), UnderWay>,
}

/// A step of a group.
#[derive(Clone, Copy)]
struct UnderWay {
    clock: Clock,
    begun_us: u64,
    ended_us: u64,
    /// Blocks that were decided, and answered or recorded.
    blocks: u64,
    bytes: u64,
    waited_us: u64,
    lag: u64,
}

impl Traces {
    pub(super) fn new(
        tracer: Tracer,
        (run, shard): &(RunId, ShardId),
        server: ServerId,
        now_us: u64,
        blocks: usize,
    ) -> Self {
        Self {
            tracer,
            run: run.to_string(),
            shard: shard.0,
            server: server.0,
            blocks: blocks as u64,
            origin_ns: ((wall() * 1e9) as u64).saturating_sub(1000 * now_us),
            streams: HashMap::new(),
            under_way: HashMap::new(),
        }
    }

    /// A group's step, begun now if it was not; the one before is told, if it is still there.
    fn step(&mut self, of: (GroupId, bool), clock: Clock, now_us: u64) -> Option<&mut UnderWay> {
        if self.under_way.get(&of).is_some_and(|is| is.clock != clock) {
            self.tell(of);
        }
        if self.under_way.len() >= GROUPS_MAX && !self.under_way.contains_key(&of) {
            return None;
        }
        let begun = UnderWay {
            clock,
            begun_us: now_us,
            ended_us: now_us,
            blocks: 0,
            bytes: 0,
            waited_us: 0,
            lag: 0,
        };
        Some(self.under_way.entry(of).or_insert(begun))
    }

    /// A frame has come, with so many bytes of values.
    pub(super) fn pushed(&mut self, push: &Push, bytes: usize, to: ReplyTo, now_us: u64) {
        if !matches!(push.action, Action::Contribute(_)) {
            return;
        }
        if self.streams.len() >= STREAMS_MAX {
            self.streams.clear();
        }
        self.streams.insert(to, push.group);
        if let Some(step) = self.step((push.group, false), push.clock, now_us) {
            step.bytes += bytes as u64;
        }
    }

    /// A frame is answered.
    pub(super) fn answered(&mut self, to: ReplyTo, reply: &Reply, now_us: u64) {
        let Some(group) = self.streams.get(&to).copied() else {
            return;
        };
        if !matches!(reply.answer, Answer::Decided(..)) {
            return;
        }
        let (of, blocks) = ((group, false), self.blocks);
        let Some(step) = self
            .under_way
            .get_mut(&of)
            .filter(|step| step.clock == reply.clock)
        else {
            return;
        };
        step.ended_us = now_us;
        step.blocks += 1;
        step.waited_us = step.waited_us.max(reply.waited_us);
        step.lag = step.lag.max(reply.lag);
        if step.blocks == blocks {
            self.tell(of);
        }
    }

    /// As a copy, a record of the primary has been applied, from a moment to now.
    pub(super) fn recorded(&mut self, entry: &LogEntry, (from_us, now_us): (u64, u64)) {
        let LogEntry::Update(update) = entry else {
            return;
        };
        let blocks = self.blocks;
        let bytes = update
            .applied
            .as_ref()
            .map_or(0, |of| 4 * of.gradient.len());
        for (group, _, decided) in &update.decided {
            let of = (*group, true);
            let Some(step) = self.step(of, decided.clock, from_us) else {
                continue;
            };
            step.ended_us = now_us;
            step.blocks += 1;
            step.bytes += bytes as u64;
            if step.blocks == blocks {
                self.tell(of);
            }
        }
    }

    fn tell(&mut self, of: (GroupId, bool)) {
        let Some(step) = self.under_way.remove(&of) else {
            return;
        };
        let (group, as_copy) = of;
        let mut counts = vec![
            ("tradewind.blocks", step.blocks),
            ("tradewind.bytes", step.bytes),
        ];
        if !as_copy {
            counts.push(("tradewind.waited_us", step.waited_us));
            counts.push(("tradewind.lag", step.lag));
        }
        let (shard, server) = (self.shard, self.server);
        let span = Span {
            group,
            clock: step.clock,
            who: match as_copy {
                true => Who::Copy { shard, server },
                false => Who::Shard(shard),
            },
            begun_ns: self.origin_ns + 1000 * step.begun_us,
            ended_ns: self.origin_ns + 1000 * step.ended_us,
            counts,
        };
        self.tracer.tell(&self.run, span);
    }
}

/// Steps whose last frames never came.
impl Drop for Traces {
    fn drop(&mut self) {
        let left: Vec<_> = self.under_way.keys().copied().collect();
        left.into_iter().for_each(|of| self.tell(of));
    }
}
