//! Steps between exchanges: section `local`.

use super::optimizer::Optimizer;
use super::{Values, choice};
use tradewind_common::choice::{Field, Kind, Unfit, fit};
use tradewind_common::choices;
use tradewind_common::optimizer::fields::{
    BETA1, BETA2, EPSILON, MOMENTUM, WEIGHT_DECAY, epsilon_fits,
};
use tradewind_common::schedule::Schedule;
use tradewind_common::spec::DecayExempt;

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

choices! {
    /// What a group exchanges after its steps.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    "algorithm of local steps" is Algorithm {
        /// The difference between the values that it was given and its own, as if that were a gradient
        /// (Douillard et al. 2023, algorithm 1).
        "diloco" ("the difference between its parameters before and after `local.steps` steps") is DiLoCo,
        /// Its own values, which it keeps, drawn towards the servers' (Zhang, Choromanska and LeCun
        /// 2015, algorithm 1).
        "easgd" ("its parameters, which stay its own and are drawn towards those of the servers; this needs `optimizer.name = \"elastic\"` and `train.consistency = \"async\"`") is Elastic,
    }
}

choices! {
    /// The optimizer of the steps between exchanges.
    #[derive(Clone, Copy, Debug, PartialEq)]
    "inner optimizer" is Inner {
        /// As `torch.optim.SGD`, dampening 0.
        "sgd" ("as `torch.optim.SGD`") is Sgd {
            /// μ, in `0..1`.
            momentum: f64 = LOCAL_MOMENTUM,
            /// Nesterov's form; needs momentum.
            nesterov: bool = LOCAL_NESTEROV,
            /// L2 penalty, added to the gradient.
            weight_decay: f64 = LOCAL_WEIGHT_DECAY,
        },
        /// As `torch.optim.AdamW`.
        "adamw" ("as `torch.optim.AdamW`") is AdamW {
            /// β₁, in `0..1`.
            beta1: f64 = LOCAL_BETA1,
            /// β₂, in `0..1`.
            beta2: f64 = LOCAL_BETA2,
            /// ε.
            epsilon: f64 = LOCAL_EPSILON,
            /// λ.
            weight_decay: f64 = LOCAL_WEIGHT_DECAY,
        },
    }
}

const LOCAL_BETA1: Field = Field {
    key: "local.beta1",
    ..BETA1
};

const LOCAL_BETA2: Field = Field {
    key: "local.beta2",
    ..BETA2
};

const LOCAL_EPSILON: Field = Field {
    key: "local.epsilon",
    ..EPSILON
};

const LOCAL_MOMENTUM: Field = Field {
    key: "local.momentum",
    meaning: "Momentum of the inner optimizer; 0 is none.",
    ..MOMENTUM
};

const LOCAL_NESTEROV: Field = Field {
    key: "local.nesterov",
    kind: Kind::Flag,
    default: "false",
    meaning: "`true`: momentum of the inner optimizer in Nesterov's form. It needs `local.momentum` above 0.",
};

const LOCAL_WEIGHT_DECAY: Field = Field {
    key: "local.weight_decay",
    meaning: "Weight decay of the inner optimizer: for `sgd` an L2 penalty, for `adamw` decoupled from the gradient. `optimizer.decay_exempt` says which tensors have none.",
    ..WEIGHT_DECAY
};

impl Algorithm {
    /// Whether groups push the values that their steps led to.
    pub fn pushes_values(self) -> bool {
        match self {
            Self::DiLoCo => false,
            Self::Elastic => true,
        }
    }

    /// The inner optimizer where nobody names one.
    fn inner(self) -> &'static str {
        match self {
            Self::DiLoCo => "adamw",
            Self::Elastic => "sgd",
        }
    }
}

impl Inner {
    /// What its fields have to do with each other.
    fn check(&self) -> Result<(), Unfit> {
        match self {
            Self::AdamW { epsilon, .. } => epsilon_fits(*epsilon, LOCAL_EPSILON.key),
            Self::Sgd {
                momentum, nesterov, ..
            } => fit(
                !nesterov || *momentum > 0.0,
                LOCAL_NESTEROV.key,
                "needs local.momentum",
            ),
        }
    }
}

/// What the configuration says of it; `wrong` hears what cannot be. With local steps the schedule is
/// theirs, and the rate of the servers' updates constant.
pub(super) fn read(
    values: &Values<'_>,
    optimizer: &mut Optimizer,
    wrong: &mut dyn FnMut(&str, String),
) -> Option<Local> {
    let algorithm = algorithm(values)?;
    let rate = optimizer.schedule.learning_rate;
    let schedule = Schedule {
        learning_rate: values.float("local.learning_rate"),
        ..std::mem::replace(&mut optimizer.schedule, Schedule::constant(rate))
    };
    let inner: Inner = choice::named(values, inner_name(values)?);
    if let Err(Unfit { key, problem }) = inner.check() {
        wrong(key, problem);
    }
    Some(Local {
        algorithm,
        steps: values.int("local.steps") as u32,
        fitted: values.flag("local.fitted"),
        inner,
        decay_exempt: optimizer.decay_exempt,
        schedule,
    })
}

/// None where every step is exchanged.
fn algorithm(values: &Values<'_>) -> Option<Algorithm> {
    let key = "local.algorithm";
    (values.text(key) != "none").then(|| choice::read(values, key))
}

/// The optimizer of the steps between exchanges; none without such steps.
pub(super) fn inner_name<'a>(values: &'a Values<'_>) -> Option<&'a str> {
    let algorithm = algorithm(values)?;
    match values.text("local.inner") {
        "auto" => Some(algorithm.inner()),
        given => Some(given),
    }
}
