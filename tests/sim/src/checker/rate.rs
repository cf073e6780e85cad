//! The learning rate of an update, from what its contributions said.

use std::f64::consts::PI;

use tradewind_common::schedule::{Decay, Scaling, Schedule, Seen, Unit};

/// The rate, without scaling, of an update of so many samples by groups that had `seen` so much, of a run of `budget`
/// samples.
pub(super) fn rate(schedule: &Schedule, seen: Seen, samples: u64, budget: u64) -> f64 {
    let (x, adds, end) = match schedule.unit {
        Unit::Samples => (seen.samples as f64, samples as f64, budget as f64),
        Unit::Updates { end } => (seen.updates as f64, 1.0, end as f64),
    };
    let warmup = schedule.warmup as f64;
    // From 0 where the warm-up ends to 1 at the end.
    let z = ((x - warmup) / (end - warmup).max(1.0)).min(1.0);
    let left = match &schedule.decay {
        // Goyal et al. 2017, "Accurate, large minibatch SGD", section 2.2.
        _ if x < warmup => ((x + adds) / warmup).min(1.0),
        Decay::Constant => 1.0,
        // He et al. 2016, "Deep residual learning for image recognition", section 3.4.
        Decay::Step {
            milestones,
            gamma,
            factors,
        } => {
            let passed = milestones
                .iter()
                .filter(|milestone| **milestone as f64 <= x)
                .count();
            (0..passed).fold(1.0, |left, at| left * factors.get(at).unwrap_or(gamma))
        }
        // Loshchilov and Hutter 2017, "SGDR", equation 5.
        Decay::Cosine { floor } => floor + (1.0 - floor) / 2.0 * (1.0 + (PI * z).cos()),
        // You et al. 2017, "Large batch training of convolutional networks", section 5.
        Decay::Polynomial { power, floor } => floor + (1.0 - floor) * (1.0 - z).powf(*power),
    };
    schedule.learning_rate * left
}

/// What its samples make of an update: of the weight of its gradient, or where steps are not in
/// proportion to that of the rate.
pub(super) fn scaling(schedule: &Schedule, samples: u64) -> f64 {
    let times = |reference: u64| samples as f64 / reference as f64;
    match schedule.scaling {
        Scaling::None => 1.0,
        // Goyal et al. 2017, section 2.1, with the rate inside the velocity as in their equation 10.
        Scaling::Linear { reference } => times(reference),
        Scaling::Sqrt { reference } => times(reference).sqrt(),
    }
}
