//! What the observer knows of staleness policies, in f64.

use tradewind_common::policy::StalenessSpec;
use tradewind_common::policy::staleness::{Compensate, Drop};

/// Whether a gradient of this delay is to be left out.
pub(super) fn drops(policy: StalenessSpec, delay: u64, measured: bool) -> bool {
    matches!(policy, StalenessSpec::Drop(Drop { beyond }) if measured && delay >= u64::from(beyond))
}

/// Times which it counts.
pub(super) fn scale(policy: StalenessSpec, delay: u64) -> f64 {
    match policy {
        StalenessSpec::Scale(_) => 1.0 / delay.max(1) as f64,
        StalenessSpec::Polynomial(policy) => (1.0 + delay as f64).powf(-policy.exponent),
        StalenessSpec::None(_)
        | StalenessSpec::Drop(_)
        | StalenessSpec::Compensate(_)
        | StalenessSpec::CompensateAdaptive(_) => 1.0,
    }
}

/// Brings it to values that have `moved` since.
pub(super) fn compensate(
    policy: StalenessSpec,
    gradient: &mut [f64],
    moved: &[f64],
    mean_square: &mut Vec<f64>,
) {
    let (lambda, mean_square_decay) = match policy {
        StalenessSpec::Compensate(Compensate { lambda }) => (lambda, None),
        StalenessSpec::CompensateAdaptive(adaptive) => {
            (adaptive.lambda, Some(adaptive.mean_square_decay))
        }
        StalenessSpec::None(_)
        | StalenessSpec::Scale(_)
        | StalenessSpec::Polynomial(_)
        | StalenessSpec::Drop(_) => return,
    };
    mean_square.resize(gradient.len(), 0.0);
    for ((g, moved), square) in gradient.iter_mut().zip(moved).zip(mean_square) {
        let mut lambda = lambda;
        if let Some(decay) = mean_square_decay {
            *square = decay * *square + (1.0 - decay) * *g * *g;
            lambda /= (*square + 1e-7).sqrt();
        }
        *g += lambda * *g * *g * moved;
    }
}
