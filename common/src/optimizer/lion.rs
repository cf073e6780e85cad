use super::Ask;
use super::fields::{BETA1, BETA2, WEIGHT_DECAY};
use crate::choice;
use crate::choice::Field;

choice! {
    /// Steps whose length is the learning rate in every value, in the direction of a running mean (Chen et
    /// al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2).
    "lion" ("moves every value by the learning rate, along the sign of a running mean; `optimizer.beta2` = 0.99 is usual, and a learning rate 3 to 10 times smaller than for `adamw`") is Lion {
        /// β₁, in `0..1`.
        beta1: f64 = INTERPOLATION,
        /// β₂, in `0..1`.
        beta2: f64 = MEAN,
        /// λ: each update takes this part of the values, times the rate, away.
        weight_decay: f64 = DECOUPLED,
    }
}

const INTERPOLATION: Field = Field {
    meaning: "part of the running mean in the direction of a step; the rest is the gradient's.",
    ..BETA1
};

const MEAN: Field = Field {
    meaning: "decay of the running mean of gradients.",
    ..BETA2
};

const DECOUPLED: Field = Field {
    meaning: "as for `adamw`.",
    ..WEIGHT_DECAY
};

impl Ask for Lion {}
