//! What the comparison would have been at other targets.

use maud::{Markup, html};

use super::chart::{FRAME, SIZE, marks};
use super::panel::{Panel, legend_of, validation_label};
use super::svg::{At, Svg};
use crate::levels::ratios;
use tradewind_report::axes::Scale;

/// Levels of more than this factor are shown on a logarithmic axis.
const LOG_FACTOR: f64 = 3.0;

/// A chart with its explanation; empty where there is nothing to be compared with.
pub(super) fn levels(panel: &Panel<'_>) -> Markup {
    let found = panel.target.and_then(|target| ratios(&panel.lines, target));
    let Some((baseline, mut lines)) = found else {
        return Markup::default();
    };
    lines.retain(|(_, ratios)| ratios.len() > 1);
    let points = || lines.iter().flat_map(|(_, ratios)| ratios);
    let limit = panel.target.map(|target| target.goal.limit());
    let (low, high) = ends(points().map(|point| point.0));
    if lines.is_empty() || low >= high {
        return Markup::default();
    }
    let x = match low > 0.0 && high / low > LOG_FACTOR {
        true => Scale::Log(low, high),
        false => Scale::Linear(low, high),
    };
    let (least, most) = ends(points().map(|point| point.1).chain([1.0]));
    let y = (least * 0.95, most * 1.05);
    let (left, top, right, bottom) = FRAME;
    let place = |level: f64, ratio: f64| {
        (
            left + x.position(level) * (right - left),
            bottom - Scale::Log(y.0, y.1).position(ratio) * (bottom - top),
        )
    };
    let mut svg = Svg::new(SIZE.0, SIZE.1);
    for tick in Scale::Linear(y.0, y.1).ticks(5) {
        let at = place(low, tick.value).1;
        svg.line(&[(left, at), (right, at)], "class=\"grid\"");
        svg.text((left - 7.0, at + 4.0), At::End, "tick", &tick.label);
    }
    for tick in x.ticks(5) {
        let at = place(tick.value, 1.0).0;
        svg.line(&[(at, bottom), (at, bottom + 4.0)], "class=\"axis\"");
        svg.text((at, bottom + 18.0), At::Middle, "tick", &tick.label);
    }
    svg.line(&[(left, bottom), (right, bottom)], "class=\"axis\"");
    let one = place(low, 1.0).1;
    svg.line(&[(left, one), (right, one)], "class=\"axis\"");
    let label = format!("target: {}", validation_label(panel));
    let middle = (left + right) / 2.0;
    svg.text((middle, SIZE.1 - 8.0), At::Middle, "label", &label);
    let name = "times sooner";
    svg.text((left, top - 3.0), At::Start, "label", name);
    for (line, ratios) in &lines {
        let points: Vec<_> = ratios.iter().map(|point| place(point.0, point.1)).collect();
        let class = panel.class(line);
        svg.line(&points, &format!("class=\"{class}\""));
        marks(&mut svg, &points, panel.mark(line), panel.index(line));
    }
    if let Some(limit) = limit.filter(|limit| (low..=high).contains(limit)) {
        let at = place(limit, 1.0).0;
        svg.line(&[(at, top), (at, bottom)], "class=\"target\"");
        svg.text((at + 4.0, top + 9.0), At::Start, "target-label", "target");
    }
    let shown: Vec<_> = lines.iter().map(|(line, _)| *line).collect();
    html! {
        h3 {
            "At other targets "
            span.none {
                "how many times sooner than " (baseline.label)
                " each setting reached a level with all seeds; a line ends where some run did not"
            }
        }
        p.legend { (legend_of(panel, &shown)) }
        div.row { (svg.finish(&format!("{name} over {label}"))) }
    }
}

fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    })
}
