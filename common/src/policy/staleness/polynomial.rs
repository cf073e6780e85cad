use super::Ask;
use crate::choice;
use crate::choice::{Field, Kind};

choice! {
    /// A gradient of delay τ counts (1 + τ)^−a (Xie, Koyejo and Gupta 2019, "Asynchronous Federated
    /// Optimization", section 5.2: the polynomial form of s(t − τ)).
    "polynomial" ("gives it the weight (1 + τ)^−a with a = `staleness.exponent`") is Polynomial {
        /// a; at least 0.
        exponent: f64 = EXPONENT,
    }
}

const EXPONENT: Field = Field {
    key: "staleness.exponent",
    kind: Kind::Number {
        min: 0.0,
        max: 10.0,
    },
    default: "0.5",
    meaning: "Exponent a of the weight (1 + τ)^−a that a gradient of delay τ has. 0 gives every gradient the same weight, 0.5 is the value of the authors, and 1 is close to `scale`.",
};

impl Ask for Polynomial {
    fn reweights(&self) -> bool {
        true
    }
}
