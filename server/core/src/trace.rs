//! What a block was like over its last updates, at a few of its elements: kept only where the
//! momentum policy measures, and the primary's alone.

use std::collections::VecDeque;

/// Most elements that are kept of a block, evenly spread.
pub const ELEMENTS_MAX: usize = 64;

/// Most versions that are kept; gradients that were computed on older ones measure nothing.
pub const VERSIONS_MAX: usize = 128;

/// The values around a version that a gradient was computed on, element by element.
#[derive(Clone, Debug, PartialEq)]
pub struct Passed {
    /// Learning rate of the update from `now` to `after`, times its weight.
    pub rate: f64,
    /// One version before it.
    pub before: Vec<f32>,
    /// The version itself.
    pub now: Vec<f32>,
    /// One version after it.
    pub after: Vec<f32>,
    /// The gradient.
    pub gradient: Vec<f32>,
    /// Whether weight decay applies.
    pub decays: Vec<bool>,
}

/// One element of [`Passed`], wide enough for differences.
#[derive(Clone, Copy, Debug)]
pub struct Element {
    /// One version before.
    pub before: f64,
    /// The version that the gradient was computed on.
    pub now: f64,
    /// One version after.
    pub after: f64,
    /// The gradient.
    pub gradient: f64,
    /// Whether weight decay applies to it.
    pub decays: bool,
}

impl Passed {
    /// Its elements.
    pub fn elements(&self) -> impl Iterator<Item = Element> + '_ {
        let values = self.before.iter().zip(&self.now).zip(&self.after);
        values.zip(self.gradient.iter().zip(&self.decays)).map(
            |(((before, now), after), (gradient, decays))| Element {
                before: f64::from(*before),
                now: f64::from(*now),
                after: f64::from(*after),
                gradient: f64::from(*gradient),
                decays: *decays,
            },
        )
    }
}

/// Values at a version, and the rate of the update that made it.
#[derive(Debug)]
struct Point {
    rate: f64,
    values: Vec<f32>,
}

/// The last versions of one block.
#[derive(Debug, Default)]
pub struct Trace {
    /// Of the first point.
    first: u64,
    points: VecDeque<Point>,
}

impl Trace {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// The block is at `version` now, which an update of this rate has made. A version that does not
    /// follow the last one begins the trace anew.
    pub fn note(&mut self, version: u64, rate: f64, values: &[f32]) {
        if version != self.first + self.points.len() as u64 {
            self.points.clear();
            self.first = version;
        }
        if self.points.len() == VERSIONS_MAX {
            self.points.pop_front();
            self.first += 1;
        }
        let values = thinned(values);
        self.points.push_back(Point { rate, values });
    }

    /// What was around a version, beside a gradient that was [`thinned`] and what of it decays; `None`
    /// where that is not known, or not any more.
    pub fn around(&self, version: u64, gradient: Vec<f32>, decays: Vec<bool>) -> Option<Passed> {
        let at = usize::try_from(version.checked_sub(self.first)?).ok()?;
        let before = self.points.get(at.checked_sub(1)?)?;
        let (now, after) = (self.points.get(at)?, self.points.get(at + 1)?);
        Some(Passed {
            rate: after.rate,
            before: before.values.clone(),
            now: now.values.clone(),
            after: after.values.clone(),
            gradient,
            decays,
        })
    }
}

/// The elements that are kept.
pub fn thinned(values: &[f32]) -> Vec<f32> {
    kept(values.len()).map(|at| values[at]).collect()
}

/// Where they are in a block of this length.
pub fn kept(length: usize) -> impl Iterator<Item = usize> {
    let stride = length.div_ceil(ELEMENTS_MAX).max(1);
    (0..length).step_by(stride)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(versions: impl IntoIterator<Item = u64>) -> Trace {
        let mut trace = Trace::default();
        for version in versions {
            let values: Vec<f32> = (0..100).map(|at| (version * 1000 + at) as f32).collect();
            trace.note(version, version as f64, &values);
        }
        trace
    }

    #[test]
    fn tells_what_was_around_a_version() {
        let gradient: Vec<f32> = (0..100).map(|at| at as f32).collect();
        let trace = noted(3..10);
        let decays: Vec<bool> = kept(100).map(|at| at == 4).collect();
        let passed = trace.around(5, thinned(&gradient), decays).unwrap();
        assert_eq!(passed.rate, 6.0, "of the update that followed");
        let third = passed.elements().nth(2).unwrap();
        assert_eq!((third.before, third.now), (4004.0, 5004.0));
        assert_eq!((third.after, third.gradient), (6004.0, 4.0));
        assert!(third.decays && passed.elements().filter(|at| at.decays).count() == 1);
        assert!(passed.elements().count() <= ELEMENTS_MAX);
        for unknown in [0, 2, 3, 9, 10, 99] {
            assert_eq!(
                trace.around(unknown, thinned(&gradient), Vec::new()),
                None,
                "{unknown}"
            );
        }
    }

    #[test]
    fn forgets_what_is_long_past_or_of_another_line() {
        let last = VERSIONS_MAX as u64 + 50;
        let trace = noted(0..=last);
        assert_eq!(trace.points.len(), VERSIONS_MAX);
        assert!(trace.around(51, vec![0.0], vec![true]).is_none());
        assert!(trace.around(52, vec![0.0], vec![true]).is_some());
        let trace = noted((0..9).chain(4..7));
        assert!(trace.around(5, vec![0.0], vec![true]).is_some());
        assert!(trace.around(7, vec![0.0], vec![true]).is_none());
    }
}
