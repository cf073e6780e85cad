//! Snapshots hold what was, and what is restored is what they hold (rule 10).

use std::collections::BTreeMap;
use std::sync::Arc;

use tradewind_common::placement::Placement;
use tradewind_common::spec::RunSpec;
use tradewind_common::{BlockId, Clock, Generation, ServerId, ShardId};
use tradewind_core::decided::Verdict;
use tradewind_core::shard::Shard;
use tradewind_core::state::BlockState;

use super::block::Record;
use super::history::find;
use super::{Checker, Rule, Violation};

/// What the observer knows of a block in a snapshot.
#[derive(Clone, Debug)]
pub struct Saved(Record);

/// A block in a snapshot.
#[derive(Debug)]
pub(super) struct Part {
    shard: ShardId,
    since: Generation,
    block: BlockId,
    step: usize,
    at_clock: Option<Clock>,
}

impl Checker {
    /// A primary's part of a snapshot leaves it, to be written. Under `sync` it holds every block
    /// as after exactly the clocks before `at_clock`.
    pub fn captured(
        &mut self,
        (server, shard): (ServerId, ShardId),
        number: u64,
        states: &[BlockState],
        at_clock: Option<Clock>,
    ) -> Result<BTreeMap<BlockId, Saved>, Violation> {
        let broken = |text: String| Err(Violation::new(Rule::Snapshots, text));
        let Some(log) = self.log(server, shard) else {
            return broken(format!("server {server} is not primary of shard {shard}"));
        };
        let mut saved = BTreeMap::new();
        let mut told = Vec::new();
        for state in states {
            let record = &log.records[&state.id];
            let Some(step) = find(&record.history, state) else {
                return broken(format!("block {} never was as {state:?}", state.id));
            };
            if let Some(difference) = record.history[step].differs(state) {
                return broken(format!("block {}: {difference}", state.id));
            }
            if let Some(at) = at_clock {
                check_clock(record, step, at)?;
            }
            told.push((state.id, step));
            saved.insert(state.id, Saved(record.at(step)));
        }
        if !log.records.keys().eq(saved.keys()) {
            return broken(format!("a snapshot of shard {shard} lacks blocks"));
        }
        let since = self.roles[&(server, shard)];
        for (block, step) in told {
            self.tell(shard, since, block, step)?;
            let part = Part {
                shard,
                since,
                block,
                step,
                at_clock,
            };
            self.parts.entry(number).or_default().push(part);
        }
        Ok(saved)
    }

    /// A snapshot is whole: what is decided from now on must not belong into it.
    pub fn whole(&mut self, number: u64) {
        let parts = self.parts.remove(&number);
        self.kept.extend(parts.into_iter().flatten());
    }

    /// Under `sync` nothing before the clock of a snapshot came after a block was captured for it.
    pub(super) fn check_kept(&self) -> Result<(), Violation> {
        for part in &self.kept {
            let log = self
                .logs
                .get(&part.shard)
                .and_then(|logs| logs.get(&part.since));
            let (Some(log), Some(at)) = (log, part.at_clock) else {
                continue;
            };
            check_clock(&log.records[&part.block], part.step, at)?;
        }
        Ok(())
    }

    /// A shard is about to have these blocks, in a new lineage.
    pub fn restores(
        &mut self,
        shard: ShardId,
        lineage: Generation,
        saved: BTreeMap<BlockId, Saved>,
    ) {
        self.restored.insert((shard, lineage), saved);
        self.report.counts.restored += 1;
    }

    /// What is known of the blocks that a shard has from a snapshot.
    pub(super) fn restored_records(
        &self,
        id: ShardId,
        shard: &Shard,
        saved: Option<&BTreeMap<BlockId, Saved>>,
    ) -> Result<BTreeMap<BlockId, Record>, Violation> {
        let Some(saved) = saved else {
            let text = format!("shard {id} has another lineage, but was not restored");
            return Err(Violation::new(Rule::Snapshots, text));
        };
        let mut records = BTreeMap::new();
        for (block, own) in shard.blocks() {
            let mut record = saved[&block].0.clone();
            let was = record.now().expect("only what is created is captured");
            let state = own.state();
            let same = state.as_ref().filter(|state| {
                find(&record.history, state) == Some(record.history.len() - 1)
                    && was.differs(state).is_none()
            });
            if same.is_none() {
                let rule = match state.as_ref().is_none_or(|state| state.version == 0) {
                    true => Rule::NoFreshStart,
                    false => Rule::Snapshots,
                };
                let text = format!("block {block} was restored as {state:?}, not as {was:?}");
                return Err(Violation::new(rule, text));
            }
            record.live.clear();
            record.taken_over();
            records.insert(block, record);
        }
        Ok(records)
    }

    /// Everything has ended, and the run goes on from a snapshot, elsewhere.
    pub fn resumed(&mut self, spec: &RunSpec, placement: Arc<Placement>) {
        self.keep_reached();
        self.missing.clear();
        self.begun.clear();
        self.told.clear();
        self.told_to_stop = false;
        self.terms = self.terms.of_resumed(spec);
        self.placement = placement;
        self.logs.clear();
        self.roles.clear();
        self.restored.clear();
        self.parts.clear();
        self.kept.clear();
    }
}

/// Under `sync`: exactly the clocks before `at` are in.
fn check_clock(record: &Record, step: usize, at: Clock) -> Result<(), Violation> {
    let clock = |of: usize| {
        let verdicts = record.decided.iter();
        // What came too late for its clock has changed nothing.
        let made = verdicts.filter(|(_, verdict)| verdict.decided.verdict != Verdict::Dropped);
        let of_step = made.filter(move |(_, verdict)| verdict.step == of);
        of_step.map(|((_, clock), _)| *clock).max()
    };
    let before = (0..=step).filter_map(clock).max();
    let after = (step + 1..record.history.len()).find_map(clock);
    if before < Some(at) && after.is_none_or(|after| after >= at) {
        return Ok(());
    }
    let text = format!(
        "block {} is in a snapshot at clock {at} after {before:?} and before {after:?}",
        record.id
    );
    Err(Violation::new(Rule::Snapshots, text))
}
