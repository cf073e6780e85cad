//! How gradients are applied: section `optimizer`, and with it `schedule`.

use super::{Values, schedule};
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

/// What the configuration says of it; `wrong` hears what does not fit together.
pub(super) fn read(values: &Values<'_>, wrong: &mut dyn FnMut(&str, String)) -> Optimizer {
    let momentum = values.float("optimizer.momentum");
    let nesterov = values.flag("optimizer.nesterov");
    let sgd = values.text("optimizer.name") == "sgd";
    if nesterov && momentum == 0.0 && sgd {
        wrong("optimizer.nesterov", "needs optimizer.momentum".into());
    }
    let weight_decay = values.float("optimizer.weight_decay");
    let outer = ["outer-nesterov", "delayed-nesterov"].contains(&values.text("optimizer.name"));
    if outer && weight_decay > 0.0 {
        wrong(
            "optimizer.weight_decay",
            "excludes this optimizer.name: pseudo-gradients hold the decay of their inner steps"
                .into(),
        );
    }
    if outer && momentum == 0.0 {
        wrong(
            "optimizer.momentum",
            "is 0, and this optimizer.name needs some; 0.9 is usual".into(),
        );
    }
    let trust = values.float("optimizer.trust");
    let name = values.text("optimizer.name");
    let layerwise = ["lars", "larc"].contains(&name);
    if layerwise && trust == 0.0 {
        wrong(
            "optimizer.trust",
            "is 0, so no tensor would ever move; 0.001 is usual".into(),
        );
    }
    if layerwise && values.flag("exchange.per_bucket") {
        wrong(
            "exchange.per_bucket",
            format!(
                "excludes optimizer.name = {name:?}, which needs norms of whole tensors before anything leaves"
            ),
        );
    }
    let every = values.int("optimizer.momentum_updates") as u32;
    let activation = values.float("optimizer.activation");
    let delayed = values.text("optimizer.name") == "delayed-nesterov";
    if delayed && activation > 1.0 / f64::from(every) {
        wrong(
            "optimizer.activation",
            "is more than 1 / optimizer.momentum_updates".into(),
        );
    }
    Optimizer {
        spec: match values.text("optimizer.name") {
            "adam" => OptimizerSpec::Adam {
                beta1: values.float("optimizer.beta1"),
                beta2: values.float("optimizer.beta2"),
                epsilon: epsilon(values, "optimizer.epsilon", wrong),
                weight_decay,
            },
            "adamw" => OptimizerSpec::AdamW {
                beta1: values.float("optimizer.beta1"),
                beta2: values.float("optimizer.beta2"),
                epsilon: epsilon(values, "optimizer.epsilon", wrong),
                weight_decay,
            },
            "lars" => OptimizerSpec::Lars {
                momentum,
                weight_decay,
                trust,
            },
            "larc" => OptimizerSpec::Larc {
                momentum,
                weight_decay,
                trust,
            },
            // DiLoCo's outer optimizer (Douillard et al. 2023, algorithm 1), where g is a pseudo-gradient.
            "outer-nesterov" => OptimizerSpec::Sgd {
                momentum,
                nesterov: true,
                weight_decay,
            },
            "delayed-nesterov" => OptimizerSpec::DelayedNesterov {
                momentum,
                every,
                activation,
            },
            "elastic" => OptimizerSpec::Elastic,
            _ => OptimizerSpec::Sgd {
                momentum,
                nesterov,
                weight_decay,
            },
        },
        decay_exempt: match values.text("optimizer.decay_exempt") {
            "vectors" => DecayExempt::Vectors,
            _ => DecayExempt::None,
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
