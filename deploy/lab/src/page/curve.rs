//! Curves of the runs of a setting, and the band of its seeds.

use tradewind_common::record::StepRecord;

use crate::reading::Reading;
use tradewind_report::loss::running_mean;

/// Points of a band along its axis.
const POINTS: usize = 160;

/// A running mean of the loss spans this part of a run's exchanges.
const SMOOTHED_PART: usize = 25;

/// What a curve goes along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Along {
    Time,
    Updates,
    Samples,
}

/// What a curve shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// The metric on the validation split.
    Validation,
    /// The training loss, smoothed.
    Loss,
}

/// Points of one run, from left to right.
pub(super) type Curve = Vec<(f64, f64)>;

/// The curve of a run.
pub(super) fn curve(reading: &Reading, shown: Shown, along: Along) -> Curve {
    let begun = reading.begun();
    let mut curve: Curve = match shown {
        Shown::Validation => {
            let points = reading.evaluations().into_iter().map(|v| {
                let x = match along {
                    Along::Time => v.wall - begun,
                    Along::Updates => v.updates as f64,
                    Along::Samples => v.samples_applied.1 as f64,
                };
                (x, v.measure.value)
            });
            points.collect()
        }
        Shown::Loss => {
            let told = |r: &&StepRecord| r.loss.is_some();
            let records: Vec<&StepRecord> = reading.records.iter().filter(told).collect();
            let losses: Vec<f64> = records.iter().filter_map(|r| r.loss).collect();
            let smooth = running_mean(&losses, losses.len() / SMOOTHED_PART / 2);
            let points = records.iter().zip(smooth).map(|(r, loss)| {
                let x = match along {
                    Along::Time => r.wall - begun,
                    Along::Updates => r.updates as f64,
                    Along::Samples => r.samples_applied as f64,
                };
                (x, loss)
            });
            points.collect()
        }
    };
    curve.retain(|(x, y)| x.is_finite() && y.is_finite());
    curve.sort_by(|a, b| a.0.total_cmp(&b.0));
    curve
}

/// Mean, least and most of some curves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) low: f64,
    pub(super) mean: f64,
    pub(super) high: f64,
}

/// The band of curves where all of them are: between their points they are straight.
pub(super) fn band(curves: &[Curve]) -> Vec<Point> {
    let curves: Vec<&Curve> = curves.iter().filter(|curve| !curve.is_empty()).collect();
    let first = curves.iter().map(|curve| curve[0].0);
    let last = curves.iter().map(|curve| curve[curve.len() - 1].0);
    let (from, to) = (
        first.fold(f64::MIN, f64::max),
        last.fold(f64::MAX, f64::min),
    );
    if curves.is_empty() || from > to {
        return Vec::new();
    }
    let points = (0..POINTS).map(|i| {
        let x = from + (to - from) * i as f64 / (POINTS - 1) as f64;
        let values = curves.iter().map(|curve| at(curve, x));
        let (mut low, mut high, mut sum) = (f64::MAX, f64::MIN, 0.0);
        for value in values {
            (low, high, sum) = (low.min(value), high.max(value), sum + value);
        }
        let mean = sum / curves.len() as f64;
        Point { x, low, mean, high }
    });
    points.collect()
}

/// The value of a curve that has a point on either side of `x`, or at it.
fn at(curve: &Curve, x: f64) -> f64 {
    let after = curve.partition_point(|point| point.0 < x);
    let (b, a) = match (curve.get(after), after.checked_sub(1).map(|i| curve[i])) {
        (Some(b), Some(a)) => (*b, a),
        (Some(b), None) => return b.1,
        (None, a) => return a.map_or(f64::NAN, |a| a.1),
    };
    if b.0 == a.0 {
        return b.1;
    }
    a.1 + (b.1 - a.1) * (x - a.0) / (b.0 - a.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::reading_of;

    #[test]
    fn an_update_that_passes_several_evaluations_is_one_point() {
        let folder = tempfile::tempdir().unwrap();
        let mut reading = reading_of(folder.path(), "", &[0.9, 0.5, 0.5]);
        reading.validations[1].samples_applied = (30, 34);
        reading.validations[2].samples_applied = (30, 34);
        let points = curve(&reading, Shown::Validation, Along::Samples);
        assert_eq!(points, [(10.0, 0.9), (34.0, 0.5)]);
    }

    #[test]
    fn a_band_is_where_all_curves_are() {
        let curves = [
            vec![(0.0, 4.0), (10.0, 2.0)],
            vec![(2.0, 2.0), (4.0, 1.0), (12.0, 1.0)],
            vec![],
        ];
        let band = band(&curves);
        let (first, last) = (band[0], band[band.len() - 1]);
        assert_eq!((first.x, last.x), (2.0, 10.0));
        assert_eq!((first.low, first.high), (2.0, 3.6));
        assert_eq!(first.mean, 2.8);
        assert_eq!((last.low, last.mean, last.high), (1.0, 1.5, 2.0));
    }

    #[test]
    fn curves_that_do_not_meet_have_no_band() {
        let apart = [vec![(0.0, 1.0), (1.0, 1.0)], vec![(2.0, 1.0), (3.0, 1.0)]];
        assert!(band(&apart).is_empty());
        assert!(band(&[]).is_empty());
        let lone = band(&[vec![(3.0, 7.0)]]);
        assert!(lone.iter().all(|p| (p.x, p.mean) == (3.0, 7.0)));
    }
}
