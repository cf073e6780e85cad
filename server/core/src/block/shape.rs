//! What a block is: it never changes. And what its values and gradients must be like (rule 7).

use tradewind_common::pieces::{Piece, Source};
use tradewind_common::spec::GROUPS_MAX;
use tradewind_common::{BlockId, GroupId, TensorKind};

use super::Gradient;
use crate::log::Update;
use crate::optimizer::Optimizer;
use crate::refusal::{Refusal, check_finite};
use crate::state::BlockState;
use crate::trace::kept;

/// Which range of the parameters a block is.
#[derive(Debug)]
pub(super) struct Shape {
    id: BlockId,
    kind: TensorKind,
    length: usize,
    /// They tile it in order.
    pieces: Vec<Piece>,
}

impl Shape {
    /// That of a block of `pieces`, which tile it in order.
    pub(super) fn new(id: BlockId, kind: TensorKind, pieces: Vec<Piece>) -> Self {
        Self {
            id,
            kind,
            length: pieces.last().map_or(0, |last| last.elements.end),
            pieces,
        }
    }

    /// It, with nothing left of its pieces here: for a block that begins anew.
    pub(super) fn take(&mut self) -> Self {
        Self::new(self.id, self.kind, std::mem::take(&mut self.pieces))
    }

    pub(super) fn id(&self) -> BlockId {
        self.id
    }

    pub(super) fn kind(&self) -> TensorKind {
        self.kind
    }

    /// Number of values.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    pub(super) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Whether weight decay applies to the elements that a trace keeps.
    pub(super) fn decays(&self) -> Vec<bool> {
        let decays = |at| {
            let mut pieces = self.pieces.iter();
            pieces.any(|piece| piece.decays && piece.elements.contains(&at))
        };
        kept(self.length).map(decays).collect()
    }

    /// How many vectors an optimizer keeps beside the values.
    pub(super) fn slots(&self, optimizer: &dyn Optimizer) -> usize {
        match self.kind {
            TensorKind::Parameter => optimizer.slots(),
            TensorKind::Buffer => 0,
        }
    }

    /// Whether a block can be taken over as it was elsewhere.
    pub(super) fn check_state(
        &self,
        state: &BlockState,
        optimizer: &dyn Optimizer,
    ) -> Result<(), Refusal> {
        self.check_groups(state.decided.keys())?;
        self.check_length(state.values.len())?;
        let (slots, wanted) = (state.slots.len(), self.slots(optimizer));
        if slots != wanted {
            return Err(Refusal::Malformed {
                field: "slots",
                problem: format!("block {} keeps {wanted} of them, not {slots}", self.id),
            });
        }
        for slot in &state.slots {
            self.check_length(slot.len())?;
        }
        Ok(())
    }

    /// Whether a primary's update can be applied.
    pub(super) fn check_update(&self, update: &Update) -> Result<(), Refusal> {
        self.check_groups(update.decided.iter().map(|(group, ..)| group))?;
        match &update.applied {
            Some(applied) => {
                let (given, wanted) = (applied.scales.len(), self.pieces.len());
                if given != 0 && given != wanted {
                    return Err(Refusal::Malformed {
                        field: "scales",
                        problem: format!("block {} has {wanted} pieces, not {given}", self.id),
                    });
                }
                self.check_length(applied.gradient.len())
            }
            None => Ok(()),
        }
    }

    /// Whether a gradient can be applied; one that is not `measured` names a version of other values
    /// than those whose version is `current`.
    pub(super) fn check_gradient(
        &self,
        gradient: &Gradient,
        measured: bool,
        current: u64,
    ) -> Result<(), Refusal> {
        let (block, given) = (self.id, gradient.pulled_version);
        if gradient.samples == 0 {
            return Err(Refusal::NoSamples(block));
        }
        if measured && given > current {
            return Err(Refusal::VersionAhead {
                block,
                given,
                current,
            });
        }
        let (wanted, given) = (self.norms_wanted(), &gradient.norms);
        if given.len() != wanted {
            return Err(Refusal::Malformed {
                field: "norms",
                problem: format!("block {block} needs {wanted} of them, not {}", given.len()),
            });
        }
        let good = |x: f64| x.is_finite() && x >= 0.0;
        if let Some(bad) = given.iter().find(|n| !good(n.values) || !good(n.gradient)) {
            return Err(Refusal::Malformed {
                field: "norms",
                problem: format!("{bad:?} are not finite numbers of at least 0"),
            });
        }
        self.check_values(&gradient.values)
    }

    /// Whether there can be such groups: tables have a row for each up to the last.
    fn check_groups<'a>(
        &self,
        mut groups: impl Iterator<Item = &'a GroupId>,
    ) -> Result<(), Refusal> {
        match groups.find(|group| group.0 as usize >= GROUPS_MAX) {
            None => Ok(()),
            Some(group) => Err(Refusal::Malformed {
                field: "decided",
                problem: format!(
                    "block {} names group {group}, but a run has {GROUPS_MAX} at most",
                    self.id
                ),
            }),
        }
    }

    fn norms_wanted(&self) -> usize {
        let come = |piece: &&Piece| matches!(piece.norms, Source::Push { .. });
        self.pieces.iter().filter(come).count()
    }

    /// Whether values can be those of the block.
    pub(super) fn check_values(&self, values: &[f32]) -> Result<(), Refusal> {
        self.check_length(values.len())?;
        check_finite(self.id, values)
    }

    fn check_length(&self, given: usize) -> Result<(), Refusal> {
        let (block, expected) = (self.id, self.length);
        if given == expected {
            return Ok(());
        }
        Err(Refusal::WrongLength {
            block,
            expected,
            given,
        })
    }
}

#[cfg(test)]
mod tests {
    use tradewind_common::schedule::Seen;
    use tradewind_common::{Clock, Generation, Incarnation};

    use super::*;
    use crate::decided::{Decided, Verdict};

    fn gradient(values: &[f32], pulled_version: u64) -> Gradient {
        Gradient {
            values: values.to_vec(),
            samples: 1,
            pulled_version,
            lineage: Generation(0),
            seen: Seen::default(),
            norms: Vec::new(),
        }
    }

    #[test]
    fn a_wrong_gradient_is_refused_by_what_is_wrong() {
        let piece = Piece {
            elements: 0..2,
            decays: true,
            norms: Source::Nowhere,
        };
        let shape = Shape::new(BlockId(3), TensorKind::Parameter, vec![piece]);
        let check = |gradient: &Gradient, measured| shape.check_gradient(gradient, measured, 5);
        assert_eq!(check(&gradient(&[1.0, 2.0], 5), true), Ok(()));
        assert_eq!(check(&gradient(&[1.0, 2.0], 6), false), Ok(()));
        let refused = |gradient: &Gradient| check(gradient, true).unwrap_err();
        let ahead = refused(&gradient(&[1.0, 2.0], 6));
        assert!(matches!(
            ahead,
            Refusal::VersionAhead {
                given: 6,
                current: 5,
                ..
            }
        ));
        let short = refused(&gradient(&[1.0], 5));
        assert!(matches!(
            short,
            Refusal::WrongLength {
                expected: 2,
                given: 1,
                ..
            }
        ));
        assert!(check(&gradient(&[1.0, f32::NAN], 5), true).is_err());
        let mut none = gradient(&[1.0, 2.0], 5);
        none.samples = 0;
        assert_eq!(refused(&none), Refusal::NoSamples(BlockId(3)));
    }

    #[test]
    fn a_group_that_no_run_has_is_refused() {
        let piece = Piece {
            elements: 0..1,
            decays: true,
            norms: Source::Nowhere,
        };
        let shape = Shape::new(BlockId(3), TensorKind::Buffer, vec![piece]);
        let check = |group: u32| {
            let decided = Decided {
                clock: Clock(0),
                verdict: Verdict::Skipped,
                delay: 0,
            };
            let update = Update {
                block: BlockId(3),
                decided: vec![(GroupId(group), Incarnation(1), decided)],
                applied: None,
            };
            shape.check_update(&update)
        };
        assert_eq!(check(GROUPS_MAX as u32 - 1), Ok(()));
        let refused = check(u32::MAX).unwrap_err().to_string();
        assert!(refused.contains("names group 4294967295"), "{refused}");
    }
}
