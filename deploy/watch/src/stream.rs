//! What a browser is told, second by second: how each run looks, and of curves and events what is new.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use crate::curve::Point;
use crate::files::TextFile;
use crate::look::Look;
use crate::timeline::Told;

/// A run at a moment, with all that can be shown of it.
#[derive(Clone, Debug)]
pub(crate) struct Sight {
    pub(crate) look: Look,
    pub(crate) joined: Vec<Point>,
    pub(crate) groups: BTreeMap<u32, CurveCopy>,
    /// Samples, seconds since the Unix epoch, and the value of each.
    pub(crate) validations: Vec<(u64, f64, f64)>,
    pub(crate) events: Vec<Told>,
    pub(crate) files: Vec<TextFile>,
    /// Which life of the reader: another run took the folder when it changes.
    pub(crate) life: u64,
}

/// A curve as it was.
#[derive(Clone, Debug)]
pub(crate) struct CurveCopy {
    pub(crate) epoch: u64,
    pub(crate) points: Vec<Point>,
}

/// Points as columns, which is half as long as rows with names.
#[derive(Debug, Default, Serialize)]
struct Columns {
    wall: Vec<f64>,
    samples: Vec<u64>,
    updates: Vec<u64>,
    loss: Vec<Option<f64>>,
    lag: Vec<u64>,
    delay: Vec<Option<u64>>,
}

impl Columns {
    fn of(points: &[Point]) -> Self {
        let mut columns = Self::default();
        for point in points {
            columns.wall.push((point.wall * 1000.0).round() / 1000.0);
            columns.samples.push(point.samples_applied);
            columns.updates.push(point.updates);
            columns
                .loss
                .push(point.loss().map(|loss| significant(loss, 6)));
            columns.lag.push(point.lag);
            columns.delay.push(point.delay);
        }
        columns
    }
}

/// With so many digits: what a curve shows.
fn significant(value: f64, digits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10_f64.powi(digits - 1 - value.abs().log10().floor() as i32);
    let rounded = (value * scale).round() / scale;
    if rounded.is_finite() { rounded } else { value }
}

/// What one browser has been told.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    runs: Vec<SentRun>,
}

#[derive(Debug, Default)]
struct SentRun {
    life: Option<u64>,
    /// By group: epoch, and how many points.
    curves: BTreeMap<u32, (u64, usize)>,
    /// The number of the next event.
    events: u64,
    validations: usize,
    rows: u64,
    files: Vec<TextFile>,
}

impl Sent {
    /// What has changed since the last call.
    pub(crate) fn news(&mut self, sights: &[Option<Arc<Sight>>]) -> Value {
        self.runs.resize_with(sights.len(), SentRun::default);
        let runs = sights.iter().zip(&mut self.runs).enumerate();
        let told = runs.filter_map(|(run, (sight, sent))| Some(sent.news(run, sight.as_ref()?)));
        json!({ "runs": told.collect::<Vec<Value>>() })
    }
}

impl SentRun {
    fn news(&mut self, run: usize, sight: &Sight) -> Value {
        let is_new = self.life != Some(sight.life);
        if is_new {
            *self = Self {
                life: Some(sight.life),
                ..Self::default()
            };
        }
        let curves = self.curves(sight);
        let events = sight
            .events
            .iter()
            .filter(|told| told.number >= self.events);
        let events: Vec<Value> = events.map(event).collect();
        self.events = sight.look.events;
        let joined = (is_new || self.rows != sight.look.rows).then(|| Columns::of(&sight.joined));
        self.rows = sight.look.rows;
        let validations = &sight.validations[self.validations.min(sight.validations.len())..];
        self.validations = sight.validations.len();
        let files = (self.files != sight.files).then_some(&sight.files);
        let news = json!({
            "run": run,
            "new": is_new,
            "look": sight.look,
            "joined": joined,
            "curves": curves,
            "events": events,
            "validations": validations,
            "files": files,
        });
        self.files.clone_from(&sight.files);
        news
    }

    /// Of each curve what is new: the last point that was told may have changed since.
    fn curves(&mut self, sight: &Sight) -> Vec<Value> {
        let mut told = Vec::new();
        for (group, curve) in &sight.groups {
            let (epoch, count) = self.curves.get(group).copied().unwrap_or_default();
            let from = match epoch == curve.epoch {
                true => count.saturating_sub(1).min(curve.points.len()),
                false => 0,
            };
            let is_same = epoch == curve.epoch && count == curve.points.len();
            if is_same && self.rows == sight.look.rows && count > 0 {
                continue;
            }
            let points = Columns::of(&curve.points[from..]);
            told.push(json!({ "group": group, "from": from, "points": points }));
            self.curves
                .insert(*group, (curve.epoch, curve.points.len()));
        }
        told
    }
}

fn event(told: &Told) -> Value {
    let event = &told.event;
    json!({
        "number": told.number,
        "wall": event.wall,
        "kind": event.kind,
        "text": event.text,
        "fault": event.is_fault(),
        "mended": event.is_mended(),
        "server": event.server,
        "group": event.group,
        "run": event.run,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_digits_of_a_number() {
        let check = |value: f64, want: f64| assert_eq!(significant(value, 6), want);
        check(0.0, 0.0);
        check(1.234_567_89, 1.234_57);
        check(-123_456_789.0, -123_457_000.0);
        check(1.234_567_89e-7, 1.234_57e-7);
        check(1e-320, 1e-320);
        assert!(significant(f64::NAN, 6).is_nan());
    }
}
