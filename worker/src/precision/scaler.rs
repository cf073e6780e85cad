//! The scale of the loss in f16.

use tradewind_client::step::SCALE_MIN;

/// The scale is doubled up to here: 2^24.
const SCALE_MAX: f64 = 16_777_216.0;

/// The factor on the loss that keeps small gradients from vanishing in f16: as large as gradients
/// allow that do not overflow, which is found by trying (Micikevicius et al. 2018, "Mixed
/// Precision Training", section 3.2; the factors are those of PyTorch's GradScaler).
///
/// It is a power of two, so that scaling and unscaling change no bit of a gradient that stays in
/// range. Ranks that agree on overflows have equal scales.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScaler {
    scale: f64,
    good_steps: u32,
    growth_steps: u32,
}

impl LossScaler {
    /// At the first scale, which is doubled after so many steps without an overflow.
    pub fn new(initial: f64, growth_steps: u32) -> Self {
        Self {
            scale: initial,
            good_steps: 0,
            growth_steps,
        }
    }

    /// What the loss of the next step is multiplied by, and its gradient divided by.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// A step has ended: halves the scale after an overflow, but not below [`SCALE_MIN`], and doubles it after
    /// so many steps in a row without.
    pub fn stepped(&mut self, overflowed: bool) {
        if overflowed {
            self.scale = (self.scale / 2.0).max(SCALE_MIN);
            self.good_steps = 0;
            return;
        }
        self.good_steps += 1;
        if self.good_steps == self.growth_steps {
            self.scale = (self.scale * 2.0).min(SCALE_MAX);
            self.good_steps = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_follows_overflows() {
        /// Steps, `o` for one that overflowed, and the scale before each and after the last.
        fn check(initial: f64, growth_steps: u32, steps: &str, want: &[f64]) {
            let mut scaler = LossScaler::new(initial, growth_steps);
            let mut scales = vec![scaler.scale()];
            for step in steps.chars() {
                scaler.stepped(step == 'o');
                scales.push(scaler.scale());
            }
            assert_eq!(scales, want, "{initial} {growth_steps} {steps}");
        }
        check(8.0, 2, "..", &[8.0, 8.0, 16.0]);
        check(8.0, 2, "....", &[8.0, 8.0, 16.0, 16.0, 32.0]);
        check(8.0, 2, ".o..", &[8.0, 8.0, 4.0, 4.0, 8.0]);
        check(8.0, 1, "o.o", &[8.0, 4.0, 8.0, 4.0]);
        check(2.0, 3, "ooo", &[2.0, 1.0, 1.0, 1.0]);
        check(SCALE_MAX, 1, "..", &[SCALE_MAX; 3]);
        check(8.0, 3, "..o..", &[8.0, 8.0, 8.0, 4.0, 4.0, 4.0]);
    }
}
