//! The judgement, in passes that each look at every operation a bounded number of times.
//!
//! Everything is sorted first: by time, by block and version, by block and clock. Then
//!
//! - in the order of time, an answer must tell no less than what anybody had been told when it was
//!   asked for (`order.rs`);
//! - each contribution is decided once in a lineage (`once.rs`);
//! - the states of a block in a lineage, in the order of their versions, are one vector clock each
//!   that adds up to its version, and none goes back (`states.rs`);
//! - what a group brought (`brought.rs`) is what it counts (`counted.rs`): the values of the answer to
//!   its n-th contribution count it n times, give or take those of which no answer ever came, whose
//!   fate is settled by the next answer; so nothing is missing and nothing is there twice. With which
//!   counts a lineage began follows from its first answers;
//! - what is missing when a lineage begins was told (`loss.rs`).
//!
//! Where operations overlap, only what no order of them explains is a violation.

mod brought;
mod counted;
mod index;
mod loss;
mod once;
mod order;
mod states;
mod violation;

use std::collections::BTreeMap;

pub use violation::{Rule, Violation};

use crate::file::History;
use crate::record::Verdict;
use brought::Brought;
use counted::{Between, Counted};
use index::{Block, Index};
use loss::Span;

/// What was found in a history without violations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Operations.
    pub operations: u64,
    /// Those that were answered.
    pub answered: u64,
    /// Contributions that were applied: (group, life, clock, block).
    pub applied: u64,
    /// Contributions of which no answer ever came.
    pub unknown: u64,
    /// States that were told, over all blocks and lineages.
    pub states: u64,
    /// Restores that were seen: lineages of shards, without the first.
    pub restores: u64,
    /// Updates that are missing in new lineages, at least and at most, over all blocks.
    pub missing: (u64, u64),
    /// Updates that were told as lost.
    pub told: u64,
    /// Answers from a lineage after somebody was answered from a later one, where that is possible:
    /// with one holder of a shard.
    pub from_old_lineages: u64,
    /// Steps that the checker took, comparisons included.
    pub steps: u64,
}

/// Judges a history.
///
/// # Errors
/// The first violation that is found.
///
/// # Panics
/// If a record names what the run does not have: see [`History::fits`].
pub fn check(history: &History) -> Result<Report, Violation> {
    let index = Index::new(history);
    let mut report = Report {
        operations: index.operations.len() as u64,
        told: history.losses.iter().map(|loss| loss.updates).sum(),
        ..Report::default()
    };
    let answered = index.operations.iter().filter(|o| o.answer.is_some());
    report.answered = answered.count() as u64;
    order::check(&index, &mut report)?;
    once::check(&index)?;
    let mut spans = Vec::new();
    for block in &index.blocks {
        spans.push(lineages(&index, block, &mut report)?);
    }
    loss::check(history, &index, &spans, &mut report)?;
    report.steps = index.work.done();
    Ok(report)
}

/// Judges a block, lineage by lineage.
fn lineages(
    index: &Index<'_>,
    block: &Block<'_>,
    report: &mut Report,
) -> Result<BTreeMap<u64, Span>, Violation> {
    let groups = block.groups.len();
    let mut spans = BTreeMap::new();
    let mut brought: Vec<Brought<'_>> = (0..groups)
        .map(|group| brought::by(index, block, group))
        .collect();
    for contribution in block.groups.iter().flatten() {
        let answers = || contribution.answered().map(|a| a.answer.verdict);
        report.applied += u64::from(answers().any(|v| v == Verdict::Applied));
        report.unknown += u64::from(answers().next().is_none());
    }
    let sent = |group: &Vec<_>| group.len() as f64;
    let mut ceilings: Vec<f64> = block.groups.iter().map(sent).collect();
    let ends: Vec<u64> = loss::ends(block);
    for (at, (lineage, answered)) in block.lineages.iter().enumerate() {
        let states = states::of(index, answered)?;
        report.states += states.len() as u64;
        let items: Vec<_> = brought
            .iter_mut()
            .map(|brought| brought.remove(lineage).unwrap_or_default())
            .collect();
        let mut counted = Vec::with_capacity(groups);
        for (group, items) in items.iter().enumerate() {
            let base = match lineage {
                0 => (true, 0.0),
                _ => (false, ceilings[group]),
            };
            counted.push(Counted::new(index, group, items, &states, base)?);
        }
        for state in &states {
            for group in &mut counted {
                index.work.add(1);
                group.state(index, state)?;
            }
            counted::staleness(index, &mut counted, state, answered)?;
        }
        let mut by_end: Vec<_> = answered.iter().collect();
        index.work.sort(&mut by_end, |a| a.answer.end_us);
        for this in by_end {
            for group in &mut counted {
                index.work.add(1);
                group.told(index, *this)?;
            }
        }
        for (ceiling, counted) in ceilings.iter_mut().zip(&counted) {
            let before = if at == 0 { 0.0 } else { *ceiling };
            *ceiling = before.max(counted.end.high);
        }
        let span = Span::of(index, *lineage, (&states, answered), &counted, ends[at]);
        spans.insert(*lineage, span);
    }
    Ok(spans)
}

/// Whether two sums of counts are equal. Those of merged updates are sums of rounded parts.
fn near(index: &Index<'_>, x: f64, y: f64) -> bool {
    let within = match index.run.merged {
        true => 1e-4 * x.abs().max(y.abs()).max(1.0),
        false => 0.0,
    };
    (x - y).abs() <= within
}

/// An error if something is so that must not be.
fn not(wrong: bool, violation: impl FnOnce() -> Violation) -> Result<(), Violation> {
    if wrong { Err(violation()) } else { Ok(()) }
}

impl Between {
    fn sum(all: impl Iterator<Item = Self>) -> Self {
        let zero = Self {
            low: 0.0,
            high: 0.0,
        };
        all.fold(zero, |sum, of| Self {
            low: sum.low + of.low,
            high: sum.high + of.high,
        })
    }
}
