//! Each contribution is decided once in a lineage.

use std::collections::BTreeMap;

use super::index::{Answered, Contribution, Index};
use super::not;
use super::violation::{Rule, Told, Violation};

pub(super) fn check(index: &Index<'_>) -> Result<(), Violation> {
    for block in &index.blocks {
        for contribution in block.groups.iter().flatten() {
            of(index, contribution)?;
        }
    }
    Ok(())
}

fn of(index: &Index<'_>, contribution: &Contribution<'_>) -> Result<(), Violation> {
    // By lineage, the first answer, and the one that was there first.
    let mut firsts: BTreeMap<u64, (Answered<'_>, Answered<'_>)> = BTreeMap::new();
    for this in contribution.answered() {
        index.work.add(1);
        if let Some(made) = this.made(index.run.merged) {
            not(made > this.answer.of.version, || {
                let text = format!(
                    "{} made version {made}, counted from the version that it was computed on",
                    Told(this.operation)
                );
                Violation::new(Rule::Delay, &[this.operation], text)
            })?;
        }
        let lineage = this.answer.of.lineage;
        let Some((first, earliest)) = firsts.get_mut(&lineage) else {
            firsts.insert(lineage, (this, this));
            continue;
        };
        let decided = |a: &Answered<'_>| (a.answer.verdict, a.answer.delay);
        let both = [first.operation, this.operation];
        not(decided(first) != decided(&this), || {
            let text = format!("{}, and {}", Told(both[0]), Told(both[1]));
            Violation::new(Rule::Once, &both, text)
        })?;
        let both = [earliest.operation, this.operation];
        let later = this.operation.start_us > earliest.answer.end_us;
        not(later && !this.answer.repeated, || {
            let text = format!(
                "{}, and once more: {}, sent after that",
                Told(both[0]),
                Told(both[1])
            );
            Violation::new(Rule::Once, &both, text)
        })?;
        if this.answer.end_us < earliest.answer.end_us {
            *earliest = this;
        }
    }
    Ok(())
}
