//! Updates: decided once by the primary, applied in the same way by it and by its copies.

use std::sync::Arc;

use tradewind_common::pieces::{Norms, Piece, Source, norm};
use tradewind_common::schedule::Seen;
use tradewind_common::{GroupId, TensorKind};

use super::{Block, Decided, Gradient, Outcome, Terms, Verdict};
use crate::delay::Fate;
use crate::log::{Applied, Update};
use crate::momentum::{Moment, Momentum};
use crate::optimizer::{self, Optimizer, Step};
use crate::trace::{kept, thinned};

/// A gradient that is applied, and times which it counts.
struct Brought {
    gradient: Gradient,
    weight: f32,
}

impl Block {
    /// Decides the waiting contributions of `groups`, merges those that are applied into one update
    /// in the order of `groups`, and applies it. Answers the update as copies have to apply it.
    /// Contributions that are `late` are left out, whatever they are. `momentum` hears what values of
    /// the block were passed; `blocks` is the number of blocks that it decides for.
    pub fn update(
        &mut self,
        groups: &[GroupId],
        terms: Terms<'_>,
        (momentum, blocks): (&mut (dyn Momentum + 'static), usize),
        late: bool,
    ) -> (Update, Vec<Outcome>) {
        let measures = momentum.measures() && self.kind == TensorKind::Parameter;
        let mut computed_on = Vec::new();
        let mut decided = Vec::with_capacity(groups.len());
        let mut brought = Vec::with_capacity(groups.len());
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
            let (clock, incarnation) = (cursor.next, cursor.incarnation);
            cursor.next = clock.tick();
            let delay = match &waiting.contribution {
                Some(gradient) if waiting.measured => self.version - gradient.pulled_version,
                _ => 0,
            };
            let mut bare = false;
            let verdict = match waiting.contribution {
                _ if late => Verdict::Dropped,
                None => Verdict::Skipped,
                Some(mut gradient) => match self.fate(delay, terms) {
                    Fate::Drop => Verdict::Dropped,
                    Fate::Apply { weight } => {
                        if measures && waiting.measured {
                            let version = gradient.pulled_version;
                            computed_on.push((version, thinned(&gradient.values)));
                        }
                        bare = !self.compensate(*group, &mut gradient, waiting.measured, terms);
                        self.as_change(&mut gradient);
                        brought.push(Brought { gradient, weight });
                        Verdict::Applied
                    }
                },
            };
            let last = Decided {
                clock,
                verdict,
                delay,
            };
            decided.push((*group, incarnation, last));
            outcomes.push(Outcome {
                group: *group,
                decided: last,
                measured: waiting.measured,
                bare,
                askers: waiting.askers,
            });
        }
        let moment = Moment {
            groups: self.cursors.len(),
            merged: brought.len(),
        };
        let mut applied = self.merge(brought, terms);
        if let Some(applied) = &mut applied
            && self.kind == TensorKind::Parameter
        {
            applied.momentum = momentum.explicit(moment);
        }
        let step = |applied: &Applied| applied.rate * f64::from(applied.weight);
        let step = applied.as_ref().map(step);
        let update = Update {
            block: self.id,
            decided,
            applied,
        };
        if measures && self.trace.is_empty() {
            self.note(0.0);
        }
        self.apply_update(&update, terms.optimizer);
        if let Some(step) = step.filter(|_| measures) {
            self.note(step);
        }
        for (version, gradient) in computed_on {
            if let Some(passed) = self.trace.around(version, gradient, self.decays()) {
                momentum.passed(&passed, blocks);
            }
        }
        (update, outcomes)
    }

    /// Whether weight decay applies to the elements that a trace keeps.
    fn decays(&self) -> Vec<bool> {
        let decays = |at| {
            let mut pieces = self.pieces.iter();
            pieces.any(|piece| piece.decays && piece.elements.contains(&at))
        };
        kept(self.length).map(decays).collect()
    }

    /// Keeps the present values in the trace.
    fn note(&mut self, rate: f64) {
        if let Some(values) = &self.values {
            self.trace.note(self.version, rate, values);
        }
    }

    /// Buffers are no gradients: they count whole, or are dropped, so that the
    /// samples of what is dropped count at no block.
    fn fate(&self, delay: u64, terms: Terms<'_>) -> Fate {
        match (self.kind, terms.delay.fate(delay)) {
            (TensorKind::Buffer, Fate::Apply { .. }) => Fate::Apply { weight: 1.0 },
            (_, fate) => fate,
        }
    }

    /// Of a buffer a group brings what it has become there. As a change it counts from the present
    /// values, not from those that the group had pulled, which may be long past: so the block moves
    /// towards what the group has seen and never beyond, and a variance stays one.
    fn as_change(&self, brought: &mut Gradient) {
        let (TensorKind::Buffer, Some(values)) = (self.kind, &self.values) else {
            return;
        };
        for (new, x) in brought.values.iter_mut().zip(&values[..]) {
            // What is finite stays so.
            *new = (*new - x).clamp(f32::MIN, f32::MAX);
        }
    }

    /// Brings a gradient to the present values, if the policy does that. `false` if it cannot: the
    /// values that it was computed on were sent by another primary, or are of another lineage, or
    /// the change is not finite.
    fn compensate(
        &mut self,
        group: GroupId,
        gradient: &mut Gradient,
        measured: bool,
        terms: Terms<'_>,
    ) -> bool {
        if !terms.delay.compensates() || self.kind == TensorKind::Buffer {
            return true;
        }
        // A version of another lineage must not pass for one of this, whose values may still be
        // computed on.
        if !measured {
            return false;
        }
        let computed_on = self.backups.computed_on(group, gradient.pulled_version);
        let (Some(then), Some(now)) = (computed_on, &self.values) else {
            return false;
        };
        let mean_square = &mut self.backups.mean_square;
        let mut changed = gradient.values.clone();
        terms
            .delay
            .compensate(&mut changed, now, &then, mean_square);
        // Squares overflow long before gradients do: what was finite stays so.
        let finite = changed.iter().all(|g| g.is_finite());
        if finite {
            gradient.values = changed;
        }
        finite
    }

    /// The mean Σ wᵢ sᵢ gᵢ / Σ wᵢ sᵢ, with w as the run weighs groups and s from the staleness policy,
    /// summed in the order given. It counts Σ wᵢ sᵢ / Σ wᵢ, which is for the optimizer to apply: a
    /// gradient that is made shorter would do nothing where steps do not follow its length.
    fn merge(&self, mut brought: Vec<Brought>, terms: Terms<'_>) -> Option<Applied> {
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
                let mut mean = vec![0.0f32; self.length];
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
        let (rate, weight) = match self.kind {
            // Outside the velocity, a factor would be that of all former gradients, too.
            TensorKind::Parameter if terms.optimizer.proportional() => {
                (rate, (counted / total * factor) as f32)
            }
            TensorKind::Parameter => (rate * factor, (counted / total) as f32),
            // Each group moves a buffer by its part of the live groups.
            TensorKind::Buffer if !terms.averages => {
                (rate, merged as f32 / self.cursors.len() as f32)
            }
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
                let step = Step {
                    momentum: applied.momentum,
                    weight: applied.weight,
                    ..Step::new(applied.rate, self.version)
                };
                let slots = self.slots.iter_mut();
                let mut slots: Vec<&mut [f32]> =
                    slots.map(|slot| &mut Arc::make_mut(slot)[..]).collect();
                let pieces = (&self.pieces[..], &applied.scales[..]);
                let gradient = &applied.gradient;
                optimizer::apply(optimizer, step, pieces, values, &mut slots, gradient);
            }
            TensorKind::Buffer => {
                for (x, change) in values.iter_mut().zip(&*applied.gradient) {
                    *x += applied.weight * change;
                }
            }
        }
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
