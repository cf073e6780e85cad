//! How long the computation of a step lasts at least (`pace.step_seconds`): ranks that would compute
//! faster wait, so that several on one machine behave as if each had one of its own. A straggler's
//! step lasts a multiple of it.

use std::time::Duration;

/// The least time of a computation; zero for none.
#[derive(Clone, Copy, Debug)]
pub struct Pace(Duration);

impl Pace {
    /// Computations last at least so long.
    pub fn new(least: Duration) -> Self {
        Self(least)
    }

    /// The pace of a step that takes so many times as long.
    pub fn times(self, factor: f64) -> Self {
        Self(self.0.mul_f64(factor))
    }

    /// What is left to wait after a computation that took so long.
    pub fn rest(self, computed: Duration) -> Duration {
        self.0.saturating_sub(computed)
    }

    /// Whether a computation that took so long has missed it.
    pub fn missed(self, computed: Duration) -> bool {
        !self.0.is_zero() && computed > self.0
    }

    /// Waits for the rest.
    pub fn keep(self, computed: Duration) {
        let rest = self.rest(computed);
        if !rest.is_zero() {
            std::thread::sleep(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_waited_for() {
        let ms = Duration::from_millis;
        let pace = Pace::new(ms(50));
        assert_eq!(pace.rest(ms(20)), ms(30));
        assert_eq!(pace.rest(ms(80)), ms(0));
        assert_eq!(pace.times(2.5).rest(ms(80)), ms(45));
        assert_eq!(Pace::new(ms(0)).times(10.0).rest(ms(1)), ms(0));
    }

    #[test]
    fn a_pace_is_missed_by_what_takes_longer() {
        let ms = Duration::from_millis;
        let cases = [
            (50, 1.0, 50, false),
            (50, 1.0, 51, true),
            (50, 2.0, 99, false),
            (0, 1.0, 9, false),
        ];
        for (pace, factor, computed, missed) in cases {
            let pace = Pace::new(ms(pace)).times(factor);
            assert_eq!(pace.missed(ms(computed)), missed, "{pace:?} {computed}");
        }
    }
}
