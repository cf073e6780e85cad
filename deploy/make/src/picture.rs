//! Pictures of samples.

use plotters::style::RGBColor;
use tradewind_data::Kind;
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
    let row = |volume: &&[u8]| {
        let slice = |column: usize| {
            let slice = &volume[2 * column * n.pow(3)..][..2 * n * n];
            let counts = Kind::I16.numbers(slice);
            counts.map(|count| count.ln_1p() / 10f64.ln_1p()).collect()
        };
        (0..labels.len()).map(slice).collect()
    };
    let rows: Vec<Vec<Vec<f64>>> = volumes.iter().map(row).collect();
    maps(&rows, n, labels)
}

/// Rows of maps `[y, n]`, all of one size, a column for each label: 0 is dark, and 1 bright.
pub(crate) fn maps(rows: &[Vec<Vec<f64>>], n: usize, labels: &[String]) -> Picture {
    let side = n * CELL;
    let high = rows[0][0].len() / n * CELL;
    let width = GAP + labels.len() * (side + GAP);
    let height = HEAD + rows.len() * (high + GAP);
    let mut picture = Picture::new(width as u32, height as u32);
    let at = |pixels: usize| pixels as f64;
    picture.fill((0.0, 0.0), (at(width), at(height)), RGBColor(255, 255, 255));
    for (column, label) in labels.iter().enumerate() {
        let left = GAP + column * (side + GAP);
        let middle = (at(left + side / 2), at(HEAD / 2));
        picture.text(middle, Anchor::Middle, 14.0, RGBColor(40, 40, 40), label);
        for (row, maps) in rows.iter().enumerate() {
            let top = HEAD + row * (high + GAP);
            for (cell, part) in maps[column].iter().enumerate() {
                let corner = (at(left + cell % n * CELL), at(top + cell / n * CELL));
                let other = (corner.0 + at(CELL), corner.1 + at(CELL));
                picture.fill(corner, other, color(*part));
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
