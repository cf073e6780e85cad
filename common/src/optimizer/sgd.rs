use super::Ask;
use super::fields::{MOMENTUM, WEIGHT_DECAY};
use crate::choice;
use crate::choice::{Field, Kind, Unfit, fit};

choice! {
    /// Stochastic gradient descent, as `torch.optim.SGD` (dampening 0).
    "sgd" ("as `torch.optim.SGD`") is Sgd {
        /// μ, in `0..1`.
        momentum: f64 = MOMENTUM,
        /// Nesterov's form; needs momentum.
        nesterov: bool = NESTEROV,
        /// L2 penalty, added to the gradient.
        weight_decay: f64 = WEIGHT_DECAY,
    }
}

const NESTEROV: Field = Field {
    key: "optimizer.nesterov",
    kind: Kind::Flag,
    default: "false",
    meaning: "`true`: momentum in Nesterov's form. It needs `optimizer.momentum` above 0.",
};

impl Ask for Sgd {
    fn check(&self) -> Result<(), Unfit> {
        let has_some = !self.nesterov || self.momentum > 0.0;
        fit(has_some, NESTEROV.key, "needs optimizer.momentum")
    }

    fn momentum(&self) -> Option<f64> {
        (self.momentum > 0.0 && !self.nesterov).then_some(self.momentum)
    }

    fn momentum_decay(&self) -> f64 {
        self.weight_decay
    }
}
