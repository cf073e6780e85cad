//! What a shard does with a gradient, as all processes of a run must agree on it.

use serde::{Deserialize, Serialize};

use crate::layout::TensorSpec;
use crate::range::{RangeError, finite, ranged, unit};
use crate::schedule::Schedule;

/// What a shard does with a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum OptimizerSpec {
    /// Stochastic gradient descent, as `torch.optim.SGD` (dampening 0).
    Sgd {
        /// μ, in `0..1`.
        momentum: f64,
        /// Nesterov's form; needs momentum.
        nesterov: bool,
        /// L2 penalty, added to the gradient.
        weight_decay: f64,
    },
    /// Adam (Kingma and Ba 2015, algorithm 1), as `torch.optim.Adam`.
    Adam {
        /// β₁, in `0..1`.
        beta1: f64,
        /// β₂, in `0..1`.
        beta2: f64,
        /// ε, added to the root.
        epsilon: f64,
        /// L2 penalty, added to the gradient.
        weight_decay: f64,
    },
    /// Adam with decoupled weight decay (Loshchilov and Hutter 2019), as `torch.optim.AdamW`.
    AdamW {
        /// β₁, in `0..1`.
        beta1: f64,
        /// β₂, in `0..1`.
        beta2: f64,
        /// ε, added to the root.
        epsilon: f64,
        /// λ: each update takes this part of the values, times the rate, away.
        weight_decay: f64,
    },
    /// Layer-wise adaptive rate scaling (You et al. 2017, algorithm 1).
    Lars {
        /// m, in `0..1`.
        momentum: f64,
        /// β, of the L2 penalty.
        weight_decay: f64,
        /// η: length of a layer's step over the length of its values, at rate 1; more than 0.
        trust: f64,
    },
    /// LARS whose scale only ever shortens a step of SGD with momentum.
    Larc {
        /// μ, in `0..1`.
        momentum: f64,
        /// L2 penalty, added to the gradient.
        weight_decay: f64,
        /// Length of a layer's step over the length of its values, at most; more than 0.
        trust: f64,
    },
    /// Nesterov's momentum on pseudo-gradients that come one by one (Liu et al. 2024, algorithm 3).
    DelayedNesterov {
        /// β, in `0..1`.
        momentum: f64,
        /// N: updates between two of the momentum, at least 1.
        every: u32,
        /// c, in `0..=1/N`: the part of the momentum that each update between them applies.
        activation: f64,
    },
    /// The centre of elastic averaging (Zhang, Choromanska and LeCun 2015, algorithm 1), which is
    /// pushed the groups' own values; the rate is α, in `0..1` without its ends.
    Elastic,
}

/// Which tensors weight decay spares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DecayExempt {
    /// None.
    #[default]
    None,
    /// Tensors of at most one dimension: biases, and the scales and shifts of normalisations.
    Vectors,
}

impl DecayExempt {
    /// Whether weight decay applies to a tensor.
    pub fn decays(self, tensor: &TensorSpec) -> bool {
        match self {
            Self::None => true,
            Self::Vectors => tensor.shape.len() > 1,
        }
    }
}

impl OptimizerSpec {
    /// Whether the step of a tensor follows from the lengths of all of it and of its gradient.
    pub fn layerwise(&self) -> bool {
        matches!(self, Self::Lars { .. } | Self::Larc { .. })
    }

    /// Momentum μ of updates Δ ← μ Δ + what the gradient adds, as long as the rate is the same; `None`
    /// without, and in other forms.
    pub fn momentum(&self) -> Option<f64> {
        match self {
            Self::Sgd {
                momentum,
                nesterov: false,
                ..
            }
            | Self::Lars { momentum, .. }
            | Self::Larc { momentum, .. }
                if *momentum > 0.0 =>
            {
                Some(*momentum)
            }
            _ => None,
        }
    }

    /// L2 penalty λ where what the gradient adds is −η (g + λθ); 0 in other forms.
    pub fn momentum_decay(&self) -> f64 {
        match self {
            Self::Sgd { weight_decay, .. } => *weight_decay,
            _ => 0.0,
        }
    }

    /// Whether `schedule` gives rates that it can follow.
    pub(crate) fn check_rate(&self, schedule: &Schedule) -> Result<(), RangeError> {
        let rate = schedule.learning_rate;
        let good = rate > 0.0 && rate < 1.0 && *schedule == Schedule::constant(rate);
        let wanted = "more than 0, less than 1 and constant, as elastic averaging needs it";
        ranged(
            *self != Self::Elastic || good,
            "learning_rate",
            rate,
            wanted,
        )
    }

    /// Checks every field against its range.
    pub(crate) fn check(&self) -> Result<(), RangeError> {
        match *self {
            Self::Sgd {
                momentum,
                nesterov,
                weight_decay,
            } => {
                unit(momentum, "momentum")?;
                finite(weight_decay, "weight_decay")?;
                ranged(
                    !nesterov || momentum > 0.0,
                    "momentum",
                    momentum,
                    "more than 0, which nesterov needs",
                )
            }
            Self::Adam {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            }
            | Self::AdamW {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            } => {
                unit(beta1, "beta1")?;
                unit(beta2, "beta2")?;
                // Shards compute in f32: 0 / 0 of an element that has had no gradient would be NaN.
                let wanted = "more than 0, also as a 32-bit number";
                ranged(epsilon as f32 > 0.0, "epsilon", epsilon, wanted)?;
                finite(epsilon, "epsilon")?;
                finite(weight_decay, "weight_decay")
            }
            Self::Lars {
                momentum,
                weight_decay,
                trust,
            }
            | Self::Larc {
                momentum,
                weight_decay,
                trust,
            } => {
                unit(momentum, "momentum")?;
                finite(weight_decay, "weight_decay")?;
                finite(trust, "trust")?;
                ranged(trust > 0.0, "trust", trust, "more than 0")
            }
            Self::DelayedNesterov {
                momentum,
                every,
                activation,
            } => {
                unit(momentum, "momentum")?;
                ranged(every > 0, "every", every, "more than 0")?;
                let most = 1.0 / f64::from(every);
                let good = (0.0..=most).contains(&activation);
                ranged(good, "activation", activation, "in 0..=1/every")
            }
            Self::Elastic => Ok(()),
        }
    }
}
