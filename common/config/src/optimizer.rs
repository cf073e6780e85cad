//! How gradients are applied: section `optimizer`, and with it `schedule`.

use super::{Values, choice, schedule};
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
    let asked = spec.capabilities();
    if name == OUTER_NESTEROV || asked.takes_pseudo_gradients() {
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
    if asked.layerwise() && values.flag("exchange.per_bucket") {
        wrong(
            "exchange.per_bucket",
            format!(
                "excludes optimizer.name = {name:?}, which needs norms of whole tensors before anything leaves"
            ),
        );
    }
    if name != OUTER_NESTEROV
        && let Err(unfit) = asked.check()
    {
        let key = choice::key_of(&spec, unfit.field).expect("it is a field of this optimizer");
        wrong(key, unfit.problem);
    }
    Optimizer {
        spec,
        decay_exempt: match values.text("optimizer.decay_exempt") {
            "none" => DecayExempt::None,
            "vectors" => DecayExempt::Vectors,
            other => unreachable!("optimizer.decay_exempt has no choice {other}"),
        },
        schedule: schedule::read(values, wrong),
    }
}

/// The ε of Adam and its kin. Values are f32: an element that has had no gradient is 0 / ε.
pub(super) fn epsilon(
    values: &Values<'_>,
    key: &'static str,
    wrong: &mut dyn FnMut(&str, String),
) -> f64 {
    let epsilon = values.float(key);
    if epsilon as f32 <= 0.0 {
        wrong(
            key,
            "is 0 as a 32-bit number, so what has had no gradient would be NaN; 1e-8 is usual"
                .into(),
        );
    }
    epsilon
}
