//! How waiting contributions become an update, besides the consistency policy and the optimizer:
//! what all processes of a run must agree on. docs/policies.md says what each policy is for.

use serde::{Deserialize, Serialize};

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

/// What is done about a gradient by its delay τ: updates applied to the block between the pull that
/// it was computed on and its own application. Of parameters: of
/// buffers it only decides whether they are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum StalenessSpec {
    /// Nothing.
    #[default]
    None,
    /// It counts 1/τ.
    Scale,
    /// It is left out from some delay on.
    Drop {
        /// The smallest delay that is left out, in updates; at least 1.
        beyond: u64,
    },
    /// A term of first order brings it to the present values.
    Compensate {
        /// λ, or λ₀ where it is adaptive; a finite number of at least 0.
        lambda: f64,
        /// m, in `0..1`: λ follows a mean square of the gradients that forgets so slowly.
        mean_square_decay: Option<f64>,
    },
}

impl StalenessSpec {
    /// Whether it needs the values that each group was sent.
    pub fn compensates(self) -> bool {
        matches!(self, Self::Compensate { .. })
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

/// Where the explicit momentum of an update comes from. Asynchrony acts like a momentum of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum MomentumSpec {
    /// It is the optimizer's.
    #[default]
    Fixed,
    /// It is what remains of the optimizer's when the live groups have had their part.
    Lowered,
    /// It follows from the total momentum as measured, so that that becomes the optimizer's.
    ClosedLoop {
        /// γ, in `0..=1`: the part of the difference that an update corrects.
        gain: f64,
    },
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
        wanted: &'static str,
    },
    /// It cannot be beside another setting.
    #[error("excludes {other}: {why}")]
    Excludes {
        /// The other key, with its value where that matters.
        other: &'static str,
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
        self.check_elastic(beside)?;
        self.check_sparse(beside)?;
        self.check_backups(beside)?;
        self.check_merge(beside)?;
        self.check_staleness(beside)?;
        self.check_momentum(beside)
    }

    /// The centre of elastic averaging is pushed values, not gradients.
    fn check_elastic(&self, beside: &Beside) -> Result<(), PolicyError> {
        if beside.optimizer != OptimizerSpec::Elastic {
            return Ok(());
        }
        let key = "optimizer.name";
        let several = "a group moves as far as it has moved the centre, which it knows only of an update of its own";
        if beside.consistency != ConsistencySpec::Async {
            // Under a bound one contribution may let others in, whose updates its answer shows.
            return excludes(key, "train.consistency other than \"async\"", several);
        }
        if self.merge.is_some() {
            return excludes(key, "merge.min_groups and merge.grace_ms_max", several);
        }
        if self.staleness != StalenessSpec::None {
            let why = "what is pushed are values, which a delay does not make wrong";
            return excludes(key, "staleness.policy", why);
        }
        for (way, other) in [(beside.up, "exchange.up"), (beside.down, "exchange.down")] {
            if way != Compression::None {
                let why = "values travel, not differences whose rounding could be made up for";
                return excludes(key, other, why);
            }
        }
        Ok(())
    }

    /// With `topk` what arrives are a few elements, each with what was left out of it before: neither its
    /// length nor its square is that of a gradient.
    fn check_sparse(&self, beside: &Beside) -> Result<(), PolicyError> {
        if !matches!(beside.up, Compression::TopK { .. }) {
            return Ok(());
        }
        let key = "exchange.up";
        if beside.optimizer.layerwise() {
            let why = "with \"topk\" what arrives has another length than the gradient, whose norms travel with it";
            return excludes(key, LAYERWISE, why);
        }
        if matches!(self.staleness, StalenessSpec::Compensate { .. }) {
            let why = "with \"topk\" an element that arrives is the sum of many gradients, whose square says nothing";
            return excludes(
                key,
                "staleness.policy = \"compensate\" and \"compensate-adaptive\"",
                why,
            );
        }
        if matches!(self.momentum, MomentumSpec::ClosedLoop { .. }) {
            let why = "with \"topk\" most elements that it measures arrive as 0";
            return excludes(key, "momentum.policy = \"closed-loop\"", why);
        }
        Ok(())
    }

    fn check_backups(&self, beside: &Beside) -> Result<(), PolicyError> {
        let key = "train.backup_groups";
        let sync = beside.consistency == ConsistencySpec::Sync;
        if self.backup_groups > 0 && !sync {
            let why = "only under `sync` a group is waited for at every clock";
            return excludes(key, "train.consistency", why);
        }
        let few = self.backup_groups == 0 || (self.backup_groups as usize) < beside.groups;
        range(few, key, "less than the number of cluster.groups")
    }

    fn check_merge(&self, beside: &Beside) -> Result<(), PolicyError> {
        let Some(merge) = self.merge else {
            return Ok(());
        };
        if beside.consistency == ConsistencySpec::Sync {
            let key = match merge.min_groups {
                0 | 1 => "merge.grace_ms_max",
                _ => "merge.min_groups",
            };
            let why = "everybody is waited for at every clock";
            return excludes(key, "train.consistency = \"sync\"", why);
        }
        let good = (1..=beside.groups).contains(&(merge.min_groups as usize));
        let wanted = "from 1 to the number of cluster.groups";
        range(good, "merge.min_groups", wanted)?;
        let waits = merge.min_groups <= 1 || merge.wait_ms_max > 0;
        let wanted = "above 0 beside merge.min_groups above 1: nobody would be waited for";
        range(waits, "merge.wait_ms_max", wanted)?;
        let minutes = merge.wait_ms_max.max(merge.grace_ms_max) <= MERGE_MS_MAX;
        range(
            minutes,
            "merge.wait_ms_max",
            "10 minutes at most, as merge.grace_ms_max",
        )
    }

    fn check_momentum(&self, beside: &Beside) -> Result<(), PolicyError> {
        let key = "momentum.policy";
        if self.momentum == MomentumSpec::Fixed {
            return Ok(());
        }
        if beside.consistency == ConsistencySpec::Sync {
            let why = "there is no asynchrony to make up for";
            return excludes(key, "train.consistency = \"sync\"", why);
        }
        let wanted = "possible without optimizer.momentum above 0, of an optimizer that has it and without optimizer.nesterov";
        range(beside.optimizer.momentum().is_some(), key, wanted)?;
        match self.momentum {
            MomentumSpec::Fixed | MomentumSpec::Lowered => Ok(()),
            MomentumSpec::ClosedLoop { .. } if beside.optimizer.layerwise() => {
                let why = "it measures steps that are a rate times a gradient, and those of a tensor are scaled by its norms";
                excludes(key, LAYERWISE, why)
            }
            MomentumSpec::ClosedLoop { .. } if self.staleness == StalenessSpec::Scale => {
                let why = "it measures steps that are a rate times a gradient, and those are shorter by their delay";
                excludes(key, "staleness.policy = \"scale\"", why)
            }
            MomentumSpec::ClosedLoop { .. } if beside.down.lossy() => {
                let why = "a group then has other values than the block had, and nobody keeps them to measure with";
                excludes(key, "exchange.down", why)
            }
            MomentumSpec::ClosedLoop { gain } => {
                let good = (0.0..=1.0).contains(&gain);
                range(good, "momentum.gain", "in 0..=1")
            }
        }
    }

    fn check_staleness(&self, beside: &Beside) -> Result<(), PolicyError> {
        if self.staleness == StalenessSpec::None {
            return Ok(());
        }
        if beside.consistency == ConsistencySpec::Sync {
            let why = "no group computes on older values than another";
            return excludes("staleness.policy", "train.consistency = \"sync\"", why);
        }
        match self.staleness {
            StalenessSpec::None | StalenessSpec::Scale => Ok(()),
            StalenessSpec::Drop { beyond } => {
                let wanted = "at least 1: a delay of 0 is no staleness";
                range(beyond > 0, "staleness.drop_beyond", wanted)
            }
            StalenessSpec::Compensate {
                lambda,
                mean_square_decay,
            } => {
                if beside.down.lossy() {
                    let why = "a group then has other values than the block had, and nobody keeps them for the term";
                    return excludes("staleness.policy", "exchange.down", why);
                }
                if beside.optimizer.layerwise() {
                    let why = "norms travel with the gradient as it was computed, before the term is added";
                    return excludes("staleness.policy", LAYERWISE, why);
                }
                let good = lambda.is_finite() && lambda >= 0.0;
                let wanted = "a finite number of at least 0";
                range(good, "staleness.lambda", wanted)?;
                let good = (0.0..1.0).contains(&mean_square_decay.unwrap_or(0.0));
                range(good, "staleness.mean_square_decay", "in 0..1")
            }
        }
    }
}

const LAYERWISE: &str = "optimizer.name = \"lars\" and \"larc\"";

fn excludes(key: &'static str, other: &'static str, why: &'static str) -> Result<(), PolicyError> {
    let problem = PolicyProblem::Excludes { other, why };
    Err(PolicyError { key, problem })
}

fn range(good: bool, key: &'static str, wanted: &'static str) -> Result<(), PolicyError> {
    let problem = PolicyProblem::Range { wanted };
    if good {
        Ok(())
    } else {
        Err(PolicyError { key, problem })
    }
}
