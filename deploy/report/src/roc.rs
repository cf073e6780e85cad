//! `roc.png`: how many of signal a threshold finds over how much background it lets pass, of a network and of
//! baselines.

use std::path::Path;

use tradewind_common::record::Curve;

use super::axes::{LABEL_SIZE, Panel, Scale};
use super::picture::{Anchor, Picture};
use super::{INK, ReportError, series_color};

const SIZE: (u32, u32) = (760, 620);

/// Rates of false positives below this are not shown.
const FALSE_RATE_MIN: f64 = 1e-5;

/// More curves could not be told apart.
const CURVES_MAX: usize = 12;

/// Draws the curves; the axis of false positives is logarithmic, since small ones are what matters.
pub fn draw_roc(curves: &[Curve], png: &Path) -> Result<(), ReportError> {
    roc_picture(curves).write_png(png)
}

fn roc_picture(curves: &[Curve]) -> Picture {
    let curves = &curves[..curves.len().min(CURVES_MAX)];
    let mut picture = Picture::new(SIZE.0, SIZE.1);
    let panel = Panel {
        across: (86.0, 730.0),
        down: (66.0, 540.0),
        x: Scale::Log(lowest(curves), 1.0),
        y: Scale::Linear(0.0, 1.0),
    };
    let title = "Signal that is found, and background that passes";
    picture.text((panel.across.0, 30.0), Anchor::Start, 21.0, INK, title);
    let (x, y) = (panel.x.ticks(6), panel.y.ticks(6));
    panel.draw_grid(&mut picture, &x, &y);
    // The first is the network's: it lies above the others.
    for (number, curve) in curves.iter().enumerate().rev() {
        let width = if number == 0 { 3.0 } else { 1.8 };
        let color = series_color(number, curves.len());
        picture.line(line(curve, &panel), width, color);
    }
    panel.draw_frame(&mut picture, &x, &y);
    // In the lower right corner, from which curves that tell anything stay away.
    for (number, curve) in curves.iter().enumerate() {
        let below = (curves.len() - number) as f64;
        let (x, y) = (panel.across.1 - 20.0, panel.down.1 - 26.0 * below + 4.0);
        let color = series_color(number, curves.len());
        picture.line(vec![(x - 26.0, y), (x, y)], 3.0, color);
        picture.text((x - 34.0, y), Anchor::End, 16.0, INK, &curve.name);
    }
    let middle = (panel.across.0 + panel.across.1) / 2.0;
    let label = "part of background that passes (FPR, log scale)";
    picture.text(
        (middle, panel.down.1 + 50.0),
        Anchor::Middle,
        LABEL_SIZE,
        INK,
        label,
    );
    let middle = (panel.down.0 + panel.down.1) / 2.0;
    let label = "part of signal that is found (TPR)";
    picture.text(
        (panel.across.0 - 62.0, middle),
        Anchor::Upwards,
        LABEL_SIZE,
        INK,
        label,
    );
    picture
}

/// The lowest power of ten that the axis needs.
fn lowest(curves: &[Curve]) -> f64 {
    let rates = curves.iter().flat_map(|curve| &curve.rates);
    let shown = rates
        .map(|rate| rate.0)
        .filter(|rate| *rate >= FALSE_RATE_MIN);
    let least = shown.fold(0.1, f64::min);
    10f64.powi(least.log10().floor() as i32)
}

/// Steps, as a threshold finds no more until it lets more pass. It begins at the left edge, with what is found there.
fn line(curve: &Curve, panel: &Panel) -> Vec<(f64, f64)> {
    let Scale::Log(lowest, _) = panel.x else {
        return Vec::new();
    };
    let is_rate = |rate: f64| (0.0..=1.0).contains(&rate);
    let rates = curve.rates.iter();
    let rates = rates.filter(|(passed, found)| is_rate(*passed) && is_rate(*found));
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (passed, found) in rates {
        let at = panel.pixel(passed.max(lowest), *found);
        match points.last_mut() {
            Some(last) if last.0 >= at.0 => last.1 = at.1,
            Some(last) => {
                let before = (at.0, last.1);
                points.extend([before, at]);
            }
            None => points.push(at),
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::super::PAPER;
    use super::super::picture::{count_near, png_size};
    use super::*;

    fn curve(name: &str, rates: &[(f64, f64)]) -> Curve {
        Curve {
            name: name.into(),
            rates: rates.into(),
        }
    }

    #[test]
    fn each_curve_is_where_its_rates_are() {
        let curves = [
            curve(
                "network",
                &[(0.0, 0.8), (0.001, 0.9), (0.1, 1.0), (1.0, 1.0)],
            ),
            curve(
                "guessing",
                &[(0.0, 0.0), (0.01, 0.01), (0.1, 0.1), (1.0, 1.0)],
            ),
        ];
        let folder = tempfile::tempdir().unwrap();
        let png = folder.path().join("roc.png");
        draw_roc(&curves, &png).unwrap();
        assert_eq!(png_size(&std::fs::read(&png).unwrap()), SIZE);
        let pixels = roc_picture(&curves).pixels().unwrap();
        let row = |y: f64| {
            let at = 3 * (y as usize * SIZE.0 as usize);
            &pixels[at..at + 3 * SIZE.0 as usize]
        };
        // Of 474 pixels for rates from 0 to 1 the network is at 0.9 from a thousandth to a tenth: two thirds of 644.
        let found = count_near(row(540.0 - 0.9 * 474.0), series_color(0, 2));
        assert!((400..460).contains(&found), "{found}");
        assert!(count_near(&pixels, series_color(1, 2)) > 500);
    }

    #[test]
    fn any_rates_make_a_picture() {
        let odd = [
            (f64::NAN, 0.5),
            (0.5, f64::INFINITY),
            (-1.0, 0.2),
            (1e-300, 0.1),
        ];
        let many = vec![curve("one of many", &[(0.0, 0.0), (1.0, 1.0)]); 40];
        for curves in [
            vec![],
            vec![curve("none", &[])],
            vec![curve("odd", &odd)],
            many,
        ] {
            let pixels = roc_picture(&curves).pixels().unwrap();
            assert!(count_near(&pixels, PAPER) > 1000);
        }
    }
}
