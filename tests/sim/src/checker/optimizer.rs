//! What optimizers make of a gradient, value by value and in f64, each from its paper.

use tradewind_common::optimizer::{Adam, AdamW, DelayedNesterov, Elastic, Lamb, Larc, Lars, Sgd};
use tradewind_common::pieces::Norms;
use tradewind_common::spec::OptimizerSpec;

/// What an update is besides its gradient.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) rate: f64,
    /// What its gradient counts, by its delay and its samples.
    pub(super) weight: f64,
    /// Of the optimizers whose momentum a policy may change.
    pub(super) momentum: f64,
    /// Which update of the block it is, from 1.
    pub(super) number: u64,
    /// Whether there is weight decay.
    pub(super) decays: bool,
    /// Of the tensor, where the step follows from them.
    pub(super) norms: Option<Norms>,
    /// What the step of a part of a tensor is multiplied by, because of its length.
    pub(super) ratio: f64,
}

/// How many numbers an optimizer keeps for each value.
pub(super) fn keeps(optimizer: OptimizerSpec) -> usize {
    match optimizer {
        OptimizerSpec::Sgd(Sgd { momentum, .. })
        | OptimizerSpec::Lars(Lars { momentum, .. })
        | OptimizerSpec::Larc(Larc { momentum, .. }) => usize::from(momentum > 0.0),
        OptimizerSpec::Adam(_)
        | OptimizerSpec::AdamW(_)
        | OptimizerSpec::Lamb(_)
        | OptimizerSpec::DelayedNesterov(_) => 2,
        OptimizerSpec::Lion(_) => 1,
        OptimizerSpec::Elastic(Elastic {}) => 0,
    }
}

/// Whether twice the gradient moves values twice as far, at once and later.
pub(super) fn proportional(optimizer: OptimizerSpec) -> bool {
    matches!(
        optimizer,
        OptimizerSpec::Sgd(_)
            | OptimizerSpec::DelayedNesterov(_)
            | OptimizerSpec::Elastic(Elastic {})
    )
}

/// One update of a value `x` by the gradient `g`. `kept` is what the optimizer has for it, one more
/// where it keeps nothing. Zhang et al. 2016, "Staleness-aware async-SGD", section 3.2, weigh the
/// step of plain SGD; where gradients leave something behind, that is weighed, too.
pub(super) fn step(optimizer: OptimizerSpec, at: At, x: &mut f64, kept: &mut [f64; 2], g: f64) {
    let lambda = |decay: f64| if at.decays { decay } else { 0.0 };
    let [first, second] = kept;
    match optimizer {
        // Sutskever et al. 2013, "On the importance of initialization and momentum in deep
        // learning", equations 1 to 4, with v = −(their v)/η: the rate is outside.
        OptimizerSpec::Sgd(Sgd {
            nesterov,
            weight_decay,
            ..
        }) => {
            let g = at.weight * (g + lambda(weight_decay) * *x);
            *first = at.momentum * *first + g;
            let ahead = g + at.momentum * *first;
            *x -= at.rate * if nesterov { ahead } else { *first };
        }
        // Kingma and Ba 2015, "Adam: a method for stochastic optimization", algorithm 1, with the
        // L2 penalty's gradient.
        OptimizerSpec::Adam(Adam {
            beta1,
            beta2,
            epsilon,
            weight_decay,
        }) => {
            let g = g + lambda(weight_decay) * *x;
            *x -= at.rate * adam((beta1, beta2, epsilon), at, (first, second), g);
        }
        // Loshchilov and Hutter 2019, "Decoupled weight decay regularization", algorithm 2, line
        // 12, with λ in units of the rate.
        OptimizerSpec::AdamW(AdamW {
            beta1,
            beta2,
            epsilon,
            weight_decay,
        }) => {
            let adam = adam((beta1, beta2, epsilon), at, (first, second), g);
            *x -= at.rate * (adam + at.weight * lambda(weight_decay) * *x);
        }
        // Chen et al. 2023, "Symbolic discovery of optimization algorithms", algorithm 2.
        OptimizerSpec::Lion(lion) => {
            let direction = lion.beta1 * *first + (1.0 - lion.beta1) * g;
            let sign = if direction == 0.0 {
                0.0
            } else {
                direction.signum()
            };
            *x -= at.weight * at.rate * (sign + lambda(lion.weight_decay) * *x);
            *first = lion.beta2 * *first + (1.0 - lion.beta2) * at.weight * g;
        }
        OptimizerSpec::Lamb(lamb) => {
            let direction = lamb_direction(lamb, at, *x, (first, second), g);
            *x -= at.weight * at.rate * at.ratio * direction;
        }
        // You, Gitman and Ginsburg 2017, "Large batch training of convolutional networks",
        // algorithm 1.
        OptimizerSpec::Lars(Lars {
            weight_decay,
            trust,
            ..
        }) => {
            let (local, beta) = local_rate(at, trust, lambda(weight_decay));
            let step = at.weight * at.rate * local.unwrap_or(1.0) * (g + beta * *x);
            *first = at.momentum * *first + step;
            *x -= *first;
        }
        // The same local rate as a limit of the global one, as Kurth et al. 2018, "Exascale deep
        // learning for climate analytics", section V-B2, used it: the gradient is multiplied by
        // min(local / global, 1), then there is a step of momentum.
        OptimizerSpec::Larc(Larc {
            weight_decay,
            trust,
            ..
        }) => {
            let (local, beta) = local_rate(at, trust, lambda(weight_decay));
            let clip = local.map_or(1.0, |local| (local / at.rate).min(1.0));
            *first = at.momentum * *first + at.weight * clip * (g + beta * *x);
            *x -= at.rate * *first;
        }
        // Liu et al. 2024, "Asynchronous Local-SGD training for language modeling", algorithm 3.
        OptimizerSpec::DelayedNesterov(DelayedNesterov {
            momentum,
            every,
            activation,
        }) => {
            let (n, g) = (f64::from(every), at.weight * g);
            *second += g;
            if at.number.is_multiple_of(u64::from(every)) {
                *first = momentum * *first + *second / n;
                let part = 1.0 - activation * n + activation;
                *x -= at.rate * (part * momentum * *first + g / n);
                *second = 0.0;
            } else {
                *x -= at.rate * (activation * momentum * *first + g / n);
            }
        }
        // Zhang, Choromanska and LeCun 2015, "Deep learning with elastic averaging SGD", equation
        // 6 for one worker: what is pushed are its values.
        OptimizerSpec::Elastic(Elastic {}) => *x = (1.0 - at.rate) * *x + at.rate * g,
    }
}

/// What the steps of a part of a tensor are multiplied by: ‖θ‖ / ‖r‖ of You et al. 2020, "Large batch optimization for
/// deep learning", algorithm 2, line 9. `part` has each value, what is kept for it, and its gradient.
pub(super) fn ratio(optimizer: OptimizerSpec, at: At, part: &[(f64, [f64; 2], f64)]) -> f64 {
    let OptimizerSpec::Lamb(lamb) = optimizer else {
        return 1.0;
    };
    if !at.decays {
        return 1.0;
    }
    let (mut values, mut directions) = (0.0, 0.0);
    for (x, kept, g) in part {
        let [mut m, mut v] = *kept;
        let direction = lamb_direction(lamb, at, *x, (&mut m, &mut v), *g);
        values += x * x;
        directions += direction * direction;
    }
    if values == 0.0 || directions == 0.0 {
        return 1.0;
    }
    f64::sqrt(values / directions)
}

/// r of LAMB, lines 7 and 8.
fn lamb_direction(lamb: Lamb, at: At, x: f64, kept: (&mut f64, &mut f64), g: f64) -> f64 {
    let lambda = if at.decays { lamb.weight_decay } else { 0.0 };
    adam((lamb.beta1, lamb.beta2, lamb.epsilon), at, kept, g) + lambda * x
}

/// m̂ / (√v̂ + ε).
fn adam(
    (beta1, beta2, epsilon): (f64, f64, f64),
    at: At,
    (m, v): (&mut f64, &mut f64),
    g: f64,
) -> f64 {
    *m = beta1 * *m + (1.0 - beta1) * at.weight * g;
    *v = beta2 * *v + (1.0 - beta2) * g * g;
    let unbiased = |moment: f64, beta: f64| moment / (1.0 - beta.powf(at.number as f64));
    unbiased(*m, beta1) / (unbiased(*v, beta2).sqrt() + epsilon)
}

/// You et al. 2017, equation 6, and the weight decay beside it; no local rate for what is not scaled.
/// A tensor without a gradient does not decay either.
fn local_rate(at: At, trust: f64, beta: f64) -> (Option<f64>, f64) {
    match at.norms {
        None => (None, beta),
        Some(norms) if norms.gradient == 0.0 => (None, 0.0),
        Some(norms) if norms.values == 0.0 => (None, beta),
        Some(norms) => {
            let local = trust * norms.values / (norms.gradient + beta * norms.values);
            (Some(local), beta)
        }
    }
}
