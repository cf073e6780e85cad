//! Answers show a block as it was, and what they tell has to stay (rules 2, 4 and 6).

use std::collections::BTreeSet;

use tradewind_common::{BlockId, Clock, Generation, ServerId, ShardId, TensorKind};
use tradewind_core::ReplyTo;
use tradewind_core::decided::Verdict;
use tradewind_core::shard::{Answer, Reply};

use super::{Checker, Rule, Violation, block};
use crate::values::Life;

impl Checker {
    pub(super) fn answered(
        &mut self,
        (server, shard): (ServerId, ShardId),
        to: ReplyTo,
        reply: &Reply,
    ) -> Result<(), Violation> {
        let life = self.streams[&to];
        let Some(log) = self.log(server, shard) else {
            let text = format!("server {server} is not primary of shard {shard}: {reply:?}");
            return Err(Violation::new(Rule::NothingLost, text));
        };
        let broken = |text: String| Err(Violation::new(Rule::NoFreshStart, text));
        match reply.answer {
            Answer::Created if !log.creates.contains(&(to, reply.block)) => {
                return broken(format!("{life:?} created block {}", reply.block));
            }
            Answer::Read | Answer::Decided(..) if !log.ready => {
                return broken(format!(
                    "block {} was read or pushed before ready",
                    reply.block
                ));
            }
            Answer::Created | Answer::Read | Answer::Decided(..) => {}
        }
        let step = log.told((to, life), reply)?;
        if self.terms.policies.staleness.capabilities().compensates() {
            let log = self.log_mut(server, shard).expect("looked up above");
            let record = log.records.get_mut(&reply.block).expect("it was told");
            record.sent.insert((life, reply.version));
        }
        self.check_values((to, life), (server, shard), step, reply)?;
        self.note_told(reply);
        self.told_to_stop |= reply.stop;
        if let Answer::Decided(decided, repeat) = reply.answer {
            self.report.counts.repeated += u64::from(repeat);
            let dropped = decided.verdict == Verdict::Dropped && !repeat;
            self.report.counts.dropped += u64::from(dropped);
            let told = self.traffic.told.entry((reply.block, life));
            let told = told.or_insert(decided.clock);
            *told = (*told).max(decided.clock);
            let next = self.traffic.next.entry(life).or_default();
            *next = (*next).max(reply.next);
        }
        let since = self.roles[&(server, shard)];
        self.tell(shard, since, reply.block, step)
    }

    /// Every answer shows a step as it was.
    fn check_values(
        &mut self,
        (to, life): (ReplyTo, Life),
        (server, shard): (ServerId, ShardId),
        step: usize,
        reply: &Reply,
    ) -> Result<(), Violation> {
        let since = self.roles[&(server, shard)];
        let log = &self.logs[&shard][&since];
        let record = &log.records[&reply.block];
        let step = &record.history[step];
        let stop = step.samples >= self.terms.samples;
        let broken = |text| Err(Violation::new(Rule::ExactlyOnce, text));
        if (reply.lineage, reply.samples_applied, reply.stop) != (log.lineage, step.samples, stop) {
            return broken(format!("{reply:?} of {step:?}"));
        }
        if record.kind == TensorKind::Parameter && self.terms.down.lossy() {
            let held = self.held.entry(reply.block).or_default();
            let exact = (self.terms.down, &step.values[..]);
            let taken = held.answered((to, life, since), reply, exact);
            return taken
                .or_else(|problem| broken(format!("block {}, {life:?}: {problem}", reply.block)));
        }
        let fresh = reply.fresh.values();
        let near = |(x, y): (&f64, &f32)| block::near(*x, *y);
        let equal = match &step.state {
            Some(state) => **state.values == *fresh,
            None => fresh.len() == step.values.len() && step.values.iter().zip(fresh).all(near),
        };
        if equal {
            return Ok(());
        }
        broken(format!("{reply:?} of {step:?}"))
    }

    /// A step was told: all that follow this primary must have it.
    pub(super) fn tell(
        &mut self,
        shard: ShardId,
        since: Generation,
        block: BlockId,
        step: usize,
    ) -> Result<(), Violation> {
        let logs = self.logs.get_mut(&shard).expect("it has a log");
        if logs.last_key_value().is_some_and(|(last, _)| *last > since) {
            self.report.counts.late_answers += 1;
        }
        let mut parents = BTreeSet::from([since]);
        for (of, log) in logs.range_mut(since..) {
            if *of != since && log.parent.is_none_or(|parent| !parents.contains(&parent)) {
                continue;
            }
            parents.insert(*of);
            let fork = log.fork.get(&block).copied().unwrap_or(usize::MAX);
            if *of != since && step > fork {
                let text = format!(
                    "the primary of shard {shard} since {since} answered step {step} of block \
                     {block}, but the one since {of} has only {fork} of it"
                );
                return Err(Violation::new(Rule::NothingLost, text));
            }
            let floor = log.floor.entry(block).or_insert(step);
            *floor = (*floor).max(step);
        }
        Ok(())
    }

    /// A life has taken the answer of a version in, and has these values now.
    pub fn took(
        &self,
        life: Life,
        block: BlockId,
        version: (Generation, u64),
        values: &[f32],
    ) -> Result<(), Violation> {
        if self.held[&block].has(life, version, values) {
            return Ok(());
        }
        let text = format!("{life:?} has {values:?} of block {block} at version {version:?}");
        Err(Violation::new(Rule::ExactlyOnce, text))
    }

    /// A group holds the answers of all blocks: each of them must have been decided.
    pub fn ticked(&self, life: Life, clock: Clock) -> Result<(), Violation> {
        let told = |block| self.traffic.told.get(&(block, life)).copied();
        let missing = self.blocks.keys().filter(|id| told(**id) < Some(clock));
        let missing: BTreeSet<_> = missing.map(|id| id.0).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let text = format!("{life:?} finished clock {clock} without blocks {missing:?}");
        Err(Violation::new(Rule::ExactlyOnce, text))
    }
}
