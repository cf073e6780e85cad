//! A gradient of delay τ ≥ 1 counts 1/τ: its learning rate is divided by its delay (Zhang, Gupta,
//! Lian and Liu 2016, "Staleness-aware Async-SGD for Distributed Deep Learning", equations 3 and
//! 4). One of delay 0 counts whole.

use tradewind_common::policy::staleness::Scale;

use super::{Delay, Fate};

impl Delay for Scale {
    fn fate(&self, delay: u64) -> Fate {
        let weight = 1.0 / delay.max(1) as f32;
        Fate::Apply { weight }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_one_over_its_delay() {
        let check = |delay, weight| assert_eq!(Scale {}.fate(delay), Fate::Apply { weight });
        check(0, 1.0);
        check(1, 1.0);
        check(2, 0.5);
        check(8, 0.125);
    }
}
