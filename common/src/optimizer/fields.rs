//! Fields that several optimizers have.

use crate::choice::{Field, Kind, Unfit, fit};

/// μ, or β of an outer optimizer.
pub const MOMENTUM: Field = Field {
    key: "optimizer.momentum",
    kind: Kind::Number {
        min: 0.0,
        max: 0.999_999,
    },
    default: "0.0",
    meaning: "Momentum; 0 is none. `outer-nesterov` and `delayed-nesterov` need more than 0, and 0.9 is usual.",
};

/// η of LARS.
pub const TRUST: Field = Field {
    key: "optimizer.trust",
    kind: Kind::Number { min: 0.0, max: 1e3 },
    default: "0.001",
    meaning: "Trust coefficient η, more than 0. `lars`: the length of a tensor's step over the length of its values, at learning rate 1. `larc`: the most that this ratio may be, at any learning rate and before momentum ([policies](policies.md#lars-and-larc)).",
};

/// λ.
pub const WEIGHT_DECAY: Field = Field {
    key: "optimizer.weight_decay",
    kind: Kind::Number { min: 0.0, max: 1e3 },
    default: "0.0",
    meaning: "Weight decay λ. For `adamw` each update takes the fraction learning rate × λ of the values away; for all others λ times the values is added to the gradient (L2 penalty). With `local.algorithm`, `outer-nesterov` and `delayed-nesterov` only 0 is accepted: there `local.weight_decay` acts.",
};

/// β₁.
pub const BETA1: Field = Field {
    key: "optimizer.beta1",
    kind: Kind::Number {
        min: 0.0,
        max: 0.999_999,
    },
    default: "0.9",
    meaning: "Decay β₁ of the running mean of gradients (first moment).",
};

/// β₂.
pub const BETA2: Field = Field {
    key: "optimizer.beta2",
    kind: Kind::Number {
        min: 0.0,
        max: 0.999_999_999,
    },
    default: "0.999",
    meaning: "Decay β₂ of the running mean of squared gradients (second moment).",
};

/// ε.
pub const EPSILON: Field = Field {
    key: "optimizer.epsilon",
    kind: Kind::Number { min: 0.0, max: 1.0 },
    default: "1e-8",
    meaning: "Number ε that is added to the denominator of a step against division by 0; more than 0.",
};

/// Values are f32: 0 / 0 of an element that has had no gradient would be NaN.
///
/// # Errors
/// The ε of this key is 0 as an f32.
pub fn epsilon_fits(epsilon: f64, key: &'static str) -> Result<(), Unfit> {
    let problem =
        "is 0 as a 32-bit number, so what has had no gradient would be NaN; 1e-8 is usual";
    fit(epsilon as f32 > 0.0, key, problem)
}
