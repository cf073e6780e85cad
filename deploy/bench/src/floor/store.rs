//! The parameters of a floor's server.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use tradewind_core::optimizer::{Optimizer, Step, from_spec};

use super::{FloorPlan, Part, Piece};
use crate::model::values;

/// A piece that all clients of its part update.
pub(super) struct Held {
    pub(super) piece: Piece,
    changing: Mutex<Changing>,
}

/// The values of a piece, and what the optimizer keeps beside them.
struct Changing {
    values: Vec<f32>,
    /// Of each block, because an optimizer takes whole vectors.
    slots: Vec<Vec<Vec<f32>>>,
    updates: u64,
}

/// The parts of one server, by number.
pub(super) struct Store(Vec<(usize, Arc<Vec<Held>>)>);

impl Store {
    /// Initial values of all parts of `server`.
    pub(super) fn new(plan: &FloorPlan, server: usize) -> anyhow::Result<Self> {
        let layout = plan.model.spec().check()?;
        let optimizer = from_spec(plan.model.optimizer.spec());
        let initial = values(layout.elements());
        let hold = |part: Part| {
            let pieces = part.pieces.iter();
            let held = pieces.map(|piece| Held::new(piece, &initial, &*optimizer));
            (part.number, Arc::new(held.collect()))
        };
        let parts = (0..plan.shares()).flat_map(|share| plan.parts(&layout, server, share));
        Ok(Self(parts.map(hold).collect()))
    }

    /// How many parts there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The pieces of a part, in order.
    pub(super) fn part(&self, number: usize) -> Option<Arc<Vec<Held>>> {
        let (_, part) = self.0.iter().find(|(part, _)| *part == number)?;
        Some(part.clone())
    }
}

impl Held {
    fn new(piece: &Piece, initial: &[f32], optimizer: &dyn Optimizer) -> Self {
        let slots = |block: &Range<usize>| vec![vec![0.0; block.len()]; optimizer.slots()];
        Self {
            changing: Mutex::new(Changing {
                values: initial[piece.elements.clone()].to_vec(),
                slots: piece.blocks.iter().map(slots).collect(),
                updates: 0,
            }),
            piece: piece.clone(),
        }
    }

    /// Applies a gradient block by block and writes the fresh values straight from the parameters.
    pub(super) fn update(
        &self,
        gradient: &[f32],
        optimizer: &dyn Optimizer,
        rate: f64,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let mut changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let Changing {
            values,
            slots,
            updates,
        } = &mut *changing;
        *updates += 1;
        let step = Step::new(rate, *updates);
        let start = self.piece.elements.start;
        for (block, slots) in self.piece.blocks.iter().zip(slots) {
            let here = block.start - start..block.end - start;
            let mut slots: Vec<&mut [f32]> = slots.iter_mut().map(Vec::as_mut_slice).collect();
            optimizer.apply(step, &mut values[here.clone()], &mut slots, &gradient[here]);
        }
        out.write_all(bytemuck::cast_slice(values))
    }
}
