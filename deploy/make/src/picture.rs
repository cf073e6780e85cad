//! Pictures of samples.

use plotters::style::RGBColor;
use tradewind_report::picture::{Anchor, Picture};

/// Pixels of a cell along an edge.
const CELL: usize = 5;

/// Pixels between maps, and beside them.
const GAP: usize = 12;

/// Pixels above all, for labels.
const HEAD: usize = 28;

/// The first slice of volumes `[channels, n, n, n]` of little-endian i16: a row for each, a column for each channel,
/// by the logarithm of one more than the counts.
pub(crate) fn volumes(volumes: &[&[u8]], n: usize, labels: &[String]) -> Picture {
    let side = n * CELL;
    let width = GAP + labels.len() * (side + GAP);
    let height = HEAD + volumes.len() * (side + GAP);
    let mut picture = Picture::new(width as u32, height as u32);
    let at = |pixels: usize| pixels as f64;
    picture.fill((0.0, 0.0), (at(width), at(height)), RGBColor(255, 255, 255));
    for (column, label) in labels.iter().enumerate() {
        let left = GAP + column * (side + GAP);
        let middle = (at(left + side / 2), at(HEAD / 2));
        picture.text(middle, Anchor::Middle, 14.0, RGBColor(40, 40, 40), label);
        for (row, volume) in volumes.iter().enumerate() {
            let top = HEAD + row * (side + GAP);
            let slice = &volume[2 * column * n.pow(3)..][..2 * n * n];
            for (cell, count) in slice.as_chunks().0.iter().enumerate() {
                let count = f64::from(i16::from_le_bytes(*count));
                let corner = (at(left + cell % n * CELL), at(top + cell / n * CELL));
                let other = (corner.0 + at(CELL), corner.1 + at(CELL));
                picture.fill(corner, other, color(count.ln_1p() / 10f64.ln_1p()));
            }
        }
    }
    picture
}

/// From dark to bright.
fn color(part: f64) -> RGBColor {
    let part = part.clamp(0.0, 1.0);
    let mixed = |dark: f64, bright: f64| (dark + (bright - dark) * part) as u8;
    RGBColor(mixed(12.0, 255.0), mixed(16.0, 236.0), mixed(60.0, 170.0))
}
