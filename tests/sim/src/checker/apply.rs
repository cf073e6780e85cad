//! One update of a block, recomputed from what was brought to it.

use std::ops::Range;

use tradewind_common::layout::PlacedTensor;
use tradewind_common::pieces::Norms;
use tradewind_common::schedule::Seen;
use tradewind_common::spec::{ConsistencySpec, RunSpec};
use tradewind_common::{Layout, TensorKind};

use super::block::Record;
use super::history::Step;
use super::optimizer::{At, proportional, ratio, step};
use super::rate::{rate, scaling};
use super::terms::Terms;

/// Below this a merged gradient is 0 but for rounding: what is applied are whole numbers over small
/// ones.
const NOTHING: f64 = 1e-3;

/// A part of a tensor in a block.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Where it stands in the block.
    pub(super) elements: Range<usize>,
    /// Where all of the tensor stands in the flat vector.
    pub(super) tensor: Range<usize>,
    /// Whether weight decay applies to it, and so whether norms do.
    pub(super) decays: bool,
}

impl Part {
    fn whole(&self) -> bool {
        self.elements.len() == self.tensor.len()
    }

    /// Whether the norms of its tensor come with the gradient.
    pub(super) fn travels(&self, spec: &RunSpec) -> bool {
        spec.optimizer.capabilities().layerwise() && self.decays && !self.whole()
    }
}

/// The parts of tensors in a block that stands there in the flat vector.
pub(super) fn parts(spec: &RunSpec, layout: &Layout, block: &Range<usize>) -> Vec<Part> {
    let part = |tensor: &PlacedTensor| {
        let start = tensor.elements.start.max(block.start);
        let end = tensor.elements.end.min(block.end);
        (start < end).then(|| Part {
            elements: start - block.start..end - block.start,
            tensor: tensor.elements.clone(),
            decays: spec.decay_exempt.decays(&tensor.spec),
        })
    };
    layout.tensors.iter().filter_map(part).collect()
}

/// A contribution that is applied.
#[derive(Clone, Debug)]
pub(super) struct Brought {
    pub(super) gradient: Vec<f64>,
    /// How much it counts among several.
    pub(super) weight: f64,
    /// How much it counts by its delay.
    pub(super) scale: f64,
    /// Of the tensors whose norms travel, in flat order.
    pub(super) norms: Vec<Norms>,
    pub(super) samples: u64,
    /// What its life took to be applied.
    pub(super) seen: Seen,
}

impl Record {
    /// Applies what was brought, if anything was; the momentum of `told` was told to copies.
    pub(super) fn merge(
        &self,
        step: &mut Step,
        brought: &[Brought],
        told: Option<f64>,
        terms: &Terms,
    ) {
        if brought.is_empty() {
            return;
        }
        step.version += 1;
        let samples = brought.iter().map(|b| b.samples).sum();
        step.samples += samples;
        let total: f64 = brought.iter().map(|b| b.weight).sum();
        let counts: f64 = brought.iter().map(|b| b.weight * b.scale).sum();
        match self.kind {
            TensorKind::Buffer => {
                let share = match terms.consistency {
                    ConsistencySpec::Sync => 1.0,
                    _ => brought.len() as f64 / self.live.len() as f64,
                };
                let new = sum(brought, |b| b.weight / total);
                let values = step.values.iter_mut().zip(new);
                values.for_each(|(x, new)| *x = (1.0 - share) * *x + share * new);
            }
            TensorKind::Parameter => {
                let seen = brought.iter().map(|b| b.seen).reduce(Seen::latest);
                let seen = seen.expect("something was brought");
                let rate = rate(&terms.schedule, seen, samples, terms.samples);
                let scaling = scaling(&terms.schedule, samples);
                let (rate, weight) = match proportional(terms.optimizer) {
                    true => (rate, counts / total * scaling),
                    false => (rate * scaling, counts / total),
                };
                step.rate = rate * f64::from(weight as f32);
                let momentum = terms.momentum(self.live.len(), brought.len(), told);
                self.optimize(step, brought, (weight, rate, momentum), terms);
            }
        }
    }

    fn optimize(
        &self,
        now: &mut Step,
        brought: &[Brought],
        (weight, rate, momentum): (f64, f64, f64),
        terms: &Terms,
    ) {
        let counts: f64 = brought.iter().map(|b| b.weight * b.scale).sum();
        let gradient = sum(brought, |b| b.weight * b.scale / counts);
        let mut travelled = 0;
        for part in &terms.parts[&self.id] {
            let here = part.elements.clone();
            // The triangle inequality's bound for the merged gradient, the mean for the values.
            let merged = |at: usize| {
                let norms = |of: fn(&Norms) -> f64| {
                    let terms = brought.iter();
                    let terms = terms.map(|b| b.weight * b.scale * of(&b.norms[at]));
                    terms.sum::<f64>() / counts
                };
                Norms {
                    values: norms(|of| of.values),
                    gradient: norms(|of| of.gradient),
                }
            };
            let norms = match (terms.layerwise && part.decays, part.whole()) {
                (false, _) => None,
                (true, false) => {
                    travelled += 1;
                    Some(merged(travelled - 1))
                }
                (true, true) => Some(Norms {
                    values: norm(&now.values[here.clone()]),
                    gradient: norm(&gradient[here.clone()]),
                }),
            };
            let unclear = |norms: &Norms| {
                let all = brought.iter().flat_map(|b| &b.gradient[here.clone()]);
                norms.gradient < NOTHING && all.clone().any(|g| *g != 0.0)
            };
            // Whether contributions cancel out is for rounding to say, and much follows from it.
            let unclear = part.whole() && norms.as_ref().is_some_and(unclear);
            let at = At {
                rate,
                weight,
                momentum,
                number: now.version,
                decays: part.decays,
                norms,
                ratio: 1.0,
            };
            let before: Vec<_> = here
                .clone()
                .map(|index| {
                    let mut kept = [0.0; 2];
                    for (kept, slot) in kept.iter_mut().zip(&now.slots) {
                        *kept = slot[index];
                    }
                    let g = if unclear { f64::NAN } else { gradient[index] };
                    (now.values[index], kept, g)
                })
                .collect();
            let at = At {
                ratio: ratio(terms.optimizer, at, &before),
                ..at
            };
            for (index, (_, mut kept, g)) in here.clone().zip(before) {
                step(terms.optimizer, at, &mut now.values[index], &mut kept, g);
                for (kept, slot) in kept.iter().zip(&mut now.slots) {
                    slot[index] = *kept;
                }
            }
        }
    }
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// The sum of what was brought, each times its part.
fn sum(brought: &[Brought], part: impl Fn(&Brought) -> f64) -> Vec<f64> {
    let mut sum = vec![0.0; brought[0].gradient.len()];
    for b in brought {
        let gradient = sum.iter_mut().zip(&b.gradient);
        gradient.for_each(|(sum, g)| *sum += part(b) * g);
    }
    sum
}
