//! A gradient of delay R or more is left out; its group pulls the present values and goes on
//! (Maranjyan, Tyurin and Richtárik 2025, "Ringmaster ASGD: The First Asynchronous SGD with Optimal
//! Time Complexity", algorithm 4: a gradient is applied while its delay is less than R).
//!
//! Nothing is dropped but after R other updates, so there is always progress.

use tradewind_common::policy::staleness::Drop;

use super::{Delay, Fate};

impl Delay for Drop {
    fn fate(&self, delay: u64) -> Fate {
        if delay < u64::from(self.beyond) {
            Fate::Apply { weight: 1.0 }
        } else {
            Fate::Drop
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_from_its_bound_on() {
        let check = |beyond, delay, dropped| {
            let fate = Drop { beyond }.fate(delay);
            assert_eq!(fate == Fate::Drop, dropped, "R = {beyond}, delay {delay}");
        };
        check(1, 0, false);
        check(1, 1, true);
        check(4, 3, false);
        check(4, 4, true);
        check(4, 5, true);
    }
}
