//! The curves of a sweep: samples a second and goodput over the first axis, a line for each combination of the
//! others, and beside them what is known.

use std::path::{Path, PathBuf};

use toml_edit::Value;
use tradewind_report::axes::{LABEL_SIZE, Panel, Scale};
use tradewind_report::picture::{Anchor, Picture};
use tradewind_report::{GREY, INK, ReportError, series_color};

use crate::plan::Plan;
use crate::report::Report;

const SIZE: (u32, u32) = (1400, 620);

/// Axes whose ends differ by more than this factor are logarithmic.
const LOG_FACTOR: f64 = 20.0;

type Points = Vec<(f64, f64)>;

/// Draws `curves.png` and `curves.svg`.
pub(crate) fn write(
    plan: &Plan,
    reports: &[Report],
    folder: &Path,
) -> Result<[PathBuf; 2], ReportError> {
    let picture = picture(plan, reports);
    let paths = ["curves.png", "curves.svg"].map(|name| folder.join(name));
    picture.write_png(&paths[0])?;
    picture.write_svg(&paths[1])?;
    Ok(paths)
}

fn picture(plan: &Plan, reports: &[Report]) -> Picture {
    let mut picture = Picture::new(SIZE.0, SIZE.1);
    let title = plan.config.name.as_str();
    picture.text((86.0, 30.0), Anchor::Start, 23.0, INK, title);
    let known: Vec<(String, Points)> = plan
        .known
        .iter()
        .map(|known| (known.label.clone(), known.points.clone()))
        .collect();
    let speed = match plan.extent.speedup {
        true => "samples a second, as multiples of the first point's",
        false => "samples a second",
    };
    let speeds = curves(reports, "samples_per_second", plan.extent.speedup);
    let goodputs = curves(reports, "goodput", false);
    legend(&mut picture, &speeds, &known);
    let key = reports[0].point[0].0.as_str();
    let left = Frame {
        across: (96.0, 680.0),
        key,
        name: speed,
    };
    left.draw(&mut picture, &speeds, &known);
    let right = Frame {
        across: (790.0, 1370.0),
        key,
        name: "goodput",
    };
    right.draw(&mut picture, &goodputs, &[]);
    picture
}

/// A line for each combination of the axes but the first.
fn curves(reports: &[Report], figure: &str, relative: bool) -> Vec<(String, Points)> {
    let first = reports[0].figure(figure);
    let mut curves: Vec<(String, Points)> = Vec::new();
    for (index, report) in reports.iter().enumerate() {
        let words = report.point[1..].iter().map(|(key, value)| {
            let last = key.rsplit('.').next().unwrap_or(key);
            format!("{last} {}", value.clone().decorated("", ""))
        });
        let label = words.collect::<Vec<_>>().join(", ");
        let x = number(&report.point[0].1).unwrap_or(index as f64);
        let y = report.figure(figure);
        let point = (x, if relative { y / first } else { y });
        match curves.iter_mut().find(|(of, _)| *of == label) {
            Some((_, points)) => points.push(point),
            None => curves.push((label, vec![point])),
        }
    }
    curves
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or(value.as_integer().map(|n| n as f64))
}

/// A panel on the picture.
struct Frame<'a> {
    across: (f64, f64),
    key: &'a str,
    name: &'a str,
}

impl Frame<'_> {
    fn draw(&self, picture: &mut Picture, curves: &[(String, Points)], known: &[(String, Points)]) {
        let all = || curves.iter().chain(known).flat_map(|(_, points)| points);
        let panel = Panel {
            across: self.across,
            down: (110.0, 540.0),
            x: scale(all().map(|point| point.0)),
            y: scale(all().map(|point| point.1)),
        };
        let (x, y) = (panel.x.ticks(7), panel.y.ticks(7));
        panel.draw_grid(picture, &x, &y);
        for (index, (_, points)) in curves.iter().enumerate() {
            let color = series_color(index, curves.len());
            let pixels: Vec<_> = points.iter().map(|p| panel.pixel(p.0, p.1)).collect();
            for (x, y) in &pixels {
                picture.fill((x - 3.0, y - 3.0), (x + 3.0, y + 3.0), color);
            }
            picture.line(pixels, 2.4, color);
        }
        for (_, points) in known {
            for (x, y) in points.iter().map(|p| panel.pixel(p.0, p.1)) {
                picture.line(vec![(x - 6.0, y - 6.0), (x + 6.0, y + 6.0)], 2.0, INK);
                picture.line(vec![(x - 6.0, y + 6.0), (x + 6.0, y - 6.0)], 2.0, INK);
            }
        }
        panel.draw_frame(picture, &x, &y);
        let center = (self.across.0 + self.across.1) / 2.0;
        picture.text((center, 588.0), Anchor::Middle, LABEL_SIZE, INK, self.key);
        picture.text(
            (self.across.0, 94.0),
            Anchor::Start,
            LABEL_SIZE,
            INK,
            self.name,
        );
    }
}

fn scale(values: impl Iterator<Item = f64>) -> Scale {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    match low > 0.0 && high / low > LOG_FACTOR {
        true => Scale::Log(low / 1.1, high * 1.1),
        false => Scale::Linear(0.0, if high > 0.0 { high * 1.05 } else { 1.0 }),
    }
}

fn legend(picture: &mut Picture, curves: &[(String, Points)], known: &[(String, Points)]) {
    let mut x = 96.0;
    let mut put = |picture: &mut Picture, color, label: &str| {
        picture.fill((x, 54.0), (x + 18.0, 60.0), color);
        picture.text((x + 26.0, 57.0), Anchor::Start, 15.0, GREY, label);
        x += 60.0 + tradewind_report::picture::text_width(label, 15.0);
    };
    for (index, (label, _)) in curves.iter().enumerate() {
        put(picture, series_color(index, curves.len()), label);
    }
    for (label, _) in known {
        put(picture, INK, &format!("× {label}"));
    }
}
