use super::{Moment, Momentum};
use crate::trace::Passed;

/// The explicit momentum stays in this range, whatever is measured.
const RANGE: (f64, f64) = (-0.9, 0.999);

/// Measures the total momentum and corrects the explicit one (Zhang and Mitliagkas 2017, "YellowFin
/// and the Art of Momentum Tuning", section 4 and algorithm 5): with x_v the values that a gradient
/// g was computed on, which may be long past when it comes,
///
/// μ̂ = median over elements of (x_{v+1} − x_v + α g) / (x_v − x_{v−1}),
/// μₑ ← μₑ + γ (μ* − μ̂).
///
/// α is the rate of the update that made x_{v+1} times its weight, and g holds the weight decay where
/// that applies. μₑ begins at 0, as
/// there, and may become negative. One shard has one μₑ; each of its B blocks measures for itself
/// and corrects it by γ/B. Copies know it from the updates that they apply; after a restore it
/// begins at 0 again.
#[derive(Clone, Copy, Debug)]
pub struct ClosedLoop {
    target: f64,
    gain: f64,
    weight_decay: f64,
    explicit: f64,
}

impl ClosedLoop {
    /// μ* and γ; λ is the optimizer's L2 penalty.
    pub fn new(target: f64, gain: f64, weight_decay: f64) -> Self {
        Self {
            target,
            gain,
            weight_decay,
            explicit: 0.0,
        }
    }

    /// μ̂; `None` where nothing had moved.
    fn total(&self, passed: &Passed) -> Option<f64> {
        let mut ratios: Vec<f64> = passed
            .elements()
            .filter(|at| at.now != at.before)
            .map(|at| {
                let decay = if at.decays { self.weight_decay } else { 0.0 };
                let gradient = at.gradient + decay * at.now;
                (at.after - at.now + passed.rate * gradient) / (at.now - at.before)
            })
            .collect();
        let middle = ratios.len() / 2;
        if ratios.is_empty() {
            return None;
        }
        let (_, median, _) = ratios.select_nth_unstable_by(middle, f64::total_cmp);
        Some(*median)
    }
}

impl Momentum for ClosedLoop {
    fn explicit(&mut self, _: Moment) -> Option<f64> {
        Some(self.explicit)
    }

    fn measures(&self) -> bool {
        true
    }

    fn passed(&mut self, passed: &Passed, blocks: usize) {
        if let Some(total) = self.total(passed).filter(|total| total.is_finite()) {
            let change = self.gain / blocks as f64 * (self.target - total);
            self.explicit = (self.explicit + change).clamp(RANGE.0, RANGE.1);
        }
    }

    fn follow(&mut self, explicit: f64) {
        self.explicit = explicit;
    }

    fn begin_anew(&mut self) {
        self.explicit = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Trace, thinned};

    fn passed(before: [f32; 3], now: [f32; 3], after: [f32; 3], gradient: [f32; 3]) -> Passed {
        Passed {
            rate: 0.5,
            before: before.to_vec(),
            now: now.to_vec(),
            after: after.to_vec(),
            gradient: gradient.to_vec(),
            decays: vec![true, true, false],
        }
    }

    #[test]
    fn measures_the_momentum_that_moved_the_values() {
        // x' = x + 0.75 (x − before) − 0.5 (g + λ x), but for one element of three; λ spares the
        // last one.
        let loops = ClosedLoop::new(0.9, 0.1, 0.25);
        let (before, now, gradient) = ([1.0, 2.0, 3.0], [2.0, 1.0, 3.5], [4.0, -2.0, 1.0]);
        let after = |at: usize| {
            let decayed = gradient[at] + [0.25, 0.25, 0.0][at] * now[at];
            now[at] + 0.75 * (now[at] - before[at]) - 0.5 * decayed
        };
        for other in [77.0, -77.0] {
            let told = passed(before, now, [after(0), other, after(2)], gradient);
            let total = loops.total(&told).unwrap();
            assert!((total - 0.75).abs() < 1e-6, "{total}");
        }
        assert_eq!(loops.total(&passed(now, now, now, gradient)), None);
    }

    #[test]
    fn corrects_by_its_gain_and_stays_in_its_range() {
        let mut loops = ClosedLoop::new(0.9, 0.1, 0.0);
        let moment = Moment {
            groups: 4,
            merged: 1,
        };
        let told = passed([0.0; 3], [1.0; 3], [1.5; 3], [0.0; 3]);
        loops.passed(&told, 2);
        let want = 0.05 * (0.9 - 0.5);
        assert!((loops.explicit(moment).unwrap() - want).abs() < 1e-12);
        for (after, end) in [(100.0, RANGE.0), (-100.0, RANGE.1)] {
            let told = passed([0.0; 3], [1.0; 3], [after; 3], [0.0; 3]);
            (0..100).for_each(|_| loops.passed(&told, 1));
            assert_eq!(loops.explicit(moment), Some(end));
        }
    }

    /// What the explicit and the total momentum are on average, as `groups` of equal pace descend
    /// x²/2 with some noise.
    fn settled(target: f64, groups: usize) -> (f64, f64) {
        const UPDATES: usize = 3000;
        const RATE: f64 = 0.2;
        let moment = Moment { groups, merged: 1 };
        let mut loops = ClosedLoop::new(target, 0.01, 0.0);
        let (mut x, mut velocity) = ([1.0f32; 63], [0.0f32; 63]);
        let mut trace = Trace::default();
        trace.note(0, 0.0, &x);
        let mut pulled = vec![(0u64, x); groups];
        let mut random = 1u64;
        let mut draw = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        let (mut explicit, mut total) = (0.0, 0.0);
        for update in 1..=UPDATES {
            let group = draw(groups as u64) as usize;
            let (version, values) = pulled[group];
            let gradient = values.map(|x| x + draw(2001) as f32 / 10_000.0 - 0.1);
            let momentum = loops.explicit(moment).unwrap();
            for ((x, v), g) in x.iter_mut().zip(&mut velocity).zip(gradient) {
                *v = momentum as f32 * *v + g;
                *x -= RATE as f32 * *v;
            }
            trace.note(update as u64, RATE, &x);
            pulled[group] = (update as u64, x);
            if let Some(passed) = trace.around(version, thinned(&gradient), vec![true; 63]) {
                loops.passed(&passed, 1);
                if update > UPDATES / 2 {
                    total += loops.total(&passed).unwrap() / (UPDATES / 2) as f64;
                }
            }
            if update > UPDATES / 2 {
                explicit += momentum / (UPDATES / 2) as f64;
            }
        }
        (explicit, total)
    }

    #[test]
    fn makes_room_for_asynchrony() {
        let check = |groups, explicit: std::ops::Range<f64>| {
            let got = settled(0.6, groups);
            assert!(
                (got.1 - 0.6).abs() < 0.01,
                "{groups} groups: total {}",
                got.1
            );
            assert!(explicit.contains(&got.0), "{groups} groups: {}", got.0);
        };
        check(1, 0.59..0.61);
        check(3, 0.40..0.50);
        check(8, 0.30..0.43);
    }
}
