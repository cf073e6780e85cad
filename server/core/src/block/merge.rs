//! Contributions that are applied together become one update.

use std::sync::Arc;

use tradewind_common::TensorKind;
use tradewind_common::pieces::{Norms, Piece, Source, norm};
use tradewind_common::policy::Weights;
use tradewind_common::schedule::Seen;

use super::shape::Shape;
use super::{Gradient, Terms};
use crate::log::Applied;
use crate::optimizer::Optimizer;

/// A gradient that is applied, and times which it counts.
pub(super) struct Brought {
    pub(super) gradient: Gradient,
    pub(super) weight: f32,
}

/// The mean of gradients, one after the other: Σ wᵢ sᵢ gᵢ / Σ wᵢ sᵢ, with w as the run weighs groups and s from
/// the staleness policy. After each it is that of those that are in, so that no sum grows with them, what is
/// finite stays so, and none of them is kept: mₖ = (1 − pₖ) mₖ₋₁ + pₖ gₖ, pₖ = wₖ sₖ / Σᵢ₌₁ᵏ wᵢ sᵢ.
#[derive(Debug, Default)]
pub(super) struct Mean {
    values: Vec<f32>,
    /// Of tensors that span blocks. Of one contribution they are exact. Of several, Σ pᵢ‖gᵢ‖ is an upper bound of
    /// the mean's norm (the triangle inequality), so that steps are rather too short than too
    /// long; that of the values is the mean over what the groups computed on, which under `sync` is the
    /// same for all.
    norms: Vec<Norms>,
    /// Σ wᵢ.
    total: f64,
    /// Σ wᵢ sᵢ.
    counted: f64,
    samples: u64,
    seen: Option<Seen>,
    /// How many are in.
    merged: usize,
}

impl Mean {
    /// How many are in.
    pub(super) fn merged(&self) -> usize {
        self.merged
    }

    /// Another one is in.
    pub(super) fn add(&mut self, brought: Brought, weights: Weights) {
        let Brought { gradient, weight } = brought;
        let whole = weights.of(gradient.samples);
        let counts = whole * f64::from(weight);
        self.merged += 1;
        self.total += whole;
        self.counted += counts;
        self.samples += u64::from(gradient.samples);
        self.seen = Some(match self.seen {
            Some(seen) => seen.latest(gradient.seen),
            None => gradient.seen,
        });
        if self.merged == 1 {
            (self.values, self.norms) = (gradient.values, gradient.norms);
            return;
        }
        let part = counts / self.counted;
        let (stays, comes) = ((1.0 - part) as f32, part as f32);
        for (mean, g) in self.values.iter_mut().zip(&gradient.values) {
            *mean = stays * *mean + comes * g;
        }
        let mixed = |mean: f64, new: f64| (1.0 - part) * mean + part * new;
        for (mean, new) in self.norms.iter_mut().zip(&gradient.norms) {
            mean.values = mixed(mean.values, new.values);
            mean.gradient = mixed(mean.gradient, new.gradient);
        }
    }
}

/// The block that an update is of.
#[derive(Clone, Copy)]
pub(super) struct Merging<'a> {
    pub(super) shape: &'a Shape,
    /// Its present values, if it has some.
    pub(super) values: Option<&'a [f32]>,
    /// How many groups are live.
    pub(super) groups: usize,
}

impl Merging<'_> {
    /// The mean as it is applied. It counts Σ wᵢ sᵢ / Σ wᵢ, which is for the optimizer to apply: a
    /// gradient that is made shorter would do nothing where steps do not follow its length.
    pub(super) fn apply(self, mean: Mean, terms: Terms<'_>) -> Option<Applied> {
        let Mean {
            samples,
            counted,
            total,
            ..
        } = mean;
        let rate = terms.schedule.unscaled(mean.seen?, samples, terms.budget);
        let factor = terms.schedule.scaling.factor(samples);
        let (rate, weight) = match self.shape.kind() {
            // Outside the velocity, a factor would be that of all former gradients, too.
            TensorKind::Parameter if terms.optimizer.proportional() => {
                (rate, (counted / total * factor) as f32)
            }
            TensorKind::Parameter => (rate * factor, (counted / total) as f32),
            // Each group moves a buffer by its part of the live groups.
            TensorKind::Buffer if !terms.averages => {
                (rate, mean.merged as f32 / self.groups as f32)
            }
            TensorKind::Buffer => (rate, 1.0),
        };
        Some(Applied {
            rate,
            momentum: None,
            scales: self.scales(rate, &mean.norms, &mean.values, terms.optimizer),
            weight,
            samples,
            gradient: Arc::new(mean.values),
        })
    }

    /// What each piece's step is multiplied by; nothing where no piece asks. Norms of whole tensors
    /// are those of the present values and of the merged gradient; `pushed` has the others.
    fn scales(
        self,
        rate: f64,
        pushed: &[Norms],
        gradient: &[f32],
        optimizer: &dyn Optimizer,
    ) -> Vec<f32> {
        let asks = |piece: &Piece| piece.norms != Source::Nowhere;
        let pieces = self.shape.pieces();
        let Some(values) = self.values.filter(|_| pieces.iter().any(asks)) else {
            return Vec::new();
        };
        let mut pushed = pushed.iter();
        let mut of = |piece: &Piece| {
            let norms = match piece.norms {
                Source::Nowhere => return 1.0,
                Source::Here => Norms {
                    values: norm(&values[piece.elements.clone()]),
                    gradient: norm(&gradient[piece.elements.clone()]),
                },
                Source::Push { .. } => *pushed.next().expect("they were counted"),
            };
            optimizer.scale(rate, norms) as f32
        };
        pieces.iter().map(&mut of).collect()
    }
}
