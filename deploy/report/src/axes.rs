//! Axes: from values to pixels, round ticks, a frame with labels.

use super::picture::{Anchor, Picture};
use super::{GRID, INK};

/// Ems of tick labels, in pixels.
pub const TICK_SIZE: f64 = 15.0;
/// Ems of the labels of axes, in pixels.
pub const LABEL_SIZE: f64 = 17.0;

/// A marked value of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// Where.
    pub value: f64,
    /// What stands there.
    pub label: String,
}

/// How an axis goes from its lowest to its highest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// Evenly from the first to the second.
    Linear(f64, f64),
    /// Evenly in powers; both are positive.
    Log(f64, f64),
}

impl Scale {
    /// 0 for the lowest value of the axis, 1 for its highest.
    pub fn position(self, value: f64) -> f64 {
        match self {
            Self::Linear(low, high) => (value - low) / (high - low),
            Self::Log(low, high) => (value / low).ln() / (high / low).ln(),
        }
    }

    /// Round values inside the axis, not many more than `wanted`.
    pub fn ticks(self, wanted: usize) -> Vec<Tick> {
        match self {
            Self::Linear(low, high) => linear_ticks(low, high, wanted),
            Self::Log(low, high) => log_ticks(low, high, wanted),
        }
    }
}

fn linear_ticks(low: f64, high: f64, wanted: usize) -> Vec<Tick> {
    let rough = (high - low) / wanted.max(1) as f64;
    let power = rough.log10().floor();
    let unit = 10_f64.powf(power);
    let step = unit
        * [1.0, 2.0, 2.5, 5.0, 10.0]
            .into_iter()
            .find(|&round| round * unit >= rough * (1.0 - 1e-9))
            .unwrap_or(10.0);
    let size = low.abs().max(high.abs());
    stepped_ticks(low, high, step, |value| format_number(value, step, size))
}

/// The multiples of `step` from `low` to `high`.
pub fn stepped_ticks(low: f64, high: f64, step: f64, label: impl Fn(f64) -> String) -> Vec<Tick> {
    let slack = 1e-9 * (high - low);
    let first = ((low - slack) / step).ceil();
    let last = ((high + slack) / step).floor();
    // The bound holds for ranges so narrow that neighbouring numbers are steps apart.
    let count = (last - first + 1.0).clamp(0.0, 100.0) as usize;
    (0..count)
        .map(|i| {
            let value = (first + i as f64) * step;
            let label = label(value);
            Tick { value, label }
        })
        .collect()
}

/// Powers of ten; with few of them in the range also their doubles and fives.
fn log_ticks(low: f64, high: f64, wanted: usize) -> Vec<Tick> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let powers = (last - first) as usize;
    let every = (powers / wanted.max(1) + 1) as i32;
    let multiples: &[f64] = match powers {
        0..=1 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
        2..=3 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    (first..=last)
        .filter(|power| power.rem_euclid(every) == 0)
        .flat_map(|power| multiples.iter().map(move |m| m * 10_f64.powi(power)))
        .filter(|&value| value >= low * (1.0 - 1e-9) && value <= high * (1.0 + 1e-9))
        .map(|value| Tick {
            value,
            label: format_number(value, value, value),
        })
        .collect()
}

/// A number as a tick shows it on an axis of values up to `size`: as many decimals as steps of
/// `step` need, thousands as `k`, millions as `M`, powers of ten beyond that, a real minus sign.
fn format_number(value: f64, step: f64, size: f64) -> String {
    if value.abs() < step * 1e-6 {
        return "0".to_owned();
    }
    let (value, step, suffix) = match size {
        size if !(1e-4..1e9).contains(&(size * 1.000_001)) => {
            return exponential(value).replace('-', "−");
        }
        size if size >= 1e6 && step >= 1e4 => (value / 1e6, step / 1e6, "M"),
        size if size >= 1e4 && step >= 1e2 => (value / 1e3, step / 1e3, "k"),
        _ => (value, step, ""),
    };
    // Steps have one or two digits times a power of ten.
    let decimals = (-(step * 1.000_001).log10().floor()).max(0.0) as usize;
    let digits = (0..3)
        .map(|more| decimals + more)
        .find(|&d| {
            let power = 10_f64.powi(d as i32);
            ((step * power).round() / power - step).abs() <= 1e-6 * step
        })
        .unwrap_or(decimals);
    format!("{value:.digits$}{suffix}").replace('-', "−")
}

/// With a second digit only where it says something.
fn exponential(value: f64) -> String {
    let (short, long) = (format!("{value:.0e}"), format!("{value:.1e}"));
    if long.contains(".0") { short } else { long }
}

/// A frame between pixels, with a scale on each side.
#[derive(Clone, Copy, Debug)]
pub struct Panel {
    /// Pixels of its left and right edge.
    pub across: (f64, f64),
    /// Pixels of its upper and lower edge.
    pub down: (f64, f64),
    /// Left to right.
    pub x: Scale,
    /// Bottom to top.
    pub y: Scale,
}

impl Panel {
    /// The pixel of a value.
    pub fn pixel(&self, x: f64, y: f64) -> (f64, f64) {
        (
            self.across.0 + self.x.position(x) * (self.across.1 - self.across.0),
            self.down.1 - self.y.position(y) * (self.down.1 - self.down.0),
        )
    }

    /// Lines behind the data at all ticks.
    pub fn draw_grid(&self, picture: &mut Picture, x: &[Tick], y: &[Tick]) {
        for tick in x {
            let at = self.across.0 + self.x.position(tick.value) * (self.across.1 - self.across.0);
            picture.line(vec![(at, self.down.0), (at, self.down.1)], 1.0, GRID);
        }
        for tick in y {
            let at = self.down.1 - self.y.position(tick.value) * (self.down.1 - self.down.0);
            picture.line(vec![(self.across.0, at), (self.across.1, at)], 1.0, GRID);
        }
    }

    /// The frame around the data, and ticks with labels outside it.
    pub fn draw_frame(&self, picture: &mut Picture, x: &[Tick], y: &[Tick]) {
        let ((left, right), (top, bottom)) = (self.across, self.down);
        let corners = [
            (left, top),
            (right, top),
            (right, bottom),
            (left, bottom),
            (left, top),
        ];
        for pair in corners.windows(2) {
            picture.line(pair.to_vec(), 1.0, INK);
        }
        for tick in x {
            let at = left + self.x.position(tick.value) * (right - left);
            picture.line(vec![(at, bottom), (at, bottom + 5.0)], 1.0, INK);
            let label = (at, bottom + 8.0 + TICK_SIZE / 2.0);
            picture.text(label, Anchor::Middle, TICK_SIZE, INK, &tick.label);
        }
        for tick in y {
            let at = bottom - self.y.position(tick.value) * (bottom - top);
            picture.line(vec![(left - 5.0, at), (left, at)], 1.0, INK);
            picture.text((left - 9.0, at), Anchor::End, TICK_SIZE, INK, &tick.label);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let cases: &[(Scale, usize, &[&str])] = &[
            (
                Scale::Linear(0.0, 10.0),
                5,
                &["0", "2", "4", "6", "8", "10"],
            ),
            (Scale::Linear(-0.31, 0.28), 4, &["−0.2", "0", "0.2"]),
            (
                Scale::Linear(0.0, 48_000.0),
                5,
                &["0", "10k", "20k", "30k", "40k"],
            ),
            (Scale::Linear(0.0, 3.2e6), 4, &["0", "1M", "2M", "3M"]),
            (
                Scale::Linear(0.0, 12_240.0),
                6,
                &["0", "2.5k", "5.0k", "7.5k", "10.0k"],
            ),
            (Scale::Linear(0.0, 1.1e-6), 3, &["0", "5e−7", "1e−6"]),
            (
                Scale::Linear(0.0, 1e12),
                4,
                &["0", "2.5e11", "5e11", "7.5e11", "1e12"],
            ),
            (
                Scale::Linear(271.3, 273.1),
                4,
                &["271.5", "272.0", "272.5", "273.0"],
            ),
            (
                Scale::Log(0.01, 100.0),
                6,
                &["0.01", "0.1", "1", "10", "100"],
            ),
            (Scale::Log(0.9, 21.0), 6, &["1", "2", "5", "10", "20"]),
            (Scale::Log(2.0, 4.5), 6, &["2", "3", "4"]),
            (Scale::Log(1e-12, 1e3), 4, &["1e−12", "1e−8", "0.0001", "1"]),
        ];
        for (scale, wanted, labels) in cases {
            let ticks = scale.ticks(*wanted);
            let shown: Vec<_> = ticks.iter().map(|t| t.label.as_str()).collect();
            assert_eq!(&shown, labels, "{scale:?}");
            for tick in &ticks {
                let position = scale.position(tick.value);
                assert!(
                    (-1e-6..=1.000_001).contains(&position),
                    "{scale:?} {tick:?}"
                );
            }
        }
    }

    #[test]
    fn values_become_pixels_with_up_being_more() {
        let panel = Panel {
            across: (100.0, 300.0),
            down: (10.0, 210.0),
            x: Scale::Linear(0.0, 4.0),
            y: Scale::Log(0.1, 10.0),
        };
        let cases = [
            ((0.0, 0.1), (100.0, 210.0)),
            ((4.0, 10.0), (300.0, 10.0)),
            ((1.0, 1.0), (150.0, 110.0)),
        ];
        for ((x, y), (px, py)) in cases {
            let (ax, ay) = panel.pixel(x, y);
            assert!((ax - px).abs() < 1e-9 && (ay - py).abs() < 1e-9);
        }
    }
}
