//! The pictures that a run leaves behind, and what they share: errors, colours and the font. And its curves,
//! as TensorBoard and others draw them.
//!
//! A picture is first a list of shapes ([`picture::Picture`]) in its own pixels, then painted as
//! PNG or SVG, so that both forms show the same thing and what is drawn knows no backend.

pub mod axes;
pub mod curves;
pub mod forecast;
pub mod loss;
pub mod maps;
pub mod picture;
pub mod roc;
pub mod scatter;
pub mod tensorboard;

use std::io;
use std::path::{Path, PathBuf};

use plotters::style::colors::colormaps::{ColorMap, ViridisRGB};
use plotters::style::{Color, RGBColor};

/// Why a picture could not be made, or a file that it is made of could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The content of a file is not what the picture needs.
    #[error("{}: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A picture could not be drawn.
    #[error("cannot draw {}: {reason}", path.display())]
    Draw {
        /// The file.
        path: PathBuf,
        /// What the library for drawing said.
        reason: String,
    },
    /// A picture could not be written; the text names its file.
    #[error("{0}")]
    Write(io::Error),
}

impl ReportError {
    fn content(path: &Path, reason: impl Into<String>) -> Self {
        Self::Content {
            path: path.to_owned(),
            reason: reason.into(),
        }
    }

    fn draw(path: &Path, reason: impl ToString) -> Self {
        Self::Draw {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }
}

/// Text and frames.
pub const INK: RGBColor = RGBColor(26, 26, 26);
/// What explains, but is not read first.
pub const GREY: RGBColor = RGBColor(90, 90, 90);
/// Lines behind the data.
pub const GRID: RGBColor = RGBColor(228, 228, 228);
/// Where a map has no value.
pub const MISSING: RGBColor = RGBColor(190, 190, 190);
/// The paper.
pub const PAPER: RGBColor = RGBColor(255, 255, 255);

/// Told apart with every common form of colour blindness (the set of Okabe and Ito, without the
/// yellow that fades on white and without black).
const CATEGORIES: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
];

/// The colour of series `index` of `count`: a set of distinct colours while it lasts, beyond it
/// steps of a scale, so that no two series share one.
pub fn series_color(index: usize, count: usize) -> RGBColor {
    if count <= CATEGORIES.len() {
        return CATEGORIES[index % CATEGORIES.len()];
    }
    // The scale's yellow end is too pale for a line on white.
    sequential(0.9 * index as f64 / (count - 1) as f64)
}

/// A perceptually uniform scale from dark to light, for `t` in 0..=1.
pub fn sequential(t: f64) -> RGBColor {
    ViridisRGB.get_color(t.clamp(0.0, 1.0))
}

/// A diverging scale, blue through near-white to red, for `t` in 0..=1 with nothing at 0.5. Both
/// arms lose lightness at the same pace, so that equal distances from the middle look equal.
pub fn diverging(t: f64) -> RGBColor {
    const ARMS: [[(u8, u8, u8); 4]; 2] = [
        [
            (247, 247, 247),
            (168, 198, 226),
            (84, 139, 192),
            (27, 75, 138),
        ],
        [
            (247, 247, 247),
            (238, 184, 160),
            (210, 108, 84),
            (146, 24, 38),
        ],
    ];
    let signed = t.clamp(0.0, 1.0) * 2.0 - 1.0;
    let arm = &ARMS[usize::from(signed > 0.0)];
    let along = signed.abs() * (arm.len() - 1) as f64;
    let low = (along as usize).min(arm.len() - 2);
    let (a, b) = (arm[low], arm[low + 1]);
    blend(
        RGBColor(a.0, a.1, a.2),
        RGBColor(b.0, b.1, b.2),
        along - low as f64,
    )
}

/// `from` at 0, `to` at 1.
pub fn blend(from: RGBColor, to: RGBColor, t: f64) -> RGBColor {
    let (a, b) = (from.rgb(), to.rgb());
    let mix = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * t).round() as u8;
    RGBColor(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_have_colours_of_their_own() {
        for count in [1, 2, 6, 7, 40] {
            let mut seen: Vec<_> = (0..count).map(|i| series_color(i, count).rgb()).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), count);
        }
    }

    #[test]
    fn the_diverging_scale_is_white_in_the_middle_and_even_on_both_sides() {
        assert_eq!(diverging(0.5).rgb(), (247, 247, 247));
        let (blue, red) = (diverging(0.0).rgb(), diverging(1.0).rgb());
        assert!(blue.2 > blue.0 && red.0 > red.2);
        let luma = |c: RGBColor| {
            let (r, g, b) = c.rgb();
            0.2126 * f64::from(r) + 0.7152 * f64::from(g) + 0.0722 * f64::from(b)
        };
        for step in 0..=10 {
            let distance = 0.05 * f64::from(step);
            let gap = luma(diverging(0.5 - distance)) - luma(diverging(0.5 + distance));
            assert!(gap.abs() < 25.0, "at {distance}: {gap}");
        }
    }
}
