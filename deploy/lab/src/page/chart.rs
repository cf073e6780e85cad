//! A chart of lines with bands.

use maud::Markup;

use super::curve::Point;
use super::svg::{At, Svg};
use tradewind_report::axes::Scale;

/// Width and height.
pub(super) const SIZE: (f64, f64) = (440.0, 300.0);
/// Left, top, right, bottom of the frame.
pub(super) const FRAME: (f64, f64, f64, f64) = (56.0, 14.0, 428.0, 252.0);

/// A range of more than this factor is shown on a logarithmic axis.
const LOG_FACTOR: f64 = 10.0;

/// The first part of the axis does not say how high it has to be: training begins far up.
const BEGINNING: f64 = 0.04;

/// Marks along a curve.
const MARKS: usize = 5;

/// A line with its band.
#[derive(Debug)]
pub(super) struct Series {
    /// Number of the setting.
    pub(super) index: usize,
    /// Of its curve, with its colour.
    pub(super) class: String,
    /// What stands along its curve.
    pub(super) mark: Option<char>,
    pub(super) points: Vec<Point>,
    pub(super) label: String,
}

/// What stands beside a chart's axes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Labels<'a> {
    pub(super) x: &'a str,
    pub(super) y: &'a str,
    /// A line across, at the target.
    pub(super) target: Option<f64>,
}

/// The axes of a chart; charts that are to be compared have the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axes {
    x: Scale,
    y: Scale,
}

impl Axes {
    /// From 0 to the last point, and from the lowest value, or the target, to the highest that is no
    /// beginning.
    pub(super) fn of<'a>(
        series: impl Iterator<Item = &'a Series> + Clone,
        target: Option<f64>,
    ) -> Self {
        let last = series.clone().filter_map(|s| s.points.last());
        let last = last.map(|p| p.x).fold(0.0, f64::max);
        Self {
            x: Scale::Linear(0.0, if last > 0.0 { last } else { 1.0 }),
            y: vertical(series, target, last * BEGINNING),
        }
    }
}

/// Draws it; `number` keeps names on one page apart.
pub(super) fn chart(series: &[Series], labels: Labels<'_>, axes: Axes, number: usize) -> Markup {
    let (left, top, right, bottom) = FRAME;
    let Axes { x, y } = axes;
    let place = |px: f64, py: f64| {
        (
            left + x.position(px) * (right - left),
            bottom - y.position(py).clamp(-0.5, 1.5) * (bottom - top),
        )
    };
    let mut svg = Svg::new(SIZE.0, SIZE.1);
    for tick in y.ticks(5) {
        let at = place(0.0, tick.value).1;
        svg.line(&[(left, at), (right, at)], "class=\"grid\"");
        svg.text((left - 7.0, at + 4.0), At::End, "tick", &tick.label);
    }
    for tick in x.ticks(5) {
        let at = place(tick.value, 1.0).0;
        svg.line(&[(at, bottom), (at, bottom + 4.0)], "class=\"axis\"");
        svg.text((at, bottom + 18.0), At::Middle, "tick", &tick.label);
    }
    svg.line(&[(left, bottom), (right, bottom)], "class=\"axis\"");
    svg.text(
        ((left + right) / 2.0, SIZE.1 - 8.0),
        At::Middle,
        "label",
        labels.x,
    );
    svg.text((left, top - 3.0), At::Start, "label", labels.y);

    svg.raw(&format!(
        "<clipPath id=\"c{number}\"><rect x=\"{left}\" y=\"{top}\" width=\"{}\" height=\"{}\"/></clipPath><g clip-path=\"url(#c{number})\">",
        right - left,
        bottom - top
    ));
    for one in series {
        let above = one.points.iter().map(|p| place(p.x, p.high));
        let below = one.points.iter().rev().map(|p| place(p.x, p.low));
        let outline: Vec<_> = above.chain(below).collect();
        svg.area(&outline, &format!("class=\"band s{}\"", one.index));
    }
    for one in series {
        let middle: Vec<_> = one.points.iter().map(|p| place(p.x, p.mean)).collect();
        svg.line(&middle, &format!("class=\"{}\"", one.class));
        marks(&mut svg, &middle, one.mark, one.index);
    }
    svg.raw("</g>");
    if let Some(target) = labels.target {
        let at = place(0.0, target).1;
        svg.line(&[(left, at), (right, at)], "class=\"target\"");
        svg.text((right - 4.0, at - 5.0), At::End, "target-label", "target");
    }
    let names: Vec<&str> = series.iter().map(|one| one.label.as_str()).collect();
    svg.finish(&format!(
        "{} over {}: {}",
        labels.y,
        labels.x,
        names.join(", ")
    ))
}

/// Puts a setting's mark along its curve, not where the others have theirs.
pub(super) fn marks(svg: &mut Svg, points: &[(f64, f64)], mark: Option<char>, index: usize) {
    let step = (points.len() / MARKS).max(1);
    let own = points.iter().skip(index * 3 % step).step_by(step);
    for (mark, at) in own.filter_map(|at| Some((mark?, at))) {
        let class = format!("mark s{index}");
        svg.text((at.0, at.1 + 4.0), At::Middle, &class, &mark.to_string());
    }
}

fn vertical<'a>(
    series: impl Iterator<Item = &'a Series> + Clone,
    target: Option<f64>,
    beginning: f64,
) -> Scale {
    let points = || series.clone().flat_map(|one| &one.points);
    let low = points()
        .map(|p| p.low)
        .chain(target)
        .fold(f64::MAX, f64::min);
    let settled = points().filter(|p| p.x >= beginning).map(|p| p.high);
    let high = settled.chain(target).fold(f64::MIN, f64::max);
    if low > high {
        return Scale::Linear(0.0, 1.0);
    }
    if low > 0.0 && high / low > LOG_FACTOR {
        let margin = (high / low).powf(0.04);
        return Scale::Log(low / margin, high * margin);
    }
    let margin = match (high - low) * 0.06 {
        margin if margin > 1e-9 * high.abs() => margin,
        _ => high.abs().max(1.0) * 0.1,
    };
    Scale::Linear(low - margin, high + margin)
}
