//! `forecast.png`: truth, forecast and error of one held-out case as maps.

use std::path::Path;

use plotters::style::RGBColor;

use super::axes::{LABEL_SIZE, Panel, Scale, TICK_SIZE, Tick, stepped_ticks};
use super::maps::{Maps, Outline};
use super::picture::{Anchor, Picture};
use super::{GREY, INK, MISSING, PAPER, ReportError, diverging, sequential};

const SIZE: (u32, u32) = (1600, 520);

/// Colours of outlines by class, from 1 on: apart from each other and from those of maps.
const OUTLINES: [RGBColor; 2] = [RGBColor(255, 125, 20), PAPER];

/// Draws truth, forecast and error as three maps.
pub fn draw_forecast(maps: &Maps, png: &Path) -> Result<(), ReportError> {
    forecast_picture(maps).write_png(png)
}

fn forecast_picture(maps: &Maps) -> Picture {
    let mut picture = Picture::new(SIZE.0, SIZE.1);
    let unit = &maps.unit;
    let errors = maps.errors();
    let values = |map: &[f32]| map.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
    let (truth, forecast) = (values(&maps.truth), values(&maps.forecast));
    let (low, high) = range(truth.iter().chain(&forecast));
    let finite = errors.iter().filter(|e| e.is_finite());
    let most = match finite.fold(0.0, |most: f64, e| most.max(e.abs())) {
        0.0 => 1.0,
        most => most,
    };

    let variable = maps.variable.replace('_', " ");
    let title = format!("{}: {variable}", maps.label);
    let rmse = match maps.rmse() {
        rmse if rmse.is_finite() => format!("RMSE of this map: {rmse:.3} {unit}"),
        _ => "RMSE of this map: no grid point to compare".to_owned(),
    };
    let absolute = Scale::Linear(low, high);
    let signed = Scale::Linear(-most, most);
    let columns = [70.0, 580.0, 1090.0];
    let frames = columns.map(|left| map_frame(maps, left, left + 460.0));
    let (first, last) = (frames[0].across.0, frames[2].across.1);
    picture.text((first, 28.0), Anchor::Start, 23.0, INK, title);
    picture.text((last, 28.0), Anchor::End, 19.0, INK, rmse);
    let panels: [(&str, &[f64], Scale, Palette); 3] = [
        ("truth", &truth, absolute, sequential),
        ("forecast", &forecast, absolute, sequential),
        ("error (forecast − truth)", &errors, signed, diverging),
    ];
    for ((name, values, scale, palette), frame) in panels.into_iter().zip(&frames) {
        let above = ((frame.across.0 + frame.across.1) / 2.0, frame.down.0 - 18.0);
        picture.text(above, Anchor::Middle, LABEL_SIZE, INK, name);
        draw_map(&mut picture, frame, maps, values, scale, palette);
    }
    for (outlines, frame) in maps.outlines.iter().zip(&frames) {
        for outline in outlines {
            draw_outline(&mut picture, frame, outline);
        }
    }
    let below = frames[0].down.1 + 42.0;
    let shared = (frames[0].across.0 + 120.0, frames[1].across.1 - 120.0);
    let label = format!("{variable} ({unit})");
    draw_bar(&mut picture, shared, below, absolute, sequential, &label);
    let own = (frames[2].across.0 + 20.0, frames[2].across.1 - 20.0);
    let label = format!("error ({unit})");
    draw_bar(&mut picture, own, below, signed, diverging, &label);
    if truth.iter().chain(&forecast).any(|v| !v.is_finite()) {
        let right = (last, f64::from(SIZE.1) - 14.0);
        picture.text(right, Anchor::End, 13.0, GREY, "grey: no value");
    }
    picture
}

type Palette = fn(f64) -> RGBColor;

/// The finite values' range, widened where it is a point.
fn range<'a>(values: impl IntoIterator<Item = &'a f64>) -> (f64, f64) {
    let finite = values.into_iter().filter(|v| v.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), &v| {
        (l.min(v), h.max(v))
    });
    match high - low {
        width if width > 1e-6 * high.abs().max(1e-3) => (low, high),
        width if width.is_finite() => (low - 0.5, high + 0.5),
        _ => (0.0, 1.0),
    }
}

/// Where the map lies: degrees of longitude are narrowed as at the map's mean latitude, so that
/// shapes there are true, as far as the room between `left` and `right` allows.
fn map_frame(maps: &Maps, left: f64, right: f64) -> Panel {
    let (top, height) = (86.0, 310.0);
    let (west, east) = ends(&edges(&maps.longitude, f64::INFINITY));
    let (south, north) = ends(&edges(&maps.latitude, 90.0));
    let narrowed = ((south + north) / 2.0).to_radians().cos().max(0.2);
    let aspect = ((east - west) * narrowed / (north - south)).clamp(0.3, 4.0);
    let width = (right - left).min(height * aspect).round();
    let center = (left + right) / 2.0;
    let middle = top + height / 2.0;
    Panel {
        across: (
            center - (width / 2.0).round(),
            center + (width / 2.0).round(),
        ),
        down: (
            middle - (width / aspect / 2.0).round(),
            middle + (width / aspect / 2.0).round(),
        ),
        x: Scale::Linear(west, east),
        y: Scale::Linear(south, north),
    }
}

fn ends(edges: &[f64]) -> (f64, f64) {
    (edges[0], edges[edges.len() - 1])
}

/// The borders of the cells around ascending coordinates, none beyond `limit` on either side.
fn edges(centers: &[f64], limit: f64) -> Vec<f64> {
    let count = centers.len();
    let half = |a: usize, b: usize| match count {
        1 => 0.5,
        _ => (centers[b] - centers[a]) / 2.0,
    };
    let mut edges = vec![centers[0] - half(0, 1.min(count - 1))];
    edges.extend(centers.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0));
    edges.push(centers[count - 1] + half(count.saturating_sub(2), count - 1));
    edges.into_iter().map(|e| e.clamp(-limit, limit)).collect()
}

fn draw_map(
    picture: &mut Picture,
    frame: &Panel,
    maps: &Maps,
    values: &[f64],
    scale: Scale,
    palette: Palette,
) {
    let columns = cells(
        &edges(&maps.longitude, f64::INFINITY),
        frame.across,
        frame.x,
    );
    let rows = cells(&edges(&maps.latitude, 90.0), frame.down, frame.y);
    let count = maps.longitude.len();
    for &(row, south, north) in &rows {
        // Latitudes rise upwards, pixels downwards.
        let flip = |y: f64| frame.down.0 + frame.down.1 - y;
        for &(column, west, east) in &columns {
            let value = values[row * count + column];
            let color = if value.is_finite() {
                palette(scale.position(value))
            } else {
                MISSING
            };
            picture.fill((west, flip(north)), (east, flip(south)), color);
        }
    }
    let x = degree_ticks(frame.x, 5, longitude_label);
    let y = degree_ticks(frame.y, 5, latitude_label);
    frame.draw_frame(picture, &x, &y);
}

/// Index, first and last pixel of every cell that is to be drawn: of cells narrower than a pixel
/// only as many as there are pixels, so that a fine grid costs no more than a coarse one.
fn cells(edges: &[f64], pixels: (f64, f64), scale: Scale) -> Vec<(usize, f64, f64)> {
    let count = edges.len() - 1;
    let pixel = |edge: f64| pixels.0 + scale.position(edge) * (pixels.1 - pixels.0);
    let mut cells: Vec<(usize, f64, f64)> = Vec::new();
    let mut from = pixels.0;
    for index in 0..count {
        let to = pixel(edges[index + 1]);
        if to - from >= 1.0 || index + 1 == count {
            cells.push((index, from, to));
            from = to;
        }
    }
    cells
}

fn draw_outline(picture: &mut Picture, frame: &Panel, outline: &Outline) {
    let along = |scale: Scale, pixels: (f64, f64), degrees: f64| {
        pixels.0 + scale.position(degrees).clamp(0.0, 1.0) * (pixels.1 - pixels.0)
    };
    let [west, east] = outline
        .longitude
        .map(|east| along(frame.x, frame.across, east));
    let (bottom, top) = (frame.down.1, frame.down.0);
    let [south, north] = outline
        .latitude
        .map(|north| along(frame.y, (bottom, top), north));
    let corners = vec![
        (west, south),
        (east, south),
        (east, north),
        (west, north),
        (west, south),
    ];
    let color = OUTLINES[outline.class.saturating_sub(1) % OUTLINES.len()];
    // A dark seam keeps them apart from light cells.
    picture.line(corners.clone(), 4.0, INK);
    picture.line(corners, 2.0, color);
}

fn degree_ticks(scale: Scale, wanted: usize, label: fn(f64) -> String) -> Vec<Tick> {
    let Scale::Linear(low, high) = scale else {
        return Vec::new();
    };
    let rough = (high - low) / wanted as f64;
    let steps = [1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0];
    match steps.into_iter().find(|&step| step >= rough) {
        Some(step) if high - low >= 2.0 => stepped_ticks(low, high, step, label),
        Some(_) => scale.ticks(2),
        None => stepped_ticks(low, high, 90.0, label),
    }
}

fn latitude_label(degrees: f64) -> String {
    match degrees {
        0.0 => "0°".to_owned(),
        north if north > 0.0 => format!("{north:.0}°N"),
        south => format!("{:.0}°S", -south),
    }
}

fn longitude_label(degrees: f64) -> String {
    match (degrees + 180.0).rem_euclid(360.0) - 180.0 {
        0.0 => "0°".to_owned(),
        -180.0 => "180°".to_owned(),
        east if east > 0.0 => format!("{east:.0}°E"),
        west => format!("{:.0}°W", -west),
    }
}

fn draw_bar(
    picture: &mut Picture,
    (left, right): (f64, f64),
    top: f64,
    scale: Scale,
    palette: Palette,
    label: &str,
) {
    let bar = Panel {
        across: (left, right),
        down: (top, top + 14.0),
        x: scale,
        y: Scale::Linear(0.0, 1.0),
    };
    let steps = (right - left) as usize;
    for step in 0..steps {
        let x = left + step as f64;
        let color = palette((step as f64 + 0.5) / steps as f64);
        picture.fill((x, bar.down.0), ((x + 1.0).min(right), bar.down.1), color);
    }
    bar.draw_frame(picture, &scale.ticks(8), &[]);
    let below = ((left + right) / 2.0, bar.down.1 + TICK_SIZE + 27.0);
    picture.text(below, Anchor::Middle, LABEL_SIZE, INK, label);
}

#[cfg(test)]
mod tests {
    use super::super::maps::tests::{KEYS, read, tensors};
    use super::super::picture::{count_near, png_size};
    use super::*;

    #[test]
    fn the_picture_shows_the_maps() {
        let maps = read(&tensors(), &KEYS).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let png = folder.path().join("forecast.png");
        draw_forecast(&maps, &png).unwrap();
        assert_eq!(png_size(&std::fs::read(&png).unwrap()), SIZE);

        // South is warm in this map: light at the bottom of the frame, dark at its top.
        let pixels = forecast_picture(&maps).pixels().unwrap();
        let frame = map_frame(&maps, 70.0, 530.0);
        let light = |y: f64| {
            let x = (frame.across.0 + frame.across.1) / 2.0;
            let at = 3 * (y as usize * SIZE.0 as usize + x as usize);
            pixels[at..at + 3]
                .iter()
                .map(|&v| u32::from(v))
                .sum::<u32>()
        };
        assert!(light(frame.down.1 - 8.0) > light(frame.down.0 + 8.0) + 100);
    }

    #[test]
    fn outlines_are_drawn_where_they_are() {
        let mut with = tensors();
        with.push((
            "truth.outlines",
            vec![1, 5],
            vec![20.0, 240.0, 40.0, 270.0, 1.0],
        ));
        let maps = read(&with, &KEYS).unwrap();
        assert_eq!(maps.outlines[0][0].latitude, [20.0, 40.0]);
        assert!(maps.outlines[1].is_empty());
        let pixels = forecast_picture(&maps).pixels().unwrap();
        let frame = map_frame(&maps, 70.0, 530.0);
        let at = |east: f64, north: f64| {
            let x = frame.across.0 + frame.x.position(east) * (frame.across.1 - frame.across.0);
            let y = frame.down.1 - frame.y.position(north) * (frame.down.1 - frame.down.0);
            let at = 3 * (y.round() as usize * SIZE.0 as usize + x.round() as usize);
            RGBColor(pixels[at], pixels[at + 1], pixels[at + 2])
        };
        let near = |color: RGBColor| color.0 > 180 && color.1.abs_diff(125) < 60 && color.2 < 90;
        for (east, north) in [(240.0, 30.0), (270.0, 30.0), (255.0, 20.0), (255.0, 40.0)] {
            assert!(near(at(east, north)), "{:?}", at(east, north));
        }
        assert!(!near(at(255.0, 30.0)));
    }

    #[test]
    fn errors_are_forecast_minus_truth_at_points_that_both_have() {
        let mut tensors = tensors();
        tensors[0].2 = vec![280.0; 37 * 49];
        tensors[1].2 = vec![282.0; 37 * 49];
        tensors[1].2[3] = f32::NAN;
        let maps = read(&tensors, &KEYS).unwrap();
        assert!((maps.rmse() - 2.0).abs() < 1e-9);
        let pixels = forecast_picture(&maps).pixels().unwrap();
        assert!(count_near(&pixels, diverging(1.0)) > 50_000);
        assert!(count_near(&pixels, MISSING) > 50);
    }

    #[test]
    fn maps_of_any_extent_are_drawn() {
        let sizes = [(1, 1), (2, 3), (1, 400), (700, 2)];
        for (rows, columns) in sizes {
            let spread = |count: usize, low: f32, high: f32| -> Vec<f32> {
                let step = (high - low) / count as f32;
                (0..count).map(|i| low + step * i as f32).collect()
            };
            let tensors = vec![
                ("truth", vec![rows, columns], vec![f32::NAN; rows * columns]),
                ("forecast", vec![rows, columns], vec![1.0; rows * columns]),
                ("latitude", vec![rows], spread(rows, -90.0, 90.0)),
                ("longitude", vec![columns], spread(columns, 0.0, 360.0)),
            ];
            let maps = read(&tensors, &KEYS).unwrap();
            assert!(maps.rmse().is_nan());
            forecast_picture(&maps).pixels().unwrap();
        }
    }

    #[test]
    fn degrees_are_labelled_by_hemisphere() {
        let cases = [
            (0.0, "0°", "0°"),
            (45.0, "45°N", "45°E"),
            (-30.0, "30°S", "30°W"),
        ];
        for (degrees, latitude, longitude) in cases {
            assert_eq!(latitude_label(degrees), latitude);
            assert_eq!(longitude_label(degrees), longitude);
        }
        for (degrees, longitude) in [(225.0, "135°W"), (180.0, "180°"), (360.0, "0°")] {
            assert_eq!(longitude_label(degrees), longitude);
        }
    }
}
