use super::{Moment, Momentum};

/// The explicit momentum that remains of a total when asynchrony has had its part.
///
/// With G groups of equal pace a gradient is applied when k others have been, with probability
/// (1/G)(1 − 1/G)^k, so that updates without any momentum are, in expectation, those of a momentum
/// of 1 − 1/G (Mitliagkas et al. 2016, "Asynchrony begets Momentum, with an Application to Deep
/// Learning", theorem 3). Together with an explicit μₑ the expected updates Δ obey
///
/// Δₜ₊₁ = (μₑ + 1 − 1/G) Δₜ − μₑ (1 − 1/G) Δₜ₋₁ − (η/G) ∇f,
///
/// two such filters, one after the other. A filter of momentum μ holds a gradient back by
/// μ / (1 − μ) updates on average, and what two filters hold back adds up: G − 1 updates for that of
/// asynchrony. So a total of μ* is kept with
///
/// μₑ / (1 − μₑ) = μ* / (1 − μ*) − (G − 1),
///
/// or with 0 where that is less. (The sum of the momenta is not the total: it would be the factor
/// of Δₜ alone.) On a quadratic this keeps the rate at which slow directions shrink up to second
/// order. The learning rate is left alone: the sum of the steps that a gradient makes is
/// η / (1 − μₑ).
///
/// Where m groups are merged into an update, there are G/m updates in the time of G groups.
#[derive(Clone, Copy, Debug)]
pub struct Lowered {
    /// μ*, in `0..1`.
    pub total: f64,
}

impl Momentum for Lowered {
    fn explicit(&mut self, at: Moment) -> Option<f64> {
        let late = at.groups.max(at.merged) as f64 / at.merged as f64 - 1.0;
        let held = (self.total / (1.0 - self.total) - late).max(0.0);
        Some(held / (1.0 + held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explicit(total: f64, groups: usize, merged: usize) -> f64 {
        let moment = Moment { groups, merged };
        Lowered { total }.explicit(moment).unwrap()
    }

    #[test]
    fn what_remains() {
        let check = |total, groups, merged, want: f64| {
            let got = explicit(total, groups, merged);
            let what = format!("{total} of {groups}, {merged} merged: {got}, not {want}");
            assert!((got - want).abs() < 1e-12, "{what}");
        };
        check(0.9, 1, 1, 0.9);
        check(0.9, 4, 4, 0.9);
        check(0.9, 5, 1, 5.0 / 6.0);
        check(0.9, 10, 1, 0.0);
        check(0.9, 100, 1, 0.0);
        check(0.5, 2, 1, 0.0);
        check(0.75, 6, 3, 2.0 / 3.0);
        // Whoever was merged last may have left.
        check(0.9, 0, 1, 0.9);
    }

    /// How fast the mean of x shrinks on x²/2, an update: from 1, by `groups` that compute on what
    /// they pulled when they were last applied, one drawn at random for each update.
    fn simulated(groups: usize, momentum: f64, gain: f64) -> f64 {
        const RUNS: usize = 200;
        let rate = gain * (1.0 - momentum);
        let (mut early, mut late) = (0.0, 0.0);
        let mut random = 1u64;
        for _ in 0..RUNS {
            let (mut x, mut velocity) = (1.0f64, 0.0);
            let mut pulled = vec![x; groups];
            for step in 0..500 {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let group = (random >> 33) as usize % groups;
                velocity = momentum * velocity + pulled[group];
                x -= rate * velocity;
                pulled[group] = x;
                early += if step == 149 { x } else { 0.0 };
            }
            late += x;
        }
        (early / late).ln() / 350.0
    }

    #[test]
    fn keeps_the_total_of_asynchronous_groups_on_a_quadratic() {
        let (total, gain) = (0.9, 0.01);
        let want = simulated(1, total, gain);
        for groups in [2, 4, 8] {
            let off = |momentum: f64| (simulated(groups, momentum, gain) / want - 1.0).abs();
            let lowered = off(explicit(total, groups, 1));
            assert!(lowered < 0.005, "{groups} groups: off by {lowered}");
            let sum = (total - (1.0 - 1.0 / groups as f64)).max(0.0);
            for other in [total, sum] {
                let other = off(other);
                assert!(other > 2.0 * lowered, "{groups} groups: {other}, {lowered}");
            }
        }
    }
}
