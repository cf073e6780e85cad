//! Contributions that are applied together become one update.

use std::sync::Arc;

use tradewind_common::TensorKind;
use tradewind_common::pieces::{Norms, Piece, Source, norm};
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
    /// The mean Σ wᵢ sᵢ gᵢ / Σ wᵢ sᵢ, with w as the run weighs groups and s from the staleness policy,
    /// summed in the order given. It counts Σ wᵢ sᵢ / Σ wᵢ, which is for the optimizer to apply: a
    /// gradient that is made shorter would do nothing where steps do not follow its length.
    pub(super) fn merge(self, mut brought: Vec<Brought>, terms: Terms<'_>) -> Option<Applied> {
        let merged = brought.len();
        let samples = brought.iter().map(|b| u64::from(b.gradient.samples)).sum();
        let seen = brought
            .iter()
            .map(|b| b.gradient.seen)
            .reduce(Seen::latest)?;
        let whole = |b: &Brought| terms.weights.of(b.gradient.samples);
        let counts = |b: &Brought| whole(b) * f64::from(b.weight);
        let of_all = |of: &dyn Fn(&Brought) -> f64| brought.iter().map(of).sum::<f64>();
        let (total, counted) = (of_all(&whole), of_all(&counts));
        let part = |b: &Brought| counts(b) / counted;
        let norms = merged_norms(&brought, part);
        let gradient = match &mut brought[..] {
            [alone] => std::mem::take(&mut alone.gradient.values),
            all => {
                let mut mean = vec![0.0f32; self.shape.length()];
                for b in all {
                    let part = part(b) as f32;
                    for (sum, g) in mean.iter_mut().zip(&b.gradient.values) {
                        *sum += part * g;
                    }
                }
                mean
            }
        };
        let rate = terms.schedule.unscaled(seen, samples, terms.budget);
        let factor = terms.schedule.scaling.factor(samples);
        let (rate, weight) = match self.shape.kind() {
            // Outside the velocity, a factor would be that of all former gradients, too.
            TensorKind::Parameter if terms.optimizer.proportional() => {
                (rate, (counted / total * factor) as f32)
            }
            TensorKind::Parameter => (rate * factor, (counted / total) as f32),
            // Each group moves a buffer by its part of the live groups.
            TensorKind::Buffer if !terms.averages => (rate, merged as f32 / self.groups as f32),
            TensorKind::Buffer => (rate, 1.0),
        };
        Some(Applied {
            rate,
            momentum: None,
            scales: self.scales(rate, &norms, &gradient, terms.optimizer),
            weight,
            samples,
            gradient: Arc::new(gradient),
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

/// Norms of tensors that span blocks, of several contributions with the parts that they have in the
/// merged gradient. Of one contribution they are exact. Of several, Σ pᵢ‖gᵢ‖ is an upper bound of
/// the merged gradient's norm (the triangle inequality), so that steps are rather too short than too
/// long; that of the values is the mean over what the groups computed on, which under `sync` is the
/// same for all.
fn merged_norms(brought: &[Brought], part: impl Fn(&Brought) -> f64) -> Vec<Norms> {
    let mut merged = vec![Norms::default(); brought[0].gradient.norms.len()];
    for b in brought {
        for (sum, norms) in merged.iter_mut().zip(&b.gradient.norms) {
            sum.values += part(b) * norms.values;
            sum.gradient += part(b) * norms.gradient;
        }
    }
    merged
}
