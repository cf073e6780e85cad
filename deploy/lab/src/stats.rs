//! Means and ratios over seeds, with 95 % intervals.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Part of the intervals that cover the true value.
const CONFIDENCE: f64 = 0.95;

/// A mean, and the interval that it was estimated in; none from a single value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub mean: f64,
    pub interval: Option<(f64, f64)>,
    /// Values that it is of.
    pub n: usize,
}

impl Estimate {
    /// In another unit.
    pub fn times(self, factor: f64) -> Self {
        Self {
            mean: self.mean * factor,
            interval: self
                .interval
                .map(|(low, high)| (low * factor, high * factor)),
            n: self.n,
        }
    }

    /// Of a ratio: that of the other to the one.
    pub fn inverse(self) -> Self {
        Self {
            mean: 1.0 / self.mean,
            interval: self.interval.map(|(low, high)| (1.0 / high, 1.0 / low)),
            n: self.n,
        }
    }

    /// Whether its interval is on one side of a value; nobody knows without one.
    pub fn excludes(self, value: f64) -> bool {
        self.interval
            .is_some_and(|(low, high)| low > value || high < value)
    }
}

/// The mean of values that scatter normally, with Student's interval: mean ± t · s / √n, t the
/// quantile at (1 + 0.95) / 2 of n − 1 degrees of freedom. `None` without values.
pub fn mean(values: &[f64]) -> Option<Estimate> {
    if values.is_empty() {
        return None;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let freedom = n - 1.0;
    let interval = (values.len() > 1).then(|| {
        let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / freedom;
        let half = quantile(freedom) * (variance / n).sqrt();
        (mean - half, mean + half)
    });
    Some(Estimate {
        mean,
        interval,
        n: values.len(),
    })
}

/// The mean of positive ratios, on the logarithmic scale, where a ratio and its inverse are equally
/// far from 1: the geometric mean, with Student's interval of the logarithms carried back.
pub fn mean_ratio(ratios: &[f64]) -> Option<Estimate> {
    let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let estimate = mean(&logarithms)?;
    Some(Estimate {
        mean: estimate.mean.exp(),
        interval: estimate.interval.map(|(low, high)| (low.exp(), high.exp())),
        n: estimate.n,
    })
}

/// Student's quantile of that many degrees of freedom.
fn quantile(freedom: f64) -> f64 {
    let student = StudentsT::new(0.0, 1.0, freedom).expect("there are two values or more");
    student.inverse_cdf((1.0 + CONFIDENCE) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, t) in [
            (1.0, 12.7062),
            (2.0, 4.3027),
            (4.0, 2.7764),
            (9.0, 2.2622),
            (30.0, 2.0423),
        ] {
            assert!((quantile(freedom) - t).abs() < 1e-4, "{freedom}");
        }
    }

    #[test]
    fn an_interval_is_as_wide_as_computed_by_hand() {
        // Mean 3, s² = 2.5, so s / √5 = 0.70711, times 2.77645.
        let estimate = mean(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        let (low, high) = estimate.interval.unwrap();
        assert_eq!(estimate.mean, 3.0);
        assert!((low - 1.03676).abs() < 1e-4 && (high - 4.96324).abs() < 1e-4);
        assert_eq!(mean(&[]), None);
        assert_eq!(mean(&[2.5]).unwrap().interval, None);
    }

    #[test]
    fn a_ratio_and_its_inverse_are_equally_far_from_one() {
        let (there, back) = (mean_ratio(&[2.0, 8.0]), mean_ratio(&[0.5, 0.125]));
        let (there, back) = (there.unwrap(), back.unwrap());
        assert!((there.mean - 4.0).abs() < 1e-12 && (back.mean - 0.25).abs() < 1e-12);
        let (low, high) = there.interval.unwrap();
        let (back_low, back_high) = back.interval.unwrap();
        assert!((low * back_high - 1.0).abs() < 1e-9 && (high * back_low - 1.0).abs() < 1e-9);
        // ln 4 ± 12.7062 · (ln 2) : s = ln 4 / √2, so s / √2 = ln 2.
        let half = 12.7062 * 2.0_f64.ln();
        assert!((high.ln() - 4.0_f64.ln() - half).abs() < 1e-3);
    }
}
