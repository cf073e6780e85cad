//! How often a measurement is repeated, and what its samples come to.

use serde::Serialize;

/// Samples below this number are never enough, unless fewer are allowed.
pub const RUNS_MIN: usize = 7;

/// Most samples that may be asked for.
pub const RUNS_MAX: usize = 1000;

/// A median is steady when its interval reaches less far than this part of it to either side.
const STEADY: f64 = 0.02;

/// Chance that the median lies outside its interval, on each side.
const TAIL: f64 = 0.025;

/// The middle and the end of samples; not a number without any.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    pub p50: f64,
    pub p99: f64,
}

/// Samples of one quantity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series(Vec<f64>);

impl Series {
    pub fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The value below which this part of the samples lies, between two samples by the distance to
    /// each; `None` without samples.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let sorted = self.sorted();
        let at = part * sorted.len().checked_sub(1)? as f64;
        let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
        Some(low + (high - low) * at.fract())
    }

    pub fn median(&self) -> Option<f64> {
        self.quantile(0.5)
    }

    pub fn quantiles(&self) -> Quantiles {
        let quantile = |part| self.quantile(part).unwrap_or(f64::NAN);
        Quantiles {
            p50: quantile(0.5),
            p99: quantile(0.99),
        }
    }

    /// Interquartile range over median.
    pub fn spread(&self) -> Option<f64> {
        let range = self.quantile(0.75)? - self.quantile(0.25)?;
        Some(range / self.median()?)
    }

    /// Whether the interval of the median is narrow. The interval lies between two samples that
    /// are equally far from either end of the sorted ones: the innermost between which the true
    /// median lies with a chance of 95 %, whatever the distribution (the binomial's quantile).
    fn is_steady(&self) -> bool {
        let sorted = self.sorted();
        let Some(outside) = outside(sorted.len()) else {
            return false;
        };
        let (low, high) = (sorted[outside], sorted[sorted.len() - 1 - outside]);
        let median = self.median().expect("there are samples");
        (high - low) / 2.0 < STEADY * median.abs()
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

impl FromIterator<f64> for Series {
    fn from_iter<T: IntoIterator<Item = f64>>(samples: T) -> Self {
        Self(samples.into_iter().collect())
    }
}

/// How many of `n` sorted samples lie outside the median's interval on each side; `None` where
/// even all of them hold it with less than the wanted chance.
fn outside(n: usize) -> Option<usize> {
    // Of n samples, i lie below the median with the chance C(n, i) / 2^n.
    let mut chance = 0.5f64.powi(n as i32);
    let mut below = 0.0;
    let mut outside = None;
    for i in 0..n.div_ceil(2) {
        below += chance;
        if below > TAIL {
            break;
        }
        outside = Some(i);
        chance *= (n - i) as f64 / (i + 1) as f64;
    }
    outside
}

/// Whether to stop: when every series is steady, or has `runs_max` samples.
pub fn enough<'a>(series: impl IntoIterator<Item = &'a Series>, runs_max: usize) -> bool {
    let done = |s: &Series| s.len() >= runs_max || (s.len() >= RUNS_MIN && s.is_steady());
    series.into_iter().all(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(samples: &[f64]) -> Series {
        samples.iter().copied().collect()
    }

    #[test]
    fn quantiles_and_spread() {
        assert_eq!(series(&[]).median(), None);
        assert_eq!(series(&[3.0]).median(), Some(3.0));
        assert_eq!(series(&[3.0, 1.0, 2.0, 4.0]).median(), Some(2.5));
        let five = series(&[5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!(five.quantile(0.25), Some(2.0));
        assert_eq!(five.quantile(1.0), Some(5.0));
        assert_eq!(five.spread(), Some(2.0 / 3.0));
    }

    /// The usual table of the sign test: 95 % of a median.
    #[test]
    fn the_interval_of_a_median_follows_the_binomial() {
        for (n, want) in [
            (0, None),
            (5, None),
            (6, Some(0)),
            (8, Some(0)),
            (9, Some(1)),
            (12, Some(2)),
            (20, Some(5)),
            (30, Some(9)),
            (100, Some(39)),
        ] {
            assert_eq!(outside(n), want, "{n} samples");
        }
        assert!(outside(RUNS_MAX).is_some());
    }

    #[test]
    fn it_goes_on_until_every_median_is_steady_or_the_runs_are_used_up() {
        let steady = series(&[100.0, 101.0, 100.5, 100.0, 100.2, 100.1, 101.0]);
        let noisy = series(&[100.0, 120.0, 90.0, 110.0, 80.0, 100.0, 130.0]);
        assert!(enough([&steady], 30));
        assert!(!enough([&noisy], 30));
        assert!(!enough([&steady, &noisy], 30));
        assert!(enough([&noisy], 7), "no more are allowed");
        assert!(!enough([&series(&[1.0; 6])], 30), "too few");
        assert!(enough([&series(&[1.0; 3])], 3));
        // One outlier among many does not keep it going.
        let mut long = vec![100.0; 12];
        long.push(300.0);
        assert!(enough([&series(&long)], 30));
    }
}
