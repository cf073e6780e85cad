//! What was answered and who still has it; what a restored shard lacks (rules 4 and 11). Nothing here
//! follows from what a coordinator thinks: only from what primaries decided and answered, and from
//! what a process holds in its memory.

use std::collections::BTreeMap;

use tradewind_common::{BlockId, Generation, ServerId, ShardId};
use tradewind_core::shard::{Reply, Shard};
use tradewind_core::state::BlockState;

use super::Checker;
use super::history::{Step, find};
use super::log::Log;

/// What a restored shard lacks, in updates of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// What had been answered.
    pub least: u64,
    /// What any process had ever decided.
    pub most: u64,
    /// As `least`, in samples: the most of any block.
    pub samples_least: u64,
    /// As `most`, in samples.
    pub samples_most: u64,
}

impl Missing {
    fn add(&mut self, block: Self) {
        self.least += block.least;
        self.most += block.most;
        self.samples_least = self.samples_least.max(block.samples_least);
        self.samples_most = self.samples_most.max(block.samples_most);
    }

    /// With what another shard lacks, or the same one another time.
    pub fn and(self, other: Self) -> Self {
        Self {
            least: self.least + other.least,
            most: self.most + other.most,
            samples_least: self.samples_least.max(other.samples_least),
            samples_most: self.samples_most + other.samples_most,
        }
    }
}

/// How far a block had come: version and samples, as far as it was answered, and as far as anybody
/// had decided.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reached {
    answered: (u64, u64),
    decided: (u64, u64),
}

impl Reached {
    fn without(self, (version, samples): (u64, u64)) -> Missing {
        Missing {
            least: self.answered.0.saturating_sub(version),
            most: self.decided.0.saturating_sub(version),
            samples_least: self.answered.1.saturating_sub(samples),
            samples_most: self.decided.1.saturating_sub(samples),
        }
    }
}

/// How a restored lineage began.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    /// The lineage before it.
    after: Option<Generation>,
    /// Versions and samples.
    blocks: Vec<(BlockId, (u64, u64))>,
}

impl Checker {
    /// Who answered for a shard last, and since when it did.
    pub fn last_primary(&self, id: ShardId) -> Option<(ServerId, Generation)> {
        let (since, log) = self.logs.get(&id)?.last_key_value()?;
        Some((log.server, *since))
    }

    /// The lineage that was answered from last.
    pub fn last_lineage(&self, id: ShardId) -> Option<Generation> {
        let (_, log) = self.logs.get(&id)?.last_key_value()?;
        Some(log.lineage)
    }

    /// Whether any answer told of an update of a shard since its values were created or restored.
    pub fn answered_any(&self, id: ShardId) -> bool {
        let last = self
            .logs
            .get(&id)
            .and_then(|logs| logs.last_key_value())
            .map(|(_, log)| log);
        last.is_some_and(|last| {
            let began = |block: &BlockId| last.began.get(block).copied().unwrap_or(0);
            last.floor.iter().any(|(block, step)| *step > began(block))
        })
    }

    /// Whether a process has everything that was answered of a shard, in what it holds: each block
    /// is in the history of whoever answered last, or of one before, as far as that one was
    /// followed, and not before what was answered.
    pub fn has_all(&self, id: ShardId, shard: &Shard) -> bool {
        let Some(logs) = self.logs.get(&id) else {
            return false;
        };
        let Some((last, log)) = logs.last_key_value() else {
            return false;
        };
        shard.blocks().all(|(block, own)| {
            let Some(state) = own.state() else {
                return !log.floor.contains_key(&block);
            };
            let began = log.began.get(&block).copied().unwrap_or(0);
            let needed = log.floor.get(&block).copied().unwrap_or(began);
            let mut of = Some(*last);
            // Beyond a fork the histories differ.
            let mut common = usize::MAX;
            while let Some(since) = of {
                let log = &logs[&since];
                if needed > common {
                    return false;
                }
                let step = log
                    .records
                    .get(&block)
                    .and_then(|record| find(&record.history, &state));
                if step.is_some_and(|step| step >= needed) {
                    return true;
                }
                common = common.min(log.fork.get(&block).copied().unwrap_or(usize::MAX));
                of = log.parent;
            }
            false
        })
    }

    /// How far the blocks of a shard have come in the lineage that was answered from last.
    fn reached(&self, id: ShardId) -> BTreeMap<BlockId, Reached> {
        let none = BTreeMap::new();
        let logs = self.logs.get(&id).unwrap_or(&none);
        let Some((_, last)) = logs.last_key_value() else {
            let of = |block: BlockId| Some((block, *self.before_resume.get(&block)?));
            return self.placement.blocks(id).filter_map(of).collect();
        };
        let of_lineage = || {
            logs.values()
                .filter(|log: &&Log| log.lineage == last.lineage)
        };
        let reached = |block: &BlockId| {
            let record = &last.records[block];
            let began = last.began.get(block).copied().unwrap_or(0);
            let at = |step: &Step| (step.version, step.samples);
            let began = record.history.get(began).map(at).unwrap_or_default();
            let told = self.told.get(&(*block, last.lineage)).copied();
            let answered = told.unwrap_or(began);
            let ends = of_lineage().filter_map(|log| log.records.get(block)?.now());
            let decided = ends.map(at).max().unwrap_or_default();
            Reached { answered, decided }
        };
        let blocks = last.records.keys();
        blocks.map(|block| (*block, reached(block))).collect()
    }

    /// An answer told of a block.
    pub(super) fn note_told(&mut self, reply: &Reply) {
        let told = (reply.version, reply.samples_applied);
        let of = (reply.block, reply.lineage);
        let known = self.told.entry(of).or_insert(told);
        *known = told.max(*known);
    }

    /// Everything ends: how far each block had come.
    pub(super) fn keep_reached(&mut self) {
        let shards: Vec<ShardId> = self.logs.keys().copied().collect();
        for id in shards {
            let reached = self.reached(id);
            self.before_resume.extend(reached);
        }
    }

    /// A server counts what these values, which it has read for a lineage, lack. Without copies the
    /// former primary may be only cut off, and answer more: nobody can count that.
    pub fn counts_lost(&mut self, of: (ShardId, Generation), states: &[BlockState]) {
        let come = states
            .iter()
            .map(|s| (s.id, (s.version, s.samples_applied)));
        let missing = self.without(of.0, come);
        self.counted.insert(of, missing);
    }

    /// A server is about to lead a shard in a new lineage: what it lacks.
    pub(super) fn lacks(&mut self, id: ShardId, shard: &Shard) {
        // One that hears late that it may lead, when another lineage is answered from already.
        if self.last_lineage(id) > Some(shard.lineage()) {
            return;
        }
        let blocks = shard.blocks();
        let come = blocks.map(|(id, own)| (id, (own.version(), own.samples_applied())));
        let blocks: Vec<_> = come.collect();
        let mut missing = self.without(id, blocks.iter().copied());
        let lineage = (id, shard.lineage());
        if let Some(counted) = self.counted.get(&lineage) {
            missing.least = missing.least.min(counted.least);
            missing.samples_least = missing.samples_least.min(counted.samples_least);
        }
        let begun = Begun {
            after: self.last_lineage(id),
            blocks,
        };
        self.missing.entry(lineage).or_insert(missing);
        self.begun.entry(lineage).or_insert(begun);
    }

    /// The primary of a restored lineage looks again at what was answered in the one before.
    pub fn recounts_lost(&mut self, of: (ShardId, Generation)) {
        let Some((begun, missing)) = self.begun.get(&of).zip(self.missing.get_mut(&of)) else {
            return;
        };
        let Some(after) = begun.after else {
            return;
        };
        let mut now = Missing::default();
        for (block, came) in &begun.blocks {
            let answered = self.told.get(&(*block, after)).copied().unwrap_or(*came);
            let reached = Reached {
                answered,
                decided: answered,
            };
            now.add(reached.without(*came));
        }
        missing.least = missing.least.max(now.least);
        missing.most = missing.most.max(now.most);
        missing.samples_least = missing.samples_least.max(now.samples_least);
        missing.samples_most = missing.samples_most.max(now.samples_most);
    }

    fn without(&self, id: ShardId, come: impl Iterator<Item = (BlockId, (u64, u64))>) -> Missing {
        let reached = self.reached(id);
        let mut missing = Missing::default();
        for (block, come) in come {
            let reached = reached.get(&block).copied().unwrap_or_default();
            missing.add(reached.without(come));
        }
        missing
    }

    /// What all restored shards lacked, since the run was resumed if it was.
    pub fn missing(&self) -> Missing {
        let all = self.missing.values().copied();
        all.fold(Missing::default(), Missing::and)
    }
}
