//! What is missing when a lineage begins, and what was told of it.
//!
//! For a block, let V be the highest version that anybody was told in one lineage, U the contributions
//! that may have been applied in it beyond that, because they were sent before it ended and never
//! answered in it, and b the version with which the next lineage began. Then it has lost at least
//! V − b and at most V + U − b updates, and what was told, summed over a shard's blocks, lies between:
//!
//! Σ max(0, V − b) ≤ told ≤ Σ max(0, V + U − b)
//!
//! b itself follows from the first answers in the lineage; where contributions without an answer leave
//! more than one possibility, the left side takes the highest and the right side the lowest. Where
//! more than processes died, the right side is higher by what the record of the loss says. Samples
//! are the most of any block.

use std::collections::BTreeMap;

use super::counted::{Between, Counted};
use super::index::{Answered, Block, Index};
use super::states::State;
use super::violation::{Rule, Told, Violation};
use super::{Report, not};
use crate::file::History;
use crate::record::{Loss, Operation, Verdict};

/// A lineage of a block from its beginning to its end.
#[derive(Clone, Debug)]
pub(super) struct Span {
    /// The version that it began with, at least and at most.
    base: (u64, u64),
    /// The highest version that was told.
    highest: u64,
    /// Contributions that may have been applied beyond that.
    unseen: u64,
    /// Answers of the first and the highest version.
    first_told: Operation,
    last_told: Operation,
}

/// By lineage of a block, when it was over: the next one had been seen, and nobody was answered from
/// it any more.
pub(super) fn ends(block: &Block<'_>) -> Vec<u64> {
    let ends = |answered: &Vec<Answered<'_>>| {
        let ends = answered.iter().map(|a| a.answer.end_us);
        (ends.clone().min().unwrap_or(0), ends.max().unwrap_or(0))
    };
    let ends: Vec<_> = block.lineages.values().map(ends).collect();
    let next = |at: usize| ends.get(at + 1).map_or(u64::MAX, |(first, _)| *first);
    let all = ends.iter().enumerate();
    all.map(|(at, (_, last))| next(at).max(*last)).collect()
}

impl Span {
    pub(super) fn of(
        index: &Index<'_>,
        lineage: u64,
        (states, answered): (&[State<'_>], &[Answered<'_>]),
        counted: &[Counted<'_, '_>],
        end_us: u64,
    ) -> Self {
        let (first, last) = (&states[0], states.last().expect("there is a first"));
        let unseen = |(group, counted): (usize, &Counted<'_, '_>)| {
            counted.unseen(last.counts.map(|counts| counts[group]), end_us)
        };
        Self {
            base: match lineage {
                0 => (0, 0),
                _ => base(index, first, answered, counted),
            },
            highest: last.version,
            unseen: counted.iter().enumerate().map(unseen).sum(),
            first_told: first.told.operation.clone(),
            last_told: last.told.operation.clone(),
        }
    }
}

/// The version that a restored block began with: what its first state has besides what was decided
/// since.
fn base(
    index: &Index<'_>,
    first: &State<'_>,
    answered: &[Answered<'_>],
    counted: &[Counted<'_, '_>],
) -> (u64, u64) {
    let answers = &answered[first.answers.clone()];
    let fresh = |a: &&Answered<'_>| a.answer.verdict == Verdict::Applied && !a.answer.repeated;
    let fresh = answers.iter().filter(fresh).count() as u64;
    let fresh = if index.run.merged {
        fresh.min(1)
    } else {
        fresh
    };
    let end_us = answers.iter().map(|a| a.answer.end_us).min().unwrap_or(0);
    let sent: u64 = counted.iter().map(|counted| counted.sent_by(end_us)).sum();
    let by_version = (
        first.version.saturating_sub(sent),
        first.version.saturating_sub(fresh),
    );
    let by_counts = Between::sum(counted.iter().map(|counted| counted.base));
    let tolerance = if index.run.merged { 1e-3 } else { 0.0 };
    let low = (by_counts.low - tolerance).ceil() as u64;
    let high = (by_counts.high + tolerance).floor() as u64;
    let high = by_version.1.min(high);
    (by_version.0.max(low).min(high), high)
}

/// Compares what is missing with what was told, shard by shard.
pub(super) fn check(
    history: &History,
    index: &Index<'_>,
    spans: &[BTreeMap<u64, Span>],
    report: &mut Report,
) -> Result<(), Violation> {
    let mut shards: BTreeMap<u32, Vec<&BTreeMap<u64, Span>>> = BTreeMap::new();
    for (shard, block) in index.run.shards.iter().zip(spans) {
        shards.entry(*shard).or_default().push(block);
    }
    for (shard, blocks) in shards {
        let losses = history.losses.iter().filter(|loss| loss.shard == shard);
        let mut told: BTreeMap<u64, Vec<&Loss>> = BTreeMap::new();
        for loss in losses {
            told.entry(loss.lineage).or_default().push(loss);
        }
        of_shard(index, (shard, &blocks), &told, report)?;
    }
    Ok(())
}

/// From a lineage that all blocks were seen in to the next such one; the last one may have no end.
struct Window {
    from: u64,
    to: Option<u64>,
}

fn of_shard(
    index: &Index<'_>,
    (shard, blocks): (u32, &[&BTreeMap<u64, Span>]),
    told: &BTreeMap<u64, Vec<&Loss>>,
    report: &mut Report,
) -> Result<(), Violation> {
    let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
    for lineage in blocks.iter().flat_map(|block| block.keys()) {
        *seen.entry(*lineage).or_default() += 1;
    }
    report.restores += seen.keys().filter(|lineage| **lineage > 0).count() as u64;
    // What has never been seen is as it was created.
    let blocks: Vec<_> = blocks.iter().filter(|block| !block.is_empty()).collect();
    let common = seen.iter().filter(|(_, times)| **times == blocks.len());
    let mut common: Vec<u64> = common.map(|(lineage, _)| *lineage).collect();
    if common.first() != Some(&0) {
        common.insert(0, 0);
    }
    for (at, from) in common.iter().enumerate() {
        let window = Window {
            from: *from,
            to: common.get(at + 1).copied(),
        };
        let pairs = blocks.iter().map(|block| Missing::of(block, &window, told));
        let missing: Vec<Missing<'_>> = pairs.collect();
        window.compare(index, shard, &missing, (told, report))?;
    }
    Ok(())
}

/// What a block lacks over a window.
#[derive(Default)]
struct Missing<'s> {
    low: u64,
    high: u64,
    /// The restore that lost most.
    worst: Option<(u64, &'s Span, &'s Span)>,
}

impl<'s> Missing<'s> {
    fn of(
        block: &'s BTreeMap<u64, Span>,
        window: &Window,
        told: &BTreeMap<u64, Vec<&Loss>>,
    ) -> Self {
        let mut missing = Self::default();
        let to = window.to.unwrap_or(u64::MAX);
        let mut former: Option<(u64, &Span)> = None;
        if !block.contains_key(&window.from) {
            // Nobody was told what there was.
            missing.high = u64::MAX;
        }
        for (lineage, span) in block.range(window.from..=to) {
            if let Some((of, former)) = former {
                // What was applied in a lineage that nobody was answered from may have been lost
                // with that.
                let times = told.range(of + 1..=*lineage).count().max(1) as u64;
                let low = former.highest.saturating_sub(span.base.1);
                let high = former.highest + times * former.unseen;
                missing.low += low;
                missing.high = missing
                    .high
                    .saturating_add(high.saturating_sub(span.base.0));
                if missing.worst.is_none_or(|(most, ..)| low > most) {
                    missing.worst = Some((low, former, span));
                }
            }
            former = Some((*lineage, span));
        }
        if let (None, Some((of, last))) = (window.to, former) {
            let times = told.range(of + 1..).count() as u64;
            let all = times * (last.highest + last.unseen);
            missing.high = missing.high.saturating_add(all);
        }
        missing
    }
}

impl Window {
    fn compare(
        &self,
        index: &Index<'_>,
        shard: u32,
        missing: &[Missing<'_>],
        (told, report): (&BTreeMap<u64, Vec<&Loss>>, &mut Report),
    ) -> Result<(), Violation> {
        let to = self.to.unwrap_or(u64::MAX);
        if to <= self.from {
            return Ok(());
        }
        let of_window = told.range(self.from + 1..=to);
        let of_window: Vec<&Loss> = of_window.flat_map(|(_, all)| all.iter().copied()).collect();
        let sum = |of: &dyn Fn(&Loss) -> u64| of_window.iter().map(|loss| of(loss)).sum::<u64>();
        let updates = sum(&|loss| loss.updates);
        let slack = sum(&|loss| loss.too_high_max);
        let low: u64 = missing.iter().map(|missing| missing.low).sum();
        let high = missing.iter().map(|missing| missing.high);
        let high = high.fold(0, u64::saturating_add);
        report.missing.0 += low;
        // Nothing bounds it where nobody was told what there was.
        report.missing.1 += if high == u64::MAX { low } else { high };

        let worst = missing.iter().filter_map(|missing| missing.worst);
        let worst = worst.max_by_key(|(most, ..)| *most);
        let operations: Vec<&Operation> = worst
            .iter()
            .flat_map(|(_, former, span)| [&former.last_told, &span.first_told])
            .collect();
        let since = self.from;
        let named = worst.map_or(String::new(), |(most, former, span)| {
            format!(
                "; {most} of them of one block: {}, then {}, which began with version {} at most",
                Told(&former.last_told),
                Told(&span.first_told),
                span.base.1
            )
        });
        let lacks = format!(
            "shard {shard} lacks {low} updates at least and {high} at most after it was restored since \
             lineage {since}"
        );
        not(updates < low && updates == 0, || {
            let text = format!("{lacks}, and no loss was told{named}");
            Violation::new(Rule::LossNotTold, &operations, text)
        })?;
        not(updates < low, || {
            let text = format!("{lacks}, and {updates} were told{named}");
            Violation::new(Rule::LossTooLow, &operations, text)
        })?;
        not(updates > high.saturating_add(slack), || {
            let text = format!("{lacks}, and {updates} were told, too high by {slack} at most");
            Violation::new(Rule::LossTooHigh, &operations, text)
        })?;

        // The most of any block, where one record tells of one restore.
        let ([loss], 1.., false) = (&of_window[..], index.run.samples, index.run.merged) else {
            return Ok(());
        };
        let most = |of: &dyn Fn(&Missing<'_>) -> u64| {
            let most = missing.iter().map(of).max().unwrap_or(0);
            most.saturating_mul(index.run.samples)
        };
        let (low, high) = (most(&|missing| missing.low), most(&|missing| missing.high));
        let samples = loss.samples;
        let lacks = format!(
            "shard {shard} lacks {low} samples at least and {high} at most, and {samples} were told"
        );
        not(samples < low, || {
            let text = format!("{lacks}{named}");
            Violation::new(Rule::LossTooLow, &operations, text)
        })?;
        not(
            samples > high.saturating_add(slack * index.run.samples),
            || Violation::new(Rule::LossTooHigh, &operations, lacks),
        )
    }
}
