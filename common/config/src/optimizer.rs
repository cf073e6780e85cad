//! How gradients are applied: section `optimizer`, and with it `schedule`.

use super::{Values, choice, schedule};
use tradewind_common::choice::Unfit;
use tradewind_common::optimizer::fields::{MOMENTUM, WEIGHT_DECAY};
use tradewind_common::schedule::Schedule;
use tradewind_common::spec::{DecayExempt, OptimizerSpec};

/// How gradients are applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimizer {
    /// The algorithm.
    pub spec: OptimizerSpec,
    /// Which tensors weight decay spares.
    pub decay_exempt: DecayExempt,
    /// The learning rate.
    pub schedule: Schedule,
}

impl Optimizer {
    /// What servers would refuse.
    pub(super) fn unfit(&self, values: &Values<'_>) -> Option<Unfit> {
        // What such a name needs is told of the name.
        let other = values.text("optimizer.name") != OUTER_NESTEROV;
        other.then(|| self.spec.check(&self.schedule).err())?
    }
}

/// A name for a setting of `sgd` that local steps need.
pub(super) const OUTER_NESTEROV: &str = "outer-nesterov";

/// What the configuration says of it; `wrong` hears what does not fit together.
pub(super) fn read(values: &Values<'_>, wrong: &mut dyn FnMut(&str, String)) -> Optimizer {
    let name = values.text("optimizer.name");
    let momentum = values.float(MOMENTUM.key);
    let spec = if name == OUTER_NESTEROV {
        OptimizerSpec::outer_nesterov(momentum)
    } else {
        choice::read(values, "optimizer.name")
    };
    if name == OUTER_NESTEROV || spec.capabilities().takes_pseudo_gradients() {
        if values.float(WEIGHT_DECAY.key) > 0.0 {
            wrong(
                WEIGHT_DECAY.key,
                "excludes this optimizer.name: pseudo-gradients hold the decay of their inner steps"
                    .into(),
            );
        }
        if momentum == 0.0 {
            wrong(
                MOMENTUM.key,
                "is 0, and this optimizer.name needs some; 0.9 is usual".into(),
            );
        }
    }
    Optimizer {
        spec,
        decay_exempt: choice::read(values, "optimizer.decay_exempt"),
        schedule: schedule::read(values),
    }
}
