//! Updates: decided once by the primary, applied in the same way by it and by its copies.

use tradewind_common::{GroupId, Incarnation, TensorKind};

use super::groups::Due;
use super::merge::{Brought, Mean, Merging};
use super::{Block, Decided, DecidedContribution, Gradient, Steered, Terms, Verdict};
use crate::askers::Askers;
use crate::consistency::Gathered;
use crate::delay::Fate;
use crate::log::{Applied, Update};
use crate::momentum::{Moment, Momentum};
use crate::optimizer::Optimizer;
use crate::refusal::Refusal;
use crate::trace::thinned;

/// One contribution in what is gathered.
#[derive(Clone, Copy, Debug)]
struct Member {
    group: GroupId,
    life: Incarnation,
    decided: Decided,
    measured: bool,
    bare: bool,
}

/// Contributions on their way into one update. They are in it, though their groups leave before it is made.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    mean: Mean,
    members: Vec<Member>,
    /// Where momentum measures: versions that they were computed on, and what of them measures.
    computed_on: Vec<(u64, Vec<f32>)>,
}

impl Gathering {
    /// As a policy sees it; `None` if nothing is in it.
    pub(super) fn seen(&self) -> Option<Gathered> {
        let (first, last) = (self.members.first()?, self.members.last()?);
        Some(Gathered {
            clock: first.decided.clock,
            last: last.group,
        })
    }
}

impl Block {
    /// The waiting contribution of a group is gathered for the next update.
    pub fn gather(&mut self, group: GroupId, terms: Terms<'_>, momentum: &dyn Momentum) {
        let mut gathering = std::mem::take(&mut self.gathering);
        self.bring(&mut gathering, group, terms, momentum.measures());
        self.gathering = gathering;
    }

    /// Decides the waiting contributions of `groups`, merges those that are applied into one update, behind what
    /// was gathered, in the order of `groups`, and applies it. Answers the update as copies have to apply it.
    /// Contributions that are `late` are left out, whatever they are, and what was gathered stays.
    pub fn update(
        &mut self,
        groups: &[GroupId],
        terms: Terms<'_>,
        steered: Steered<'_>,
        late: bool,
    ) -> (Update, Vec<DecidedContribution>) {
        let Steered { momentum, blocks } = steered;
        let measures = momentum.measures() && self.kind() == TensorKind::Parameter;
        let mut gathering = Gathering::default();
        if late {
            groups
                .iter()
                .for_each(|group| self.leave_out(&mut gathering, *group));
        } else {
            gathering = std::mem::take(&mut self.gathering);
            for group in groups {
                self.bring(&mut gathering, *group, terms, momentum.measures());
            }
        }
        let Gathering {
            mean,
            members,
            computed_on,
        } = gathering;
        let decided = members.iter().map(|of| (of.group, of.life, of.decided));
        let decided = decided.collect();
        let outcomes = members.into_iter().map(|of| DecidedContribution {
            group: of.group,
            decided: of.decided,
            measured: of.measured,
            bare: of.bare,
            // A life that is over asks for nothing.
            askers: match self.groups.is_gathered(of.group, of.life) {
                true => self.groups.pass(of.group),
                false => Askers::default(),
            },
        });
        let outcomes = outcomes.collect();
        let live = self.groups.standings().live();
        let moment = Moment {
            groups: live,
            merged: mean.merged(),
        };
        let merging = Merging {
            shape: &self.shape,
            values: self.contents.values().map(|values| &values[..]),
            groups: live,
        };
        let mut applied = merging.apply(mean, terms);
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

    /// The waiting contribution of a group, as it is decided, goes with others. Its delay is that which it has
    /// when they are applied: no update comes between.
    fn bring(
        &mut self,
        gathering: &mut Gathering,
        group: GroupId,
        terms: Terms<'_>,
        measures: bool,
    ) {
        let due = self.groups.gather(group);
        let (measured, delay) = (due.measured, self.delay_of(&due));
        let mut bare = false;
        let verdict = match due.contribution {
            None => Verdict::Skipped,
            Some(mut gradient) => match self.fate(delay, terms) {
                Fate::Drop => Verdict::Dropped,
                Fate::Apply { weight } => {
                    if measures && measured && self.kind() == TensorKind::Parameter {
                        let thin = thinned(&gradient.values);
                        gathering.computed_on.push((gradient.pulled_version, thin));
                    }
                    bare = !self.compensate(group, &mut gradient, measured, terms);
                    self.as_change(&mut gradient);
                    let brought = Brought { gradient, weight };
                    gathering.mean.add(brought, terms.weights);
                    Verdict::Applied
                }
            },
        };
        gathering.members.push(Member {
            group,
            life: due.incarnation,
            decided: Decided {
                clock: due.clock,
                verdict,
                delay,
            },
            measured,
            bare,
        });
    }

    /// The waiting contribution of a group, whatever it is, comes too late.
    fn leave_out(&mut self, gathering: &mut Gathering, group: GroupId) {
        let due = self.groups.gather(group);
        gathering.members.push(Member {
            group,
            life: due.incarnation,
            decided: Decided {
                clock: due.clock,
                verdict: Verdict::Dropped,
                delay: self.delay_of(&due),
            },
            measured: due.measured,
            bare: false,
        });
    }

    /// Updates since the values that a contribution was computed on; 0 where that is not known.
    fn delay_of(&self, due: &Due) -> u64 {
        match &due.contribution {
            Some(gradient) if due.measured => self.version() - gradient.pulled_version,
            Some(_) | None => 0,
        }
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
