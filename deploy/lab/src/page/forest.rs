//! How many times sooner each setting was, on one scale beside its row.

use maud::Markup;

use super::panel::Panel;
use super::svg::{At, Svg};
use crate::line::Sums;
use tradewind_report::axes::Scale;

const SIZE: (f64, f64) = (190.0, 22.0);
/// On both sides, for half a dot.
const MARGIN: f64 = 4.0;
/// Length of an arrow's head, and half its width.
const ARROW: (f64, f64) = (6.0, 4.0);

/// What the scale names, as far as it goes; a short one has more of them.
const TICKS: [(f64, &str); 7] = [
    (0.1, "0.1"),
    (0.2, "0.2"),
    (0.5, "0.5"),
    (1.0, "1"),
    (2.0, "2"),
    (5.0, "5"),
    (10.0, "10"),
];
const MORE_TICKS: [(f64, &str); 4] = [(0.7, "0.7"), (0.85, "0.85"), (1.2, "1.2"), (1.4, "1.4")];
const SHORT: f64 = 3.0;

/// All intervals and seeds of a panel on one scale that holds 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forest(f64, f64);

impl Forest {
    pub(super) fn of(panel: &Panel<'_>) -> Option<Self> {
        let own = || panel.lines.iter().map(|line| &line.sums);
        let ends = own().filter_map(|sums| sums.sooner).flat_map(|s| {
            let (low, high) = s.interval.unwrap_or((s.mean, s.mean));
            // An interval of two seeds says so little that it would hide the others.
            [low.max(s.mean / 3.0), high.min(s.mean * 3.0)]
        });
        let seeds = own().flat_map(|sums| sums.ratios.iter().copied());
        let ends: Vec<f64> = ends.chain(seeds).collect();
        let low = ends.iter().copied().fold(1.0, f64::min);
        let high = ends.iter().copied().fold(1.0, f64::max);
        (!ends.is_empty()).then_some(Self(low * 0.93, high * 1.07))
    }

    fn place(self, value: f64) -> f64 {
        let position = Scale::Log(self.0, self.1).position(value).clamp(0.0, 1.0);
        MARGIN + position * (SIZE.0 - 2.0 * MARGIN)
    }

    fn ticks(self) -> impl Iterator<Item = (f64, &'static str)> {
        let more = MORE_TICKS
            .into_iter()
            .filter(move |_| self.1 / self.0 < SHORT);
        let inside = TICKS.into_iter().chain(more);
        let inside = inside.filter(move |(value, _)| (self.0..=self.1).contains(value));
        inside.map(move |(value, label)| (self.place(value), label))
    }

    /// The numbers over the rows.
    pub(super) fn head(self) -> Markup {
        let mut svg = Svg::new(SIZE.0, 14.0);
        for (at, label) in self.ticks() {
            svg.text((at, 11.0), At::Middle, "tick", label);
        }
        svg.finish("times sooner")
    }

    /// The mean of a setting with its interval, and each seed's own ratio.
    pub(super) fn row(self, sums: &Sums) -> Markup {
        let middle = SIZE.1 / 2.0;
        let mut svg = Svg::new(SIZE.0, SIZE.1);
        for (at, label) in self.ticks() {
            let class = if label == "1" { "axis" } else { "grid" };
            let line = [(at, 0.0), (at, SIZE.1)];
            svg.line(&line, &format!("class=\"{class}\""));
        }
        if let Some(sooner) = sums.sooner {
            if let Some((low, high)) = sooner.interval {
                let ends = (self.place(low), self.place(high));
                svg.line(&[(ends.0, middle), (ends.1, middle)], "class=\"whisker\"");
                for (cut, at, ahead) in [
                    (low < self.0, ends.0, ARROW.0),
                    (high > self.1, ends.1, -ARROW.0),
                ] {
                    if cut {
                        let (above, below) = (middle - ARROW.1, middle + ARROW.1);
                        let head = [(at, middle), (at + ahead, above), (at + ahead, below)];
                        svg.area(&head, "class=\"arrow\" fill=\"var(--c)\"");
                    }
                }
            }
            let title = format!("{:.3} times", sooner.mean);
            let at = (self.place(sooner.mean), middle);
            svg.circle(at, 4.5, "fill=\"var(--c)\"", &title);
            for ratio in &sums.ratios {
                let at = (self.place(*ratio), middle);
                svg.circle(
                    at,
                    1.6,
                    "class=\"seed\"",
                    &format!("one seed: {ratio:.3} times"),
                );
            }
        }
        svg.finish("times sooner than the best synchronous setting: mean, interval, each seed")
    }
}
