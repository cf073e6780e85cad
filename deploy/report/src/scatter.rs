//! `predicted.png`: what a model tells of held-out samples over what is true, a panel for each quantity.

use std::path::Path;

use tradewind_common::record::Scatter;

use super::axes::{LABEL_SIZE, Panel, Scale};
use super::picture::{Anchor, Picture};
use super::{GRID, INK, ReportError, series_color};

/// Pixels of a panel's edge, and of what is left and above, right and below it.
const EDGE: f64 = 300.0;
const BEFORE: f64 = 84.0;
const BEHIND: f64 = 24.0;
const BELOW: f64 = 70.0;

/// Panels of a row, and of all.
const COLUMNS: usize = 4;
const PANELS_MAX: usize = 16;

/// Half the edge of a point.
const POINT: f64 = 1.5;

/// Draws the quantities. Where a point lies on the diagonal, the truth was told.
pub fn draw_scatters(scatters: &[Scatter], png: &Path) -> Result<(), ReportError> {
    scatter_picture(scatters).write_png(png)
}

fn scatter_picture(scatters: &[Scatter]) -> Picture {
    let scatters = &scatters[..scatters.len().min(PANELS_MAX)];
    let columns = scatters.len().clamp(1, COLUMNS);
    let rows = scatters.len().div_ceil(columns).max(1);
    let cell = (BEFORE + EDGE + BEHIND, BEFORE + EDGE + BELOW);
    let size = (columns as f64 * cell.0, rows as f64 * cell.1);
    let mut picture = Picture::new(size.0 as u32, size.1 as u32);
    for (number, scatter) in scatters.iter().enumerate() {
        let left = (number % columns) as f64 * cell.0 + BEFORE;
        let top = (number / columns) as f64 * cell.1 + BEFORE;
        let across = (left, left + EDGE);
        draw_panel(&mut picture, scatter, across, (top, top + EDGE));
    }
    picture
}

fn draw_panel(picture: &mut Picture, scatter: &Scatter, across: (f64, f64), down: (f64, f64)) {
    let points = scatter.points.iter();
    let points = points.filter(|(is, told)| is.is_finite() && told.is_finite());
    let points: Vec<(f64, f64)> = points.copied().collect();
    let (low, high) = ends(&points);
    // The same scale on both sides.
    let panel = Panel {
        across,
        down,
        x: Scale::Linear(low, high),
        y: Scale::Linear(low, high),
    };
    let middle = (across.0 + across.1) / 2.0;
    picture.text(
        (middle, down.0 - 22.0),
        Anchor::Middle,
        20.0,
        INK,
        &scatter.name,
    );
    let (x, y) = (panel.x.ticks(5), panel.y.ticks(5));
    panel.draw_grid(picture, &x, &y);
    picture.line(
        vec![panel.pixel(low, low), panel.pixel(high, high)],
        2.0,
        GRID,
    );
    for (is, told) in points {
        let at = panel.pixel(is, told);
        let corner = |sign: f64| (at.0 + sign * POINT, at.1 + sign * POINT);
        picture.fill(corner(-1.0), corner(1.0), series_color(0, 1));
    }
    panel.draw_frame(picture, &x, &y);
    let below = (middle, down.1 + 48.0);
    picture.text(below, Anchor::Middle, LABEL_SIZE, INK, "true");
    let beside = (across.0 - 60.0, (down.0 + down.1) / 2.0);
    picture.text(beside, Anchor::Upwards, LABEL_SIZE, INK, "told");
}

/// A range that has all values, and is not empty.
fn ends(points: &[(f64, f64)]) -> (f64, f64) {
    let values = points.iter().flat_map(|point| [point.0, point.1]);
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    match low <= high {
        true if high - low > f64::EPSILON * high.abs().max(low.abs()) => (low, high),
        true => (low - 1.0, high + 1.0),
        false => (0.0, 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::PAPER;
    use super::super::picture::{count_near, png_size};
    use super::*;

    fn scatter(points: &[(f64, f64)]) -> Scatter {
        Scatter {
            name: "omega_m".into(),
            points: points.into(),
        }
    }

    #[test]
    fn each_quantity_has_a_panel_and_each_sample_a_point() {
        let five = vec![scatter(&[(-1.0, -1.0), (0.0, 0.5), (1.0, 1.0)]); 5];
        let folder = tempfile::tempdir().unwrap();
        let png = folder.path().join("predicted.png");
        draw_scatters(&five, &png).unwrap();
        let size = (4 * 408, 2 * 454);
        assert_eq!(png_size(&std::fs::read(&png).unwrap()), size);
        let one = scatter_picture(&five[..1]);
        let pixels = one.pixels().unwrap();
        // At the middle of the scale across, and three quarters up.
        let at = |x: usize, y: usize| {
            let first = 3 * (y * 408 + x);
            &pixels[first..first + 3]
        };
        assert_eq!(count_near(at(84 + 150, 84 + 75), series_color(0, 1)), 1);
        assert_eq!(count_near(at(84 + 150, 84 + 225), series_color(0, 1)), 0);
    }

    #[test]
    fn any_numbers_make_a_picture() {
        let odd = [(f64::NAN, 0.5), (0.5, f64::INFINITY), (1e300, -1e300)];
        for scatters in [
            vec![],
            vec![scatter(&[])],
            vec![scatter(&odd)],
            vec![scatter(&[(3.0, 3.0)])],
            vec![scatter(&[(0.0, 1.0)]); 40],
        ] {
            let pixels = scatter_picture(&scatters).pixels().unwrap();
            assert!(count_near(&pixels, PAPER) > 1000);
        }
    }
}
