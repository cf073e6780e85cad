use super::Ask;
use crate::choice;

choice! {
    /// A gradient of delay τ counts 1/τ (Zhang, Gupta, Lian and Liu 2016, "Staleness-aware Async-SGD for
    /// Distributed Deep Learning", equations 3 and 4).
    "scale" ("gives it the weight 1/τ, for τ of 1 or more") is Scale {}
}

impl Ask for Scale {
    fn reweights(&self) -> bool {
        true
    }
}
