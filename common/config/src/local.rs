//! Steps between exchanges: section `local`.

use super::optimizer::{Optimizer, epsilon};
use super::{Values, choice};
use tradewind_common::policy::StalenessSpec;
use tradewind_common::schedule::Schedule;
use tradewind_common::spec::{DecayExempt, OptimizerSpec};

/// What a group does between two exchanges.
#[derive(Clone, Debug, PartialEq)]
pub struct Local {
    /// What it exchanges.
    pub algorithm: Algorithm,
    /// H: steps between two exchanges, at least 1.
    pub steps: u32,
    /// Whether a group that is slower than the fastest takes fewer.
    pub fitted: bool,
    /// What a step does with its gradient.
    pub inner: Inner,
    /// Which tensors its weight decay spares.
    pub decay_exempt: DecayExempt,
    /// Of its learning rate.
    pub schedule: Schedule,
}

impl Local {
    /// The steps of a group until its next exchange, where they are fitted (Liu et al. 2024,
    /// "Asynchronous Local-SGD Training for Language Modeling", section 5, DyLU): ⌊H v / v_max⌋, and
    /// at least 1. `own` is its v and `fastest` that of the fastest other live group, in steps a
    /// second; 0 if it is not known, and then nobody takes fewer. Speeds that differ by less than
    /// one twentieth count as equal, so that no noise costs a step.
    pub fn fitted_steps(&self, own: f64, fastest: f64) -> u32 {
        if own <= 0.0 || 0.95 * fastest <= own {
            return self.steps;
        }
        let fitted = f64::from(self.steps) * (own / fastest);
        (fitted as u32).max(1)
    }
}

/// What a group exchanges after its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// The difference between the values that it was given and its own, as if that were a gradient
    /// (Douillard et al. 2023, algorithm 1).
    DiLoCo,
    /// Its own values, which it keeps, drawn towards the servers' (Zhang, Choromanska and LeCun
    /// 2015, algorithm 1).
    Elastic,
}

/// The optimizer of the steps between exchanges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Inner {
    /// As `torch.optim.AdamW`.
    AdamW {
        /// β₁, in `0..1`.
        beta1: f64,
        /// β₂, in `0..1`.
        beta2: f64,
        /// ε.
        epsilon: f64,
        /// λ.
        weight_decay: f64,
    },
    /// As `torch.optim.SGD`, dampening 0.
    Sgd {
        /// μ, in `0..1`.
        momentum: f64,
        /// Nesterov's form; needs momentum.
        nesterov: bool,
        /// L2 penalty, added to the gradient.
        weight_decay: f64,
    },
}

/// What the configuration says of it; `wrong` hears what does not fit together. With local steps
/// the schedule is theirs, and the rate of the servers' updates constant.
pub(super) fn read(
    values: &Values<'_>,
    optimizer: &mut Optimizer,
    wrong: &mut dyn FnMut(&str, String),
) -> Option<Local> {
    let elastic = optimizer.spec.capabilities().takes_values();
    let algorithm = match values.text("local.algorithm") {
        "diloco" => Algorithm::DiLoCo,
        "easgd" => Algorithm::Elastic,
        "none" => {
            if elastic {
                wrong("optimizer.name", ELASTIC_ALONE.into());
            }
            return None;
        }
        other => unreachable!("local.algorithm has no choice {other}"),
    };
    check_beside(values, algorithm, &optimizer.spec, wrong);
    let rate = optimizer.schedule.learning_rate;
    let schedule = Schedule {
        learning_rate: values.float("local.learning_rate"),
        ..std::mem::replace(&mut optimizer.schedule, Schedule::constant(rate))
    };
    Some(Local {
        algorithm,
        steps: values.int("local.steps") as u32,
        fitted: values.flag("local.fitted"),
        inner: inner(values, wrong),
        decay_exempt: optimizer.decay_exempt,
        schedule,
    })
}

/// The optimizer of the steps between exchanges; none without such steps.
pub(super) fn inner_name<'a>(values: &'a Values<'_>) -> Option<&'a str> {
    match (values.text("local.algorithm"), values.text("local.inner")) {
        ("diloco", "auto") => Some("adamw"),
        ("easgd", "auto") => Some("sgd"),
        ("diloco" | "easgd", given) => Some(given),
        ("none", _) => None,
        (other, _) => unreachable!("local.algorithm has no choice {other}"),
    }
}

fn inner(values: &Values<'_>, wrong: &mut dyn FnMut(&str, String)) -> Inner {
    let weight_decay = values.float("local.weight_decay");
    if inner_name(values) == Some("adamw") {
        return Inner::AdamW {
            beta1: values.float("local.beta1"),
            beta2: values.float("local.beta2"),
            epsilon: epsilon(values, "local.epsilon", wrong),
            weight_decay,
        };
    }
    let momentum = values.float("local.momentum");
    let nesterov = values.flag("local.nesterov");
    if nesterov && momentum == 0.0 {
        wrong("local.nesterov", "needs local.momentum".into());
    }
    Inner::Sgd {
        momentum,
        nesterov,
        weight_decay,
    }
}

const ELASTIC_ALONE: &str = "needs local.algorithm = \"easgd\", whose groups push values";

/// What cannot be beside local steps.
fn check_beside(
    values: &Values<'_>,
    algorithm: Algorithm,
    optimizer: &OptimizerSpec,
    wrong: &mut dyn FnMut(&str, String),
) {
    let sync = values.text("train.consistency") == "sync";
    let elastic = optimizer.capabilities().takes_values();
    let rate = values.float("optimizer.learning_rate");
    let centre = algorithm == Algorithm::Elastic;
    let beside = |key: &str, why: &str| format!("excludes {key} = {:?}: {why}", values.text(key));
    let cases = [
        (
            values.int("train.overlap") == 1,
            "local.algorithm",
            "excludes train.overlap = 1: what is pushed is there only when the last of the steps is done, and the next begins from the answer",
        ),
        (
            values.flag("exchange.per_bucket"),
            "local.algorithm",
            "excludes exchange.per_bucket: backward has no bucket of what is pushed",
        ),
        (
            choice::read::<StalenessSpec>(values, "staleness.policy")
                .capabilities()
                .compensates(),
            "local.algorithm",
            &beside(
                "staleness.policy",
                "what is pushed is no gradient, whose square would say how the loss bends",
            ),
        ),
        (
            optimizer.capabilities().layerwise(),
            "local.algorithm",
            &beside(
                "optimizer.name",
                "what is pushed is no gradient, whose length would say something",
            ),
        ),
        (
            values.float("optimizer.weight_decay") > 0.0,
            "optimizer.weight_decay",
            "excludes local.algorithm: the steps between exchanges have local.weight_decay",
        ),
        (
            values.flag("local.fitted") && sync,
            "local.fitted",
            "excludes train.consistency = \"sync\": the data of a clock follow from its number, which needs as many steps of all",
        ),
        (
            centre && !elastic,
            "local.algorithm",
            "needs optimizer.name = \"elastic\": groups push values, not gradients",
        ),
        (!centre && elastic, "optimizer.name", ELASTIC_ALONE),
        (
            centre && (rate <= 0.0 || rate >= 1.0),
            "optimizer.learning_rate",
            "is not more than 0 and less than 1, as α of local.algorithm = \"easgd\" is",
        ),
    ];
    for (bad, key, what) in cases {
        if bad {
            wrong(key, what.into());
        }
    }
}
