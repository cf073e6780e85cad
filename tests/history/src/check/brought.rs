//! What a group brought to a block in one lineage, as far as that is known.

use std::collections::BTreeMap;

use super::index::{Answered, Block, Contribution, Index};
use crate::record::{Action, Verdict};

/// A contribution that is in the lineage, or may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'h> {
    /// The clock, in which life.
    pub(super) key: (u64, u64),
    /// When it was sent first.
    pub(super) since_us: u64,
    /// `None` if it was never answered in this lineage.
    pub(super) applied: Option<Applied<'h>>,
}

/// One that was answered applied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Applied<'h> {
    /// The answer of the lowest version.
    pub(super) by: Answered<'h>,
    /// Whether any answer says that it was decided just then, so that it is not of a lineage before.
    pub(super) fresh: bool,
    /// The version that it made, if that can be known.
    pub(super) made: Option<u64>,
    /// How many contributions of its group the answer's values have: it is the last of them.
    pub(super) counted: Option<f64>,
}

/// By lineage, what a group brought, in order.
pub(super) type Brought<'h> = BTreeMap<u64, Vec<Item<'h>>>;

/// What a group brought to a block.
///
/// A contribution that was not answered may be in every lineage from that of the group's last answer
/// before it to that of its next one: by then its fate is settled.
pub(super) fn by<'h>(index: &Index<'h>, block: &Block<'h>, group: usize) -> Brought<'h> {
    let all = &block.groups[group];
    let mut next = vec![u64::MAX; all.len()];
    let mut later = u64::MAX;
    for (at, contribution) in all.iter().enumerate().rev() {
        next[at] = later;
        later = latest(contribution).unwrap_or(later);
    }
    let mut brought = Brought::new();
    let mut before = 0;
    for (contribution, next) in all.iter().zip(next) {
        index.work.add(1);
        let own = latest(contribution);
        let answers = answers(index, group, contribution);
        // One that was sent again after an answer may yet arrive anywhere.
        let answered_us = contribution.answered().map(|a| a.answer.end_us).min();
        let again = contribution.open_until() >= answered_us && answered_us.is_some();
        let to = own.filter(|_| !again).unwrap_or(u64::MAX).min(next);
        let open = contribution.open_since();
        let open = open.filter(|_| contribution.action == Action::Contribute);
        if let Some(since_us) = open.filter(|_| before <= to) {
            for (lineage, _) in block.lineages.range(before..=to) {
                index.work.add(1);
                if !answers.contains_key(lineage) {
                    brought.entry(*lineage).or_default().push(Item {
                        key: contribution.key,
                        since_us,
                        applied: None,
                    });
                }
            }
        }
        for (lineage, applied) in answers {
            if let Some(applied) = applied {
                brought.entry(lineage).or_default().push(Item {
                    key: contribution.key,
                    since_us: contribution.start_us(),
                    applied: Some(applied),
                });
            }
        }
        before = before.max(own.unwrap_or(0));
    }
    brought
}

fn latest(contribution: &Contribution<'_>) -> Option<u64> {
    contribution.answered().map(|a| a.answer.of.lineage).max()
}

/// By lineage, what a contribution was answered: `None` if it was not applied.
fn answers<'h>(
    index: &Index<'h>,
    group: usize,
    contribution: &Contribution<'h>,
) -> BTreeMap<u64, Option<Applied<'h>>> {
    let mut answers: BTreeMap<u64, Option<Applied<'h>>> = BTreeMap::new();
    for this in contribution.answered() {
        index.work.add(1);
        let known = answers.entry(this.answer.of.lineage).or_default();
        if this.answer.verdict != Verdict::Applied {
            continue;
        }
        let counts = this.answer.counts.as_ref();
        let fresh = !this.answer.repeated;
        let this = Applied {
            by: this,
            fresh,
            made: this.made(index.run.merged),
            counted: counts.map(|counts| counts[group]),
        };
        *known = Some(match *known {
            None => this,
            Some(known) => {
                let version = |a: &Applied<'_>| a.by.answer.of.version;
                let (first, other) = if version(&this) < version(&known) {
                    (this, known)
                } else {
                    (known, this)
                };
                Applied {
                    fresh: first.fresh || other.fresh,
                    made: first.made.or(other.made),
                    ..first
                }
            }
        });
    }
    answers
}
