//! One block: values, version, and up to which clock each live group has been decided.

use std::collections::BTreeMap;
use std::sync::Arc;

use tradewind_common::clock;
use tradewind_common::schedule::Schedule;
use tradewind_common::{BlockId, Clock, Compression, GroupId, Incarnation, TensorKind};

use super::ReplyTo;
use super::askers::{Asker, Askers, Fresh, Wants};
use super::consistency::Standing;
use super::held::Holdings;
use super::optimizer::{Optimizer, Step};
use super::refusal::{Refusal, check_finite};
use super::view::View;

/// What was decided about one (group, clock, block).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The gradient is in the values.
    Applied,
    /// A policy left it out.
    Dropped,
    /// The group had none.
    Skipped,
}

/// A group's averaged gradient of one block.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradient {
    /// As many as the block has.
    pub values: Vec<f32>,
    /// Samples that it is the mean over.
    pub samples: u32,
    /// Version that it was computed on.
    pub pulled_version: u64,
    /// Applied samples of the run as the group knew them: the schedule's argument.
    pub samples_seen: u64,
}

/// What a group brings at a clock; `None` is a skip.
pub type Contribution = Option<Gradient>;

/// How a block applies what a policy lets through.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// For parameters.
    pub optimizer: &'a dyn Optimizer,
    /// Of the learning rate.
    pub schedule: &'a Schedule,
    /// The run's samples, the schedule's end.
    pub budget: u64,
    /// See [`Consistency::averages`](super::consistency::Consistency::averages).
    pub averages: bool,
}

#[derive(Clone, Debug)]
struct Waiting {
    contribution: Contribution,
    askers: Askers,
}

/// The place of one live group at the block.
#[derive(Clone, Debug)]
struct Cursor {
    incarnation: Incarnation,
    next: Clock,
    last: Option<Decided>,
    waiting: Option<Waiting>,
}

/// A verdict with the delay that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The clock that was decided.
    pub clock: Clock,
    /// How.
    pub verdict: Verdict,
    /// Updates between the pull that it was computed on and its application.
    pub delay: u64,
}

/// What pushing a contribution came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It waits to be decided; a stream that asked for it long ago waits no more.
    Waits(Option<ReplyTo>),
    /// It had been decided before.
    Repeat(Decided),
}

/// One contribution decided by an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whose.
    pub group: GroupId,
    /// Clock, verdict and delay.
    pub decided: Decided,
    /// Who waits for it.
    pub askers: Askers,
}

/// A contiguous range of the parameters, and everything that is decided about it.
#[derive(Debug)]
pub struct Block {
    id: BlockId,
    kind: TensorKind,
    length: usize,
    /// Shared with answers that are on their way: an update copies them only then.
    values: Option<Arc<Vec<f32>>>,
    slots: Vec<Vec<f32>>,
    /// Where answers are compressed.
    held: Holdings,
    version: u64,
    samples_applied: u64,
    cursors: BTreeMap<GroupId, Cursor>,
    /// Incarnations that have joined, with the earliest clock that they may start at. The others
    /// wait for them as for live ones, or a joiner would find itself behind by more than the
    /// staleness bound, and clocks of its own already made without it.
    joined: BTreeMap<GroupId, (Incarnation, Clock)>,
}

impl Block {
    /// A block of `length` values that has none yet.
    pub fn new(id: BlockId, kind: TensorKind, length: usize) -> Self {
        Self {
            id,
            kind,
            length,
            values: None,
            slots: Vec::new(),
            held: Holdings::default(),
            version: 0,
            samples_applied: 0,
            cursors: BTreeMap::new(),
            joined: BTreeMap::new(),
        }
    }

    /// Updates applied.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Samples applied.
    pub fn samples_applied(&self) -> u64 {
        self.samples_applied
    }

    /// Number of values.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Whether it has values.
    pub fn created(&self) -> bool {
        self.values.is_some()
    }

    /// The current values.
    pub fn values(&self) -> Result<&[f32], Refusal> {
        self.values
            .as_ref()
            .map(|values| &values[..])
            .ok_or(Refusal::NotReady)
    }

    /// What an answer to `group` carries of the current values.
    pub fn fresh(
        &mut self,
        group: GroupId,
        wants: Wants,
        compression: Compression,
    ) -> Result<Fresh, Refusal> {
        let values = self.values.as_ref().ok_or(Refusal::NotReady)?;
        let current = (self.version, values);
        Ok(match wants {
            Wants::Nothing => Fresh::Nothing,
            Wants::Difference { holds }
                if self.kind == TensorKind::Parameter && compression.lossy() =>
            {
                self.held.answer((group, holds), current, compression)
            }
            Wants::Values | Wants::Difference { .. } => Fresh::Values(values.clone()),
        })
    }

    /// How far `group` is behind the fastest live group, in exchanges.
    pub fn lag(&self, group: GroupId) -> u64 {
        let all = self.cursors.values().map(|cursor| cursor.next);
        let own = self.cursors.get(&group);
        own.map_or(0, |own| clock::lag(own.next, all))
    }

    /// The live groups and those that have joined as a consistency policy sees them, in GroupId
    /// order.
    pub fn standing(&self) -> Vec<Standing> {
        let live = |(group, cursor): (&GroupId, &Cursor)| Standing {
            group: *group,
            next: cursor.next,
            arrived: cursor.waiting.is_some(),
        };
        let joined = |(group, (_, earliest)): (&GroupId, &(Incarnation, Clock))| Standing {
            group: *group,
            next: *earliest,
            arrived: false,
        };
        let mut standing: Vec<_> = self.cursors.iter().map(live).collect();
        if !self.joined.is_empty() {
            standing.extend(self.joined.iter().map(joined));
            standing.sort_unstable_by_key(|s| s.group);
        }
        standing
    }

    /// Sets the initial values; the first ones win (rule 6).
    pub fn create(&mut self, values: Vec<f32>, optimizer: &dyn Optimizer) -> Result<(), Refusal> {
        self.check_values(&values)?;
        if self.values.is_none() {
            let slots = if self.kind == TensorKind::Parameter {
                optimizer.slots()
            } else {
                0
            };
            self.slots = vec![vec![0.0; self.length]; slots];
            self.values = Some(Arc::new(values));
        }
        Ok(())
    }

    /// Takes over the groups of a view; those that have joined will not start before `earliest`.
    /// Answers who waited in vain: the groups that are no longer live, whose undecided
    /// contributions are forgotten.
    pub fn follow(&mut self, view: &View, earliest: Clock) -> Vec<(GroupId, Askers)> {
        self.forget_holdings(view);
        let stays = |group: &GroupId, cursor: &Cursor| {
            view.live
                .get(group)
                .is_some_and(|(life, _)| *life == cursor.incarnation)
        };
        let gone: Vec<_> = self.cursors.extract_if(.., |g, c| !stays(g, c)).collect();
        for (group, (incarnation, start)) in &view.live {
            self.cursors.entry(*group).or_insert(Cursor {
                incarnation: *incarnation,
                next: *start,
                last: None,
                waiting: None,
            });
        }
        let stays = |(group, life): (&GroupId, &Incarnation)| {
            let known = self.joined.get(group).filter(|(known, _)| known == life);
            (*group, known.copied().unwrap_or((*life, earliest)))
        };
        self.joined = view.joined.iter().map(stays).collect();
        gone.into_iter()
            .filter_map(|(group, c)| Some((group, c.waiting?.askers)))
            .collect()
    }

    /// Keeps only what lives hold that go on: a new one begins with values as they are.
    fn forget_holdings(&mut self, view: &View) {
        let (cursors, joined) = (&self.cursors, &self.joined);
        self.held.retain(|group| {
            let live = cursors.get(group).map(|cursor| cursor.incarnation);
            let life = live.or_else(|| joined.get(group).map(|(life, _)| *life));
            life.is_some() && life == view.incarnation(*group)
        });
    }

    /// Takes a contribution in, or finds that it was decided before (rule 2).
    pub fn push(
        &mut self,
        group: GroupId,
        clock: Clock,
        contribution: Contribution,
        (asker, now_us): (Asker, u64),
    ) -> Result<Arrival, Refusal> {
        let block = self.id;
        let cursor = self.cursors.get(&group).ok_or(Refusal::NotLive(group))?;
        let expected = cursor.next;
        if clock > expected {
            return Err(Refusal::ClockAhead {
                block,
                group,
                given: clock,
                expected,
            });
        }
        if clock < expected {
            let repeat = cursor
                .last
                .filter(|last| last.clock == clock)
                .map(Arrival::Repeat);
            return repeat.ok_or(Refusal::ClockPassed {
                block,
                group,
                given: clock,
                expected,
            });
        }
        if let Some(gradient) = &contribution {
            self.check_gradient(gradient)?;
        }
        let cursor = self.cursors.get_mut(&group).expect("looked up above");
        match &mut cursor.waiting {
            Some(waiting) => Ok(Arrival::Waits(waiting.askers.join(asker))),
            None => {
                cursor.waiting = Some(Waiting {
                    contribution,
                    askers: Askers::new(asker, now_us),
                });
                Ok(Arrival::Waits(None))
            }
        }
    }

    /// Merges the waiting contributions of `groups` into one update and decides them. Gradients
    /// are averaged by samples, in the order of `groups`.
    pub fn update(&mut self, groups: &[GroupId], terms: Terms<'_>) -> Vec<Outcome> {
        let mut taken = Vec::with_capacity(groups.len());
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
            taken.push((*group, clock, waiting));
        }
        let version = self.version;
        let gradients: Vec<&Gradient> = taken
            .iter()
            .filter_map(|(_, _, w)| w.contribution.as_ref())
            .collect();
        if !gradients.is_empty() {
            let added: u64 = gradients.iter().map(|g| u64::from(g.samples)).sum();
            let seen = gradients.iter().map(|g| g.samples_seen).max().unwrap_or(0);
            let rate = terms.schedule.rate(seen, added, terms.budget);
            self.apply(&gradients, terms, rate);
            self.samples_applied += added;
        }
        let decide = |(group, clock, waiting): (GroupId, Clock, Waiting)| {
            let (verdict, delay) = match &waiting.contribution {
                Some(gradient) => (Verdict::Applied, version - gradient.pulled_version),
                None => (Verdict::Skipped, 0),
            };
            Outcome {
                group,
                decided: Decided {
                    clock,
                    verdict,
                    delay,
                },
                askers: waiting.askers,
            }
        };
        let outcomes: Vec<_> = taken.into_iter().map(decide).collect();
        for outcome in &outcomes {
            self.cursors.get_mut(&outcome.group).expect("live").last = Some(outcome.decided);
        }
        outcomes
    }

    fn apply(&mut self, gradients: &[&Gradient], terms: Terms<'_>, rate: f64) {
        let merged;
        let gradient = match gradients {
            [only] => &only.values,
            several => {
                merged = weighted_mean(several);
                &merged
            }
        };
        let values = self.values.as_mut();
        let values = Arc::make_mut(values.expect("live groups push only to a ready run"));
        self.version += 1;
        match self.kind {
            TensorKind::Parameter => {
                let step = Step {
                    rate,
                    number: self.version,
                };
                terms
                    .optimizer
                    .apply(step, values, &mut self.slots, gradient);
            }
            TensorKind::Buffer => {
                let share = if terms.averages {
                    1.0
                } else {
                    1.0 / self.cursors.len() as f32
                };
                for (x, change) in values.iter_mut().zip(gradient) {
                    *x += share * change;
                }
            }
        }
    }

    fn check_values(&self, values: &[f32]) -> Result<(), Refusal> {
        let (block, expected, given) = (self.id, self.length, values.len());
        if given != expected {
            return Err(Refusal::WrongLength {
                block,
                expected,
                given,
            });
        }
        check_finite(block, values)
    }

    fn check_gradient(&self, gradient: &Gradient) -> Result<(), Refusal> {
        let (block, given, current) = (self.id, gradient.pulled_version, self.version);
        if gradient.samples == 0 {
            return Err(Refusal::NoSamples(block));
        }
        if given > current {
            return Err(Refusal::VersionAhead {
                block,
                given,
                current,
            });
        }
        self.check_values(&gradient.values)
    }
}

/// Σ wᵢgᵢ / Σ wᵢ with w the samples, summed in the order given.
fn weighted_mean(gradients: &[&Gradient]) -> Vec<f32> {
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
