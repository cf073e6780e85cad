//! How waiting contributions become an update, besides the consistency policy and the optimizer:
//! what all processes of a run must agree on. docs/policies.md says what each policy is for.

pub mod momentum;
pub mod staleness;

use serde::{Deserialize, Serialize};

pub use momentum::MomentumSpec;
pub use staleness::StalenessSpec;

use crate::choice::Choices;
use crate::compress::Compression;
use crate::consistency::ConsistencySpec;
use crate::optimizer::OptimizerSpec;

/// How an update comes about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Policies {
    /// Under `sync`: so many of the groups are not waited for.
    #[serde(default)]
    pub backup_groups: u32,
    /// How much each of several contributions counts.
    pub weights: Weights,
    /// What is done about gradients that were computed on old values.
    pub staleness: StalenessSpec,
    /// Where the momentum of an update comes from.
    #[serde(default)]
    pub momentum: MomentumSpec,
    /// Under `bounded` and `async`: contributions that arrive about the same time become one
    /// update; without it each is one of its own.
    #[serde(default)]
    pub merge: Option<MergeSpec>,
}

/// How much a contribution counts in an update that merges several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Weights {
    /// As many times as it has samples: the update is that of the union of their batches.
    #[default]
    Samples,
    /// Once, whatever the group's size.
    Groups,
}

impl Weights {
    /// What a contribution of so many samples weighs.
    pub fn of(self, samples: u32) -> f64 {
        match self {
            Self::Samples => f64::from(samples),
            Self::Groups => 1.0,
        }
    }
}

/// Longest wait of a block for more contributions, milliseconds.
pub const MERGE_MS_MAX: u64 = 600_000;

/// For how long a block waits for more contributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeSpec {
    /// Contributions that it waits for, at least 1.
    pub min_groups: u32,
    /// How long it waits for more when those are there, at most; milliseconds.
    pub grace_ms_max: u64,
    /// How long it waits for those, at most; milliseconds.
    pub wait_ms_max: u64,
}

/// What policies have to go together with.
#[derive(Clone, Copy, Debug)]
pub struct Beside {
    /// When a gradient is applied.
    pub consistency: ConsistencySpec,
    /// How many groups there are.
    pub groups: usize,
    /// How gradients travel.
    pub up: Compression,
    /// How fresh parameters travel.
    pub down: Compression,
    /// How an update is applied.
    pub optimizer: OptimizerSpec,
}

/// Policies that no run can follow.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key} {problem}")]
pub struct PolicyError {
    /// The configuration's key.
    pub key: &'static str,
    /// What is wrong with its value.
    pub problem: PolicyProblem,
}

/// What is wrong with the value of a key.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PolicyProblem {
    /// It is outside its range.
    #[error("is not {wanted}")]
    Range {
        /// What it may be.
        wanted: String,
    },
    /// It cannot be beside another setting.
    #[error("excludes {other}: {why}")]
    Excludes {
        /// The other key, with its value where that matters.
        other: String,
        /// What would go wrong.
        why: &'static str,
    },
}

impl Policies {
    /// Whether a run of these can be followed.
    ///
    /// # Errors
    /// Names the first key that is out of range, or that excludes another.
    pub fn check(&self, beside: &Beside) -> Result<(), PolicyError> {
        ranged(&self.staleness)?;
        ranged(&self.momentum)?;
        self.check_merge(beside)?;
        let sync = beside.consistency == ConsistencySpec::Sync;
        let few = self.backup_groups == 0 || (self.backup_groups as usize) < beside.groups;
        let wanted = "less than the number of cluster.groups";
        range(few || !sync, "train.backup_groups", wanted)?;
        let mut excluded = self.exclusions(beside).into_iter();
        if let Some(Exclusion {
            key, other, why, ..
        }) = excluded.find(|of| of.excludes && of.is_there)
        {
            let problem = PolicyProblem::Excludes { other, why };
            return Err(PolicyError { key, problem });
        }
        let has_momentum = beside.optimizer.capabilities().momentum().is_some();
        let wanted = "possible without optimizer.momentum above 0, of an optimizer that has it and without optimizer.nesterov";
        let acts = self.momentum.capabilities().acts();
        range(has_momentum || !acts, "momentum.policy", wanted)
    }

    /// What excludes what, all of it. Everything is asked of what the settings can do, and nothing of
    /// their names.
    fn exclusions(&self, beside: &Beside) -> Vec<Exclusion> {
        let optimizer = beside.optimizer.capabilities();
        let staleness = self.staleness.capabilities();
        let momentum = self.momentum.capabilities();
        let sync = beside.consistency == ConsistencySpec::Sync;
        let sparse = matches!(beside.up, Compression::TopK { .. });
        let named = |key: &str, name: &str| format!("{key} = {name:?}");
        let this_optimizer = named("optimizer.name", beside.optimizer.definition().name);
        let this_staleness = named("staleness.policy", self.staleness.definition().name);
        let this_momentum = named("momentum.policy", self.momentum.definition().name);
        let is_sync = || named("train.consistency", "sync");
        let merge = match self.merge {
            Some(MergeSpec {
                min_groups: 2.., ..
            }) => "merge.min_groups",
            Some(MergeSpec {
                min_groups: 0..=1, ..
            })
            | None => "merge.grace_ms_max",
        };
        vec![
            // What is pushed are values, not gradients.
            Exclusion {
                key: "optimizer.name",
                excludes: optimizer.takes_values(),
                // Under a bound one contribution may let others in, whose updates its answer shows.
                other: "train.consistency other than \"async\"".into(),
                is_there: beside.consistency != ConsistencySpec::Async,
                why: "a group moves as far as it has moved the centre, which it knows only of an update of its own",
            },
            Exclusion {
                key: "optimizer.name",
                excludes: optimizer.takes_values(),
                other: merge.into(),
                is_there: self.merge.is_some(),
                why: "a group moves as far as it has moved the centre, which it knows only of an update of its own",
            },
            Exclusion {
                key: "optimizer.name",
                excludes: optimizer.takes_values(),
                other: this_staleness.clone(),
                is_there: staleness.acts(),
                why: "what is pushed are values, which a delay does not make wrong",
            },
            Exclusion {
                key: "optimizer.name",
                excludes: optimizer.takes_values(),
                other: "exchange.up".into(),
                is_there: beside.up != Compression::None,
                why: "values travel, not differences whose rounding could be made up for",
            },
            Exclusion {
                key: "optimizer.name",
                excludes: optimizer.takes_values(),
                other: "exchange.down".into(),
                is_there: beside.down != Compression::None,
                why: "values travel, not differences whose rounding could be made up for",
            },
            // What arrives are a few elements, each with what was left out of it before: neither its
            // length nor its square is that of a gradient.
            Exclusion {
                key: "exchange.up",
                excludes: sparse,
                other: this_optimizer.clone(),
                is_there: optimizer.layerwise(),
                why: "with \"topk\" what arrives has another length than the gradient, whose norms travel with it",
            },
            Exclusion {
                key: "exchange.up",
                excludes: sparse,
                other: this_staleness.clone(),
                is_there: staleness.compensates(),
                why: "with \"topk\" an element that arrives is the sum of many gradients, whose square says nothing",
            },
            Exclusion {
                key: "exchange.up",
                excludes: sparse,
                other: this_momentum.clone(),
                is_there: momentum.measures(),
                why: "with \"topk\" most elements that it measures arrive as 0",
            },
            Exclusion {
                key: "train.backup_groups",
                excludes: self.backup_groups > 0,
                other: "train.consistency".into(),
                is_there: !sync,
                why: "only under `sync` a group is waited for at every clock",
            },
            Exclusion {
                key: merge,
                excludes: self.merge.is_some(),
                other: is_sync(),
                is_there: sync,
                why: "everybody is waited for at every clock",
            },
            Exclusion {
                key: "staleness.policy",
                excludes: staleness.acts(),
                other: is_sync(),
                is_there: sync,
                why: "no group computes on older values than another",
            },
            Exclusion {
                key: "staleness.policy",
                excludes: staleness.compensates(),
                other: "exchange.down".into(),
                is_there: beside.down.lossy(),
                why: "a group then has other values than the block had, and nobody keeps them for the term",
            },
            Exclusion {
                key: "staleness.policy",
                excludes: staleness.compensates(),
                other: this_optimizer.clone(),
                is_there: optimizer.layerwise(),
                why: "norms travel with the gradient as it was computed, before the term is added",
            },
            Exclusion {
                key: "momentum.policy",
                excludes: momentum.acts(),
                other: is_sync(),
                is_there: sync,
                why: "there is no asynchrony to make up for",
            },
            Exclusion {
                key: "momentum.policy",
                excludes: momentum.measures(),
                other: this_optimizer,
                is_there: optimizer.layerwise(),
                why: "it measures steps that are a rate times a gradient, and those of a tensor are scaled by its norms",
            },
            Exclusion {
                key: "momentum.policy",
                excludes: momentum.measures(),
                other: this_staleness,
                is_there: staleness.reweights(),
                why: "it measures steps that are a rate times a gradient, and those are shorter by their delay",
            },
            Exclusion {
                key: "momentum.policy",
                excludes: momentum.measures(),
                other: "exchange.down".into(),
                is_there: beside.down.lossy(),
                why: "a group then has other values than the block had, and nobody keeps them to measure with",
            },
        ]
    }

    fn check_merge(&self, beside: &Beside) -> Result<(), PolicyError> {
        let Some(merge) = self
            .merge
            .filter(|_| beside.consistency != ConsistencySpec::Sync)
        else {
            return Ok(());
        };
        let good = (1..=beside.groups).contains(&(merge.min_groups as usize));
        let wanted = "from 1 to the number of cluster.groups";
        range(good, "merge.min_groups", wanted)?;
        let waits = merge.min_groups <= 1 || merge.wait_ms_max > 0;
        let wanted = "above 0 beside merge.min_groups above 1: nobody would be waited for";
        range(waits, "merge.wait_ms_max", wanted)?;
        let minutes = merge.wait_ms_max.max(merge.grace_ms_max) <= MERGE_MS_MAX;
        let wanted = "10 minutes at most, as merge.grace_ms_max";
        range(minutes, "merge.wait_ms_max", wanted)
    }
}

/// A line of the table of what excludes what: a key, if it is so, and another, if that is there.
struct Exclusion {
    key: &'static str,
    excludes: bool,
    other: String,
    is_there: bool,
    why: &'static str,
}

/// The range of a policy's fields, by the key of the first that is outside.
fn ranged<C: Choices>(policy: &C) -> Result<(), PolicyError> {
    policy.in_range().map_err(|unfit| {
        let mut fields = policy.definition().fields.iter();
        let field = fields.find(|(name, _)| *name == unfit.field);
        let (_, field) = field.expect("it has the field");
        let wanted = field.kind.to_string();
        PolicyError {
            key: field.key,
            problem: PolicyProblem::Range { wanted },
        }
    })
}

fn range(good: bool, key: &'static str, wanted: &str) -> Result<(), PolicyError> {
    if good {
        return Ok(());
    }
    let wanted = wanted.to_owned();
    let problem = PolicyProblem::Range { wanted };
    Err(PolicyError { key, problem })
}
