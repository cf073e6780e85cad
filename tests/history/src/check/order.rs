//! What follows from the order of time: who was answered before whom.

use super::index::Index;
use super::violation::{Rule, Told, Violation};
use super::{Report, not};
use crate::record::{Action, Operation, Policy, Verdict, Version};

/// What happens, in the order in which it counts where times are equal: what is sent at the time of
/// an answer may have been sent before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    Sent(usize),
    Answered(usize),
    Live(u32, u64),
}

/// What is known at a moment.
struct Known<'h> {
    /// By block, the latest state that anybody was told, and by which answer.
    told: Vec<Option<(Version, &'h Operation)>>,
    /// By block and group, the last contribution that was sent.
    sent: Vec<Vec<Option<&'h Operation>>>,
    /// By group, the latest life that was live.
    lives: Vec<u64>,
}

/// What was known when an operation was sent.
#[derive(Clone, Copy, Default)]
struct Before<'h> {
    told: Option<(Version, &'h Operation)>,
    life: u64,
}

/// Goes through a history once, in the order of time.
pub(super) fn check(index: &Index<'_>, report: &mut Report) -> Result<(), Violation> {
    let operations = &index.operations;
    let mut moments = Vec::with_capacity(2 * operations.len());
    for (at, operation) in operations.iter().enumerate() {
        moments.push((operation.start_us, Moment::Sent(at)));
        if let Some(answer) = &operation.answer {
            moments.push((answer.end_us, Moment::Answered(at)));
        }
    }
    for life in index.lives.iter().flatten() {
        moments.push((life.from_us, Moment::Live(life.group, life.incarnation)));
    }
    index.work.sort(&mut moments, |moment| *moment);

    let (blocks, groups) = (index.blocks.len(), index.run.groups as usize);
    let mut known = Known {
        told: vec![None; blocks],
        sent: vec![vec![None; groups]; blocks],
        lives: vec![0; groups],
    };
    let mut before = vec![Before::default(); operations.len()];
    for (_, moment) in moments {
        index.work.add(1);
        match moment {
            Moment::Live(group, incarnation) => {
                let latest = &mut known.lives[group as usize];
                *latest = (*latest).max(incarnation);
            }
            Moment::Sent(at) => {
                let operation = operations[at];
                let block = operation.block as usize;
                before[at] = Before {
                    told: known.told[block],
                    life: known.lives[operation.group as usize],
                };
                if operation.action != Action::Pull {
                    known.sent(operation);
                }
            }
            Moment::Answered(at) => known.answered(index, operations[at], before[at], report)?,
        }
    }
    Ok(())
}

impl<'h> Known<'h> {
    fn sent(&mut self, operation: &'h Operation) {
        let last = &mut self.sent[operation.block as usize][operation.group as usize];
        let key = |o: &Operation| (o.incarnation, o.clock);
        if last.is_none_or(|last| key(last) < key(operation)) {
            *last = Some(operation);
        }
    }

    fn answered(
        &mut self,
        index: &Index<'_>,
        operation: &'h Operation,
        before: Before<'h>,
        report: &mut Report,
    ) -> Result<(), Violation> {
        let answer = operation.answer.as_ref().expect("it was answered");
        let fits = match operation.action {
            Action::Contribute => matches!(answer.verdict, Verdict::Applied | Verdict::Dropped),
            Action::Skip => matches!(answer.verdict, Verdict::Skipped | Verdict::Dropped),
            Action::Pull => answer.verdict == Verdict::Read,
        };
        not(!fits, || {
            let text = format!("{}: no such verdict can be", Told(operation));
            Violation::new(Rule::Verdict, &[operation], text)
        })?;
        not((1..before.life).contains(&operation.incarnation), || {
            let text = format!(
                "life {} of group {} was live before {} was sent",
                before.life,
                operation.group,
                Told(operation)
            );
            Violation::new(Rule::Fenced, &[operation], text)
        })?;
        if let Some((told, whose)) = before.told {
            let old = answer.of.lineage < told.lineage;
            // A single holder that was deposed without knowing it has nobody to ask.
            report.from_old_lineages += u64::from(old);
            not(old && index.run.replication > 1, || {
                let text = format!(
                    "{} was answered from lineage {} before {} was sent",
                    Told(whose),
                    told.lineage,
                    Told(operation)
                );
                Violation::new(Rule::OldLineage, &[whose, operation], text)
            })?;
            not(!old && answer.of < told, || {
                let text = format!(
                    "{} was sent after {} had been answered",
                    Told(operation),
                    Told(whose)
                );
                Violation::new(Rule::Stale, &[whose, operation], text)
            })?;
        }
        let told = &mut self.told[operation.block as usize];
        if told.is_none_or(|(told, _)| told < answer.of) {
            *told = Some((answer.of, operation));
        }
        self.staleness(index, operation)
    }

    /// Whether a group can have been so far behind a contribution when that was applied: at most it
    /// had sent what it has sent by now. Behind values that were restored it counts only once it is
    /// heard again, which nobody sees.
    fn staleness(&self, index: &Index<'_>, operation: &Operation) -> Result<(), Violation> {
        let answer = operation.answer.as_ref().expect("it was answered");
        let Policy::Bounded(bound) = index.run.policy else {
            return Ok(());
        };
        if answer.verdict != Verdict::Applied || answer.repeated || answer.of.lineage > 0 {
            return Ok(());
        }
        for (group, sent) in self.sent[operation.block as usize].iter().enumerate() {
            index.work.add(1);
            let live = index.live(group, operation.start_us, answer.end_us);
            let Some(life) = live.filter(|_| group != operation.group as usize) else {
                continue;
            };
            let sent = sent.filter(|sent| sent.incarnation >= life.incarnation);
            let stands = match sent {
                Some(sent) if sent.incarnation > life.incarnation => continue,
                Some(sent) => sent.clock.saturating_add(1),
                None => life.start_clock,
            };
            not(operation.clock > stands.saturating_add(bound), || {
                let text = format!(
                    "{}, though group {group} was live and stood at clock {stands} at most, under a \
                     bound of {bound}",
                    Told(operation)
                );
                let mut both = vec![operation];
                both.extend(sent);
                Violation::new(Rule::Staleness, &both, text)
            })?;
        }
        Ok(())
    }
}
