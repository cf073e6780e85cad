//! Updates: decided once by the primary, applied in the same way by it and by its copies.

use std::sync::Arc;

use tradewind_common::pieces::{Norms, Piece, Source, norm};
use tradewind_common::schedule::Seen;
use tradewind_common::{GroupId, TensorKind};

use super::{Block, Decided, Gradient, Outcome, Terms, Verdict};
use crate::core::log::{Applied, Update};
use crate::core::optimizer::{self, Optimizer, Step};

impl Block {
    /// Merges the waiting contributions of `groups` into one update, decides and applies them.
    /// Gradients are averaged by samples, in the order of `groups`. Answers the update as copies
    /// have to apply it.
    pub fn update(&mut self, groups: &[GroupId], terms: Terms<'_>) -> (Update, Vec<Outcome>) {
        let version = self.version;
        let mut decided = Vec::with_capacity(groups.len());
        let mut gradients = Vec::with_capacity(groups.len());
        let mut outcomes = Vec::with_capacity(groups.len());
        for group in groups {
            let cursor = self
                .cursors
                .get_mut(group)
                .expect("a policy names live groups");
            let waiting = cursor
                .waiting
                .take()
                .expect("a policy names groups that wait");
            let clock = cursor.next;
            cursor.next = clock.tick();
            let (verdict, delay) = match &waiting.contribution {
                Some(gradient) if waiting.measured => {
                    (Verdict::Applied, version - gradient.pulled_version)
                }
                Some(_) => (Verdict::Applied, 0),
                None => (Verdict::Skipped, 0),
            };
            let last = Decided {
                clock,
                verdict,
                delay,
            };
            decided.push((*group, cursor.incarnation, last));
            outcomes.push(Outcome {
                group: *group,
                decided: last,
                measured: waiting.measured,
                askers: waiting.askers,
            });
            gradients.extend(waiting.contribution);
        }
        let update = Update {
            block: self.id,
            decided,
            applied: self.merge(gradients, terms),
        };
        self.apply_update(&update, terms.optimizer);
        (update, outcomes)
    }

    fn merge(&self, mut gradients: Vec<Gradient>, terms: Terms<'_>) -> Option<Applied> {
        let samples: u64 = gradients.iter().map(|g| u64::from(g.samples)).sum();
        let seen = gradients.iter().map(|g| g.seen).reduce(Seen::latest)?;
        let norms = merged_norms(&gradients);
        let gradient = match gradients.len() {
            1 => gradients.remove(0).values,
            _ => weighted_mean(&gradients),
        };
        let alone = self.kind == TensorKind::Buffer && !terms.averages;
        let rate = terms.schedule.rate(seen, samples, terms.budget);
        Some(Applied {
            rate,
            scales: self.scales(rate, &norms, &gradient, terms.optimizer),
            samples,
            share: if alone {
                1.0 / self.cursors.len() as f32
            } else {
                1.0
            },
            gradient: Arc::new(gradient),
        })
    }

    /// What each piece's step is multiplied by; nothing where no piece asks. Norms of whole tensors
    /// are those of the present values and of the merged gradient; `pushed` has the others.
    fn scales(
        &self,
        rate: f64,
        pushed: &[Norms],
        gradient: &[f32],
        optimizer: &dyn Optimizer,
    ) -> Vec<f32> {
        let asks = |piece: &Piece| piece.norms != Source::Nowhere;
        let Some(values) = self
            .values
            .as_ref()
            .filter(|_| self.pieces.iter().any(asks))
        else {
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
        self.pieces.iter().map(&mut of).collect()
    }

    /// Applies what was decided, whether here or by the primary of this copy; the block has values.
    pub fn apply_update(&mut self, update: &Update, optimizer: &dyn Optimizer) {
        for (group, incarnation, last) in &update.decided {
            self.decided.insert(*group, (*incarnation, *last));
        }
        let Some(applied) = &update.applied else {
            return;
        };
        let values = self.values.as_mut();
        let values = Arc::make_mut(values.expect("only blocks with values are updated"));
        self.version += 1;
        self.samples_applied += applied.samples;
        match self.kind {
            TensorKind::Parameter => {
                let step = Step::new(applied.rate, self.version);
                let slots = self.slots.iter_mut();
                let mut slots: Vec<&mut [f32]> =
                    slots.map(|slot| &mut Arc::make_mut(slot)[..]).collect();
                let pieces = (&self.pieces[..], &applied.scales[..]);
                let gradient = &applied.gradient;
                optimizer::apply(optimizer, step, pieces, values, &mut slots, gradient);
            }
            TensorKind::Buffer => {
                for (x, change) in values.iter_mut().zip(&*applied.gradient) {
                    *x += applied.share * change;
                }
            }
        }
    }
}

/// Norms of tensors that span blocks, of several contributions: Σ wᵢnᵢ / Σ wᵢ with w the samples.
/// Of one contribution they are exact. Of several, that of the gradient is an upper bound of the
/// merged gradient's norm (the triangle inequality), so that steps are rather too short than too
/// long; that of the values is the mean over what the groups computed on, which under `sync` is the
/// same for all.
fn merged_norms(gradients: &[Gradient]) -> Vec<Norms> {
    let total: f64 = gradients.iter().map(|g| f64::from(g.samples)).sum();
    let mut merged = vec![Norms::default(); gradients[0].norms.len()];
    for gradient in gradients {
        let weight = f64::from(gradient.samples) / total;
        for (sum, norms) in merged.iter_mut().zip(&gradient.norms) {
            sum.values += weight * norms.values;
            sum.gradient += weight * norms.gradient;
        }
    }
    merged
}

/// Σ wᵢgᵢ / Σ wᵢ with w the samples, summed in the order given.
fn weighted_mean(gradients: &[Gradient]) -> Vec<f32> {
    let total: f64 = gradients.iter().map(|g| f64::from(g.samples)).sum();
    let mut mean = vec![0.0f32; gradients[0].values.len()];
    for gradient in gradients {
        let weight = (f64::from(gradient.samples) / total) as f32;
        for (sum, g) in mean.iter_mut().zip(&gradient.values) {
            *sum += weight * g;
        }
    }
    mean
}
