//! How long the computation of a step lasts at least (`pace.step_seconds`): ranks that would compute
//! faster wait, so that several on one machine behave as if each had one of its own.

use std::time::Duration;

/// The least time of a computation.
#[derive(Clone, Copy, Debug)]
pub struct Pace(Duration);

impl Pace {
    /// Computations last at least so long.
    pub fn new(least: Duration) -> Self {
        Self(least)
    }

    /// What is left to wait after a computation that took so long.
    pub fn rest(self, computed: Duration) -> Duration {
        self.0.saturating_sub(computed)
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
        assert_eq!(Pace::new(ms(0)).rest(ms(1)), ms(0));
    }
}
