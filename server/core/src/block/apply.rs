//! Updates: decided once by the primary, applied in the same way by it and by its copies.

use tradewind_common::{GroupId, TensorKind};

use super::merge::{Brought, Merging};
use super::{Block, Decided, DecidedContribution, Gradient, Steered, Terms, Verdict};
use crate::delay::Fate;
use crate::log::{Applied, Update};
use crate::momentum::Moment;
use crate::optimizer::Optimizer;
use crate::refusal::Refusal;
use crate::trace::thinned;

impl Block {
    /// Decides the waiting contributions of `groups`, merges those that are applied into one update
    /// in the order of `groups`, and applies it. Answers the update as copies have to apply it.
    /// Contributions that are `late` are left out, whatever they are.
    pub fn update(
        &mut self,
        groups: &[GroupId],
        terms: Terms<'_>,
        steered: Steered<'_>,
        late: bool,
    ) -> (Update, Vec<DecidedContribution>) {
        let Steered { momentum, blocks } = steered;
        let measures = momentum.measures() && self.kind() == TensorKind::Parameter;
        let mut computed_on = Vec::new();
        let mut decided = Vec::with_capacity(groups.len());
        let mut brought = Vec::with_capacity(groups.len());
        let mut outcomes = Vec::with_capacity(groups.len());
        for group in groups {
            let due = self.groups.take(*group);
            let (measured, clock) = (due.measured, due.clock);
            let delay = match &due.contribution {
                Some(gradient) if measured => self.version() - gradient.pulled_version,
                Some(_) | None => 0,
            };
            let mut bare = false;
            let verdict = match due.contribution {
                _ if late => Verdict::Dropped,
                None => Verdict::Skipped,
                Some(mut gradient) => match self.fate(delay, terms) {
                    Fate::Drop => Verdict::Dropped,
                    Fate::Apply { weight } => {
                        if measures && measured {
                            let version = gradient.pulled_version;
                            computed_on.push((version, thinned(&gradient.values)));
                        }
                        bare = !self.compensate(*group, &mut gradient, measured, terms);
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
            decided.push((*group, due.incarnation, last));
            outcomes.push(DecidedContribution {
                group: *group,
                decided: last,
                measured,
                bare,
                askers: due.askers,
            });
        }
        let moment = Moment {
            groups: self.groups.live(),
            merged: brought.len(),
        };
        let merging = Merging {
            shape: &self.shape,
            values: self.contents.values().map(|values| &values[..]),
            groups: self.groups.live(),
        };
        let mut applied = merging.merge(brought, terms);
        if let Some(applied) = &mut applied
            && self.kind() == TensorKind::Parameter
        {
            applied.momentum = momentum.explicit(moment);
        }
        let step = |applied: &Applied| applied.rate * f64::from(applied.weight);
        let step = applied.as_ref().map(step);
        let update = Update {
            block: self.id(),
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
            if let Some(passed) = self.trace.around(version, gradient, self.shape.decays()) {
                momentum.passed(&passed, blocks);
            }
        }
        (update, outcomes)
    }

    /// Keeps the present values in the trace.
    fn note(&mut self, rate: f64) {
        if let Some(values) = self.contents.values() {
            self.trace.note(self.contents.version(), rate, values);
        }
    }

    /// Buffers are no gradients: they count whole, or are dropped, so that the
    /// samples of what is dropped count at no block.
    fn fate(&self, delay: u64, terms: Terms<'_>) -> Fate {
        match (self.kind(), terms.delay.fate(delay)) {
            (TensorKind::Buffer, Fate::Apply { .. }) => Fate::Apply { weight: 1.0 },
            (_, fate) => fate,
        }
    }

    /// Of a buffer a group brings what it has become there. As a change it counts from the present
    /// values, not from those that the group had pulled, which may be long past: so the block moves
    /// towards what the group has seen and never beyond, and a variance stays one.
    fn as_change(&self, brought: &mut Gradient) {
        let (TensorKind::Buffer, Some(values)) = (self.kind(), self.contents.values()) else {
            return;
        };
        for (new, x) in brought.values.iter_mut().zip(&values[..]) {
            // What is finite stays so.
            *new = (*new - x).clamp(f32::MIN, f32::MAX);
        }
    }

    /// Brings a gradient to the present values, if the policy does that. `false` if it cannot, such as
    /// one that was computed on values of another lineage.
    fn compensate(
        &mut self,
        group: GroupId,
        gradient: &mut Gradient,
        measured: bool,
        terms: Terms<'_>,
    ) -> bool {
        if !terms.delay.compensates() || self.kind() == TensorKind::Buffer {
            return true;
        }
        // A version of another lineage must not pass for one of this, whose values may still be
        // computed on.
        let now = self.contents.values().filter(|_| measured);
        now.is_some_and(|now| self.sent.compensate(group, gradient, now, terms.delay))
    }

    /// Whether a primary's update can be applied.
    pub fn check_update(&self, update: &Update) -> Result<(), Refusal> {
        if !self.created() {
            return Err(Refusal::NotReady);
        }
        self.shape.check_update(update)
    }

    /// Applies what was decided, whether here or by the primary of this copy; the block has values.
    pub fn apply_update(&mut self, update: &Update, optimizer: &dyn Optimizer) {
        self.groups.note(&update.decided);
        if let Some(applied) = &update.applied {
            self.contents.apply(applied, &self.shape, optimizer);
        }
    }
}
