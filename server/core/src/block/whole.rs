//! A block whole: created, taken over, handed on; and what its values must be like.

use std::sync::Arc;

use tradewind_common::TensorKind;
use tradewind_common::pieces::{Piece, Source};

use super::{Block, Gradient};
use crate::log::Update;
use crate::optimizer::Optimizer;
use crate::refusal::{Refusal, check_finite};
use crate::state::BlockState;

impl Block {
    /// Sets the initial values; the first ones win (rule 6). Answers whether these are they.
    pub fn create(&mut self, values: Vec<f32>, optimizer: &dyn Optimizer) -> Result<bool, Refusal> {
        self.check_values(&values)?;
        if self.values.is_some() {
            return Ok(false);
        }
        let zeros = || Arc::new(vec![0.0; self.length]);
        self.slots = (0..self.slots_of(optimizer)).map(|_| zeros()).collect();
        self.values = Some(Arc::new(values));
        Ok(true)
    }

    /// The block as it is, sharing its memory until it changes; `None` if it has no values.
    pub fn state(&self) -> Option<BlockState> {
        Some(BlockState {
            id: self.id,
            values: self.values.clone()?,
            slots: self.slots.clone(),
            version: self.version,
            samples_applied: self.samples_applied,
            decided: self.decided.clone(),
        })
    }

    /// Takes a block over as it was elsewhere.
    pub fn put(&mut self, state: BlockState, optimizer: &dyn Optimizer) -> Result<(), Refusal> {
        self.check_length(state.values.len())?;
        let (slots, wanted) = (state.slots.len(), self.slots_of(optimizer));
        if slots != wanted {
            return Err(Refusal::Malformed {
                field: "slots",
                problem: format!("block {} keeps {wanted} of them, not {slots}", self.id),
            });
        }
        for slot in &state.slots {
            self.check_length(slot.len())?;
        }
        self.values = Some(state.values);
        self.slots = state.slots;
        self.version = state.version;
        self.samples_applied = state.samples_applied;
        self.decided = state.decided;
        Ok(())
    }

    /// Is as new.
    pub fn forget(&mut self) {
        let pieces = std::mem::take(&mut self.pieces);
        *self = Self::new(self.id, self.kind, pieces);
    }

    /// Whether a primary's update can be applied.
    pub fn check_update(&self, update: &Update) -> Result<(), Refusal> {
        if !self.created() {
            return Err(Refusal::NotReady);
        }
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

    /// Whether a gradient can be applied; one that is not `measured` names a version of other values.
    pub(super) fn check_gradient(
        &self,
        gradient: &Gradient,
        measured: bool,
    ) -> Result<(), Refusal> {
        let (block, given, current) = (self.id, gradient.pulled_version, self.version);
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

    fn norms_wanted(&self) -> usize {
        let come = |piece: &&Piece| matches!(piece.norms, Source::Push { .. });
        self.pieces.iter().filter(come).count()
    }

    fn check_values(&self, values: &[f32]) -> Result<(), Refusal> {
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

    fn slots_of(&self, optimizer: &dyn Optimizer) -> usize {
        match self.kind {
            TensorKind::Parameter => optimizer.slots(),
            TensorKind::Buffer => 0,
        }
    }
}
