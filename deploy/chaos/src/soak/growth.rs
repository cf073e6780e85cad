//! A straight line through what several processes used.

use serde::Serialize;

/// A slope, and how sure it is.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Growth {
    pub(super) per_hour: f64,
    /// Its standard error.
    pub(super) error: f64,
    pub(super) mean: f64,
    /// How long processes were looked at, all together.
    pub(super) hours: f64,
}

/// What is looked at within so many seconds says the same thing again and again: it counts as one sample.
const TOGETHER: f64 = 300.0;

/// The slope that all series have in common, each with a level of its own: least squares. Of seconds
/// and values; `None` if they do not make a line. Its error is that of pieces of which each may be off
/// as a whole (Liang and Zeger 1986, "Longitudinal data analysis using generalized linear models",
/// equation 5, where observations count as independent).
pub(super) fn growth(series: impl IntoIterator<Item = Vec<(f64, f64)>>) -> Option<Growth> {
    let (mut count, mut levels, mut sum, mut seconds) = (0.0, 0.0, 0.0, 0.0);
    let (mut tt, mut ty) = (0.0, 0.0);
    let mut centred = Vec::new();
    for one in series.into_iter().filter(|one| one.len() > 1) {
        let n = one.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| one.iter().map(of).sum::<f64>() / n;
        let (time, value) = (mean(|p| p.0), mean(|p| p.1));
        for (number, (at, y)) in one.iter().enumerate() {
            let (t, y) = ((at - time) / 3600.0, y - value);
            tt += t * t;
            ty += t * y;
            let piece = ((at - one[0].0) / TOGETHER) as u64;
            centred.push((number == 0, piece, t, y));
        }
        count += n;
        levels += 1.0;
        sum += n * value;
        seconds += one[one.len() - 1].0 - one[0].0;
    }
    let free = count - levels - 1.0;
    if tt <= 0.0 || free < 1.0 {
        return None;
    }
    let per_hour = ty / tt;
    let mut pieces: Vec<f64> = Vec::new();
    let mut last = None;
    for (first, piece, t, y) in centred {
        if first || last != Some(piece) {
            pieces.push(0.0);
        }
        last = Some(piece);
        let off = t * (y - per_hour * t);
        *pieces.last_mut().expect("one was begun") += off;
    }
    let squares: f64 = pieces.iter().map(|piece| piece * piece).sum();
    // Few pieces fit a line too well.
    let few = pieces.len() as f64 / (pieces.len() as f64 - 1.0).max(1.0);
    Some(Growth {
        per_hour,
        error: (squares * few).sqrt() / tt,
        mean: sum / count,
        hours: seconds / 3600.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slope_is_found_across_levels() {
        let line = |from: f64, level: f64| -> Vec<(f64, f64)> {
            let at = (0..10).map(|number| from + f64::from(number) * 60.0);
            at.map(|at| (at, level + at / 3600.0 * 7.0)).collect()
        };
        let found = growth([line(0.0, 5.0), line(900.0, -40.0)]).unwrap();
        assert!((found.per_hour - 7.0).abs() < 1e-9, "{found:?}");
        assert!(found.error < 1e-6, "{found:?}");
        assert!((found.hours - 0.3).abs() < 1e-9, "{found:?}");
        assert!(growth([vec![(1.0, 1.0)]]).is_none());
        assert!(growth([vec![(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]]).is_none());
    }

    /// Processes that come to more within minutes of their own, and die soon: what they have in common is
    /// hardly a slope.
    #[test]
    fn what_moves_slowly_is_not_taken_for_many_samples() {
        let life = |number: u32| -> Vec<(f64, f64)> {
            let jump = f64::from(number % 5) * 60.0;
            let looks = (0..40).map(|look| f64::from(look) * 10.0);
            let level = |at: f64| {
                if at < jump {
                    30.0
                } else {
                    30.0 + f64::from(number % 3) - 1.0
                }
            };
            looks.map(|at| (at, level(at))).collect()
        };
        let found = growth((0..15).map(life)).unwrap();
        assert!(found.per_hour.abs() < 3.0 * found.error, "{found:?}");
    }

    #[test]
    fn a_slope_that_may_be_chance_is_unsure() {
        let noise = (0..20).map(|n| (f64::from(n) * 60.0, f64::from(n % 2) * 10.0));
        let found = growth([noise.collect()]).unwrap();
        assert!(found.per_hour.abs() < 3.0 * found.error, "{found:?}");
    }
}
