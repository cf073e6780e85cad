//! A gradient of delay τ counts (1 + τ)^−a (Xie, Koyejo and Gupta 2019, "Asynchronous Federated
//! Optimization", section 5.2). One of delay 0 counts whole.

use tradewind_common::policy::staleness::Polynomial;

use super::{Delay, Fate};

impl Delay for Polynomial {
    fn fate(&self, delay: u64) -> Fate {
        let weight = (1.0 + delay as f64).powf(-self.exponent) as f32;
        // So small a weight is still one: 0 would be a gradient that was left out.
        let weight = weight.max(f32::MIN_POSITIVE);
        Fate::Apply { weight }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_a_power_of_its_delay() {
        let check = |exponent, delay, weight| {
            let fate = Polynomial { exponent }.fate(delay);
            assert_eq!(
                fate,
                Fate::Apply { weight },
                "a = {exponent}, delay {delay}"
            );
        };
        check(0.5, 0, 1.0);
        check(0.5, 3, 0.5);
        check(0.5, 15, 0.25);
        check(1.0, 1, 0.5);
        check(2.0, 3, 0.0625);
        check(0.0, 1000, 1.0);
        check(10.0, u64::MAX, f32::MIN_POSITIVE);
    }
}
