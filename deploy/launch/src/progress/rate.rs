//! How fast a count grows, from records' own times.

use std::collections::VecDeque;

/// A rate is measured over so many seconds of the run.
const RATE_SECONDS: f64 = 20.0;
/// Points of a rate are at least this far apart, so that they are few.
const RATE_STEP_SECONDS: f64 = 0.25;

/// Growth of a count per second, over the last `RATE_SECONDS` seconds.
#[derive(Clone, Debug, Default)]
pub struct Rate {
    /// Wall time and count, both rising; at most `RATE_SECONDS / RATE_STEP_SECONDS + 2` of them.
    points: VecDeque<(f64, u64)>,
}

impl Rate {
    /// Takes in a count at a wall time in seconds.
    pub fn push(&mut self, wall: f64, count: u64) {
        if !wall.is_finite() {
            return;
        }
        // Clocks of several machines disagree a little; time does not go back here.
        let wall = self.points.back().map_or(wall, |last| wall.max(last.0));
        let before_last = self.points.len().checked_sub(2).map(|i| self.points[i].0);
        if before_last.is_some_and(|before| wall - before < RATE_STEP_SECONDS) {
            self.points.pop_back();
        }
        self.points.push_back((wall, count));
        // Two points stay, however far apart: steps may be slower than the span.
        while self.points.len() > 2 && wall - self.points[1].0 >= RATE_SECONDS {
            self.points.pop_front();
        }
    }

    /// `None` until the count has grown over some time.
    pub fn per_second(&self) -> Option<f64> {
        let (first, last) = (self.points.front()?, self.points.back()?);
        let (seconds, count) = (last.0 - first.0, last.1.saturating_sub(first.1));
        (seconds > 0.0 && count > 0).then(|| count as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_recent_records() {
        type Points = &'static [(f64, u64)];
        let cases: &[(Points, Option<f64>)] = &[
            (&[], None),
            (&[(1.0, 5)], None),
            (&[(1.0, 5), (1.0, 9)], None),
            (&[(1.0, 5), (3.0, 9)], Some(2.0)),
            (&[(1.0, 5), (0.0, 6), (3.0, 9)], Some(2.0)),
            (&[(1.0, 5), (f64::NAN, 6), (3.0, 9)], Some(2.0)),
            (&[(0.0, 0), (100.0, 100), (120.0, 2_100)], Some(100.0)),
            (&[(0.0, 0), (90.0, 9)], Some(0.1)),
        ];
        for (points, expected) in cases {
            let mut rate = Rate::default();
            points.iter().for_each(|&(wall, n)| rate.push(wall, n));
            assert_eq!(rate.per_second(), *expected, "{points:?}");
        }
        let mut rate = Rate::default();
        (0..100_000).for_each(|i| rate.push(0.001 * f64::from(i), i as u64));
        assert!(rate.points.len() as f64 <= RATE_SECONDS / RATE_STEP_SECONDS + 2.0);
        assert!((rate.per_second().unwrap() - 1_000.0).abs() < 1.0);
    }
}
