//! `curves.svg`: what is measured on the validation split over time, in every panel of a page, as a
//! picture of its own for documents and papers.

use maud::Markup;

use super::chart::{SIZE, marks};
use super::curves::validation_over_time;
use super::panel::Panel;
use super::svg::{At, Svg};
use crate::line::Line;

const GAP: f64 = 16.0;
/// Height of a row of the legend, and of a panel's name.
const ROW: f64 = 22.0;
/// Width of a letter of the legend on average, and of a sample of a line with what is around it.
const LETTER: f64 = 6.6;
const SAMPLE: f64 = 50.0;

/// All panels beside each other, with the same axes, under one legend; `None` without evaluations along the way. `colors`
/// are the rules of the settings' colours.
pub(super) fn figure(panels: &[Panel<'_>], colors: &str) -> Option<String> {
    let charts = validation_over_time(panels)
        .into_iter()
        .map(|(panel, chart)| {
            let name = [Some(panel.name.clone()), panel.not_drawn()];
            let name = name.into_iter().flatten().filter(|text| !text.is_empty());
            (name.collect::<Vec<_>>().join(": "), chart)
        });
    let charts: Vec<(String, Markup)> = charts.collect();
    if charts.is_empty() {
        return None;
    }
    let width = charts.len() as f64 * (SIZE.0 + GAP) + GAP;
    let places = legend(panels, width);
    let top = GAP + ROW * (1.0 + places.last()?.at.1);
    let mut svg = Svg::new(width, top + ROW + SIZE.1 + GAP);
    svg.style(&[include_str!("drawing.css"), colors].concat());
    for place in &places {
        let (x, y) = (place.at.0, GAP + place.at.1 * ROW + ROW / 2.0);
        let class = format!("class=\"{}\"", place.class);
        svg.line(&[(x, y), (x + 24.0, y)], &class);
        marks(&mut svg, &[(x + 12.0, y)], place.mark, place.index);
        svg.text((x + 31.0, y + 4.0), At::Start, "row", &place.line.label);
    }
    for (column, (name, chart)) in charts.iter().enumerate() {
        let left = GAP + column as f64 * (SIZE.0 + GAP);
        let middle = left + SIZE.0 / 2.0;
        svg.text((middle, top + ROW - 8.0), At::Middle, "row", name);
        svg.inside((left, top + ROW), SIZE, chart);
    }
    Some(svg.finish_alone("validation over time"))
}

/// A setting in the legend.
struct LegendEntry<'a> {
    line: &'a Line,
    index: usize,
    class: String,
    mark: Option<char>,
    /// Its left edge, and its row.
    at: (f64, f64),
}

/// The settings, each once, in as many rows as they need.
fn legend<'a>(panels: &[Panel<'a>], width: f64) -> Vec<LegendEntry<'a>> {
    let mut places: Vec<LegendEntry<'a>> = Vec::new();
    let mut at = (GAP, 0.0);
    for panel in panels {
        for line in &panel.lines {
            let index = panel.index(line);
            if places.iter().any(|place| place.index == index) {
                continue;
            }
            let own = SAMPLE + LETTER * line.label.chars().count() as f64;
            if at.0 + own > width && at.0 > GAP {
                at = (GAP, at.1 + 1.0);
            }
            places.push(LegendEntry {
                line,
                index,
                class: panel.class(line),
                mark: panel.mark(line),
                at,
            });
            at.0 += own;
        }
    }
    places
}
