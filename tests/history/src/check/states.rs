//! The states of a block in one lineage, as they were told.

use std::ops::Range;

use super::index::{Answered, Index};
use super::violation::{Rule, Told, Violation};
use super::{near, not};

/// A version, and who was told it.
#[derive(Clone, Debug)]
pub(super) struct State<'h> {
    pub(super) version: u64,
    /// The first answer that tells it; one with counts, if any has some.
    pub(super) told: Answered<'h>,
    pub(super) counts: Option<&'h [f64]>,
    /// Among the answers of the lineage.
    pub(super) answers: Range<usize>,
}

/// The states in the order of their versions; `answered` is in that order.
pub(super) fn of<'h>(
    index: &Index<'h>,
    answered: &[Answered<'h>],
) -> Result<Vec<State<'h>>, Violation> {
    let mut states: Vec<State<'h>> = Vec::new();
    for (at, this) in answered.iter().enumerate() {
        index.work.add(1);
        let version = this.answer.of.version;
        let counts = this.answer.counts.as_deref();
        if let Some(state) = states.last_mut().filter(|s| s.version == version) {
            state.answers.end = at + 1;
            same(index, state, this)?;
            if state.counts.is_none() && counts.is_some() {
                (state.counts, state.told) = (counts, *this);
            }
            continue;
        }
        states.push(State {
            version,
            told: *this,
            counts,
            answers: at..at + 1,
        });
    }
    let mut former: Option<&State<'_>> = None;
    for state in &states {
        let Some(counts) = state.counts else { continue };
        adds_up(index, state, counts)?;
        if let Some(former) = former {
            monotone(index, former, state)?;
        }
        former = Some(state);
    }
    Ok(states)
}

/// Whether two answers of a version have the same values.
fn same(index: &Index<'_>, state: &State<'_>, this: &Answered<'_>) -> Result<(), Violation> {
    let first = state.told;
    let digests = [&first.answer.digest, &this.answer.digest];
    let digest = digests.iter().all(|digest| !digest.is_empty()) && digests[0] != digests[1];
    let counts = this.answer.counts.as_deref();
    let counts = matches!((state.counts, counts), (Some(a), Some(b)) if a != b);
    index.work.add(index.run.groups as usize);
    not(digest || counts, || {
        let text = format!(
            "{} and {} have other values",
            Told(first.operation),
            Told(this.operation)
        );
        Violation::new(Rule::Digest, &[first.operation, this.operation], text)
    })
}

fn adds_up(index: &Index<'_>, state: &State<'_>, counts: &[f64]) -> Result<(), Violation> {
    index.work.add(counts.len());
    let whole = |count: &f64| *count >= 0.0 && (index.run.merged || count.fract() == 0.0);
    let told = state.told.operation;
    not(!counts.iter().all(whole), || {
        let text = format!("{}: {counts:?} are no counts", Told(told));
        Violation::new(Rule::Counts, &[told], text)
    })?;
    let sum: f64 = counts.iter().sum();
    not(!near(index, sum, state.version as f64), || {
        let text = format!("{}: {counts:?} add up to {sum}", Told(told));
        Violation::new(Rule::Sum, &[told], text)
    })?;
    let samples = index.run.samples;
    let want = state.version.saturating_mul(samples);
    let got = state.told.answer.samples;
    not(samples > 0 && !index.run.merged && got != want, || {
        let text = format!("{}: {got} samples instead of {want}", Told(told));
        Violation::new(Rule::Samples, &[told], text)
    })
}

fn monotone(index: &Index<'_>, former: &State<'_>, state: &State<'_>) -> Result<(), Violation> {
    let (before, after) = (former.counts, state.counts);
    let pairs = before
        .unwrap_or_default()
        .iter()
        .zip(after.unwrap_or_default());
    index.work.add(index.run.groups as usize);
    for (group, (before, after)) in pairs.enumerate() {
        let both = [former.told.operation, state.told.operation];
        not(after < before && !near(index, *after, *before), || {
            let text = format!(
                "{} counts group {group} {before} times, {} {after} times",
                Told(both[0]),
                Told(both[1])
            );
            Violation::new(Rule::Monotone, &both, text)
        })?;
    }
    Ok(())
}
