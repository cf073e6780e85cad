//! The learning rate as a function of applied samples.
//!
//! Samples, not updates, so that settings with different numbers of groups can be compared: eight
//! asynchronous groups make eight times the updates of one synchronous group from the same data.

use serde::{Deserialize, Serialize};

/// What happens to the rate after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Decay {
    /// Nothing.
    Constant,
    /// Half a cosine over the samples from the end of the warm-up to the budget (Loshchilov and
    /// Hutter 2017, "SGDR", equation 5, without restarts).
    Cosine {
        /// Where it ends, as a fraction of the rate, in `0..=1`.
        floor: f64,
    },
}

/// A learning-rate schedule.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// The rate at the end of the warm-up.
    pub learning_rate: f64,
    /// Samples over which the rate grows linearly (Goyal et al. 2017, section 2.2).
    pub warmup_samples: u64,
    /// What follows.
    pub decay: Decay,
}

impl Schedule {
    /// One rate throughout.
    pub fn constant(learning_rate: f64) -> Self {
        Self {
            learning_rate,
            warmup_samples: 0,
            decay: Decay::Constant,
        }
    }

    /// The rate of an update that brings the applied samples from `seen` to `seen + added`, under
    /// a budget of `total` samples. Past the budget the rate stays where it ended.
    pub fn rate(&self, seen: u64, added: u64, total: u64) -> f64 {
        if seen < self.warmup_samples {
            let reached = seen.saturating_add(added).min(self.warmup_samples);
            return self.learning_rate * reached as f64 / self.warmup_samples as f64;
        }
        match self.decay {
            Decay::Constant => self.learning_rate,
            Decay::Cosine { floor } => {
                let length = total.saturating_sub(self.warmup_samples).max(1) as f64;
                let done = ((seen - self.warmup_samples) as f64 / length).min(1.0);
                let cosine = 0.5 * (1.0 + (std::f64::consts::PI * done).cos());
                self.learning_rate * (floor + (1.0 - floor) * cosine)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate() {
        let check = |decay, seen, want: f64| {
            let schedule = Schedule {
                learning_rate: 2.0,
                warmup_samples: 100,
                decay,
            };
            let got = schedule.rate(seen, 10, 1100);
            assert!((got - want).abs() < 1e-12, "{decay:?} at {seen}: {got}");
        };
        let cosine = Decay::Cosine { floor: 0.1 };
        check(Decay::Constant, 0, 0.2);
        check(Decay::Constant, 45, 1.1);
        check(Decay::Constant, 95, 2.0);
        check(Decay::Constant, 5000, 2.0);
        check(cosine, 100, 2.0);
        check(cosine, 600, 2.0 * 0.55);
        check(cosine, 1100, 0.2);
        check(cosine, 9999, 0.2);
    }
}
