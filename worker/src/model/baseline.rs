//! Simple forecasts, which a model has to be measured against.
//!
//! A forecast is made from the maps before the target, oldest first, one after the other, each of
//! `cells` values. The arithmetic is f64.

use crate::data::series::Series;
use crate::data::{DataError, Split};

/// A forecast that nothing is learned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// The last map again.
    Persistence,
    /// In every cell the mean of this many last maps.
    Mean(usize),
    /// In every cell the least-squares line through this many last maps, one step further; through
    /// as many as there are where the series is younger.
    Trend(usize),
}

impl Baseline {
    /// Its name, when a time step is called `step`: `persistence`, `8-year mean`, `30-year trend`.
    pub fn name(self, step: &str) -> String {
        match self {
            Self::Persistence => "persistence".into(),
            Self::Mean(maps) => format!("{maps}-{step} mean"),
            Self::Trend(maps) => format!("{maps}-{step} trend"),
        }
    }

    /// The largest number of maps that it looks at.
    pub fn maps_max(self) -> usize {
        match self {
            Self::Persistence => 1,
            Self::Mean(maps) | Self::Trend(maps) => maps,
        }
    }

    /// The forecast from the maps in `before`, of which the last [`maps_max`](Self::maps_max) count.
    ///
    /// # Panics
    /// If `before` is no whole number of maps, at least 1.
    pub fn forecast(self, before: &[f32], cells: usize) -> Vec<f32> {
        assert!(!before.is_empty() && before.len().is_multiple_of(cells));
        let count = (before.len() / cells).min(self.maps_max());
        let used = &before[before.len() - count * cells..];
        let weights = match self {
            Self::Persistence | Self::Mean(_) => vec![1.0 / count as f64; count],
            Self::Trend(_) => trend_weights(count),
        };
        let mut sums = vec![0.0; cells];
        for (map, weight) in used.chunks_exact(cells).zip(weights) {
            sums.iter_mut()
                .zip(map)
                .for_each(|(sum, value)| *sum += weight * f64::from(*value));
        }
        sums.into_iter().map(|sum| sum as f32).collect()
    }

    /// Its error in each file of a split.
    ///
    /// # Errors
    /// Data that cannot be read.
    pub fn errors(self, series: &Series, split: Split) -> Result<Vec<Rmse>, DataError> {
        let cells = series.cells();
        let file_errors = |file| {
            let mut errors = Rmse::default();
            for step in series.targets(split) {
                let maps = series.maps(file, step.saturating_sub(self.maps_max())..step + 1)?;
                let (before, truth) = maps.split_at(maps.len() - cells);
                errors.add(&self.forecast(before, cells), truth);
            }
            Ok(errors)
        };
        (0..series.names().len()).map(file_errors).collect()
    }
}

/// The line through `count` values at 0, 1, …, read at `count`, is a weighted sum of the values:
/// 1/count + (i − m)·(count − m)/Σ(k − m)², where m = (count − 1)/2 is the mean position.
fn trend_weights(count: usize) -> Vec<f64> {
    let middle = (count as f64 - 1.0) / 2.0;
    let offsets = (0..count).map(|i| i as f64 - middle);
    // One value has no slope: its sum is 0, and so is its offset.
    let squares = offsets
        .clone()
        .map(|o| o * o)
        .sum::<f64>()
        .max(f64::MIN_POSITIVE);
    offsets
        .map(|o| 1.0 / count as f64 + o * (count as f64 - middle) / squares)
        .collect()
}

/// A root mean square error that is being gathered.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rmse {
    squares: f64,
    values: u64,
}

impl Rmse {
    /// Takes in the errors of one map.
    ///
    /// # Panics
    /// If the maps differ in length.
    pub fn add(&mut self, forecast: &[f32], truth: &[f32]) {
        assert_eq!(forecast.len(), truth.len());
        let squares = forecast
            .iter()
            .zip(truth)
            .map(|(f, t)| (f64::from(*f) - f64::from(*t)).powi(2));
        self.squares += squares.sum::<f64>();
        self.values += truth.len() as u64;
    }

    /// Both, pooled.
    pub fn pooled(self, other: Self) -> Self {
        Self {
            squares: self.squares + other.squares,
            values: self.values + other.values,
        }
    }

    /// The error, in the unit of the values; not a number if nothing was taken in.
    pub fn value(self) -> f64 {
        (self.squares / self.values as f64).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        // Two cells: one rises by 2 a step with a last value off the line, one is constant.
        let before = [1.0, 5.0, 3.0, 5.0, 8.0, 5.0];
        let check = |baseline: Baseline, want: [f32; 2]| {
            let got = baseline.forecast(&before, 2);
            let near = got.iter().zip(want).all(|(g, w)| (g - w).abs() < 1e-5);
            assert!(near, "{baseline:?}: {got:?} instead of {want:?}");
        };
        check(Baseline::Persistence, [8.0, 5.0]);
        check(Baseline::Mean(2), [5.5, 5.0]);
        check(Baseline::Mean(3), [4.0, 5.0]);
        // Through (0, 3), (1, 8): 13 at 2. Through all three: mean 4, slope 3.5, so 4 + 2 · 3.5.
        check(Baseline::Trend(2), [13.0, 5.0]);
        check(Baseline::Trend(3), [11.0, 5.0]);
        check(Baseline::Trend(30), [11.0, 5.0]);
        check(Baseline::Trend(1), [8.0, 5.0]);
    }

    #[test]
    fn a_line_is_forecast_exactly() {
        let before: Vec<f32> = (0..30).map(|i| 270.0 + 0.25 * i as f32).collect();
        assert_eq!(Baseline::Trend(30).forecast(&before, 1), [277.5]);
    }

    #[test]
    fn names() {
        assert_eq!(Baseline::Persistence.name("year"), "persistence");
        assert_eq!(Baseline::Mean(8).name("year"), "8-year mean");
        assert_eq!(Baseline::Trend(30).name("month"), "30-month trend");
    }

    #[test]
    fn rmse_is_pooled_over_values() {
        let (mut a, mut b) = (Rmse::default(), Rmse::default());
        a.add(&[1.0, 2.0], &[1.0, 5.0]);
        b.add(&[4.0, 0.0], &[0.0, 0.0]);
        assert_eq!(b.value(), 8f64.sqrt());
        assert_eq!(a.pooled(b).value(), 2.5);
        assert!(Rmse::default().value().is_nan());
    }
}
