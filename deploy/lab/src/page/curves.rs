//! The curves of a panel: what is measured on the validation split, and the training loss.

use maud::{Markup, html};

use super::chart::{Axes, Labels, Series, chart};
use super::curve::{Along, Shown, band, curve};
use super::panel::{Panel, legend_of, readings, validation_label};

const SECONDS: &str = "seconds since the first step";

/// The charts that answer what a page asks, without a legend: one for each of the panels that have
/// evaluations along the way, all with the same axes.
pub(super) fn validation_over_time<'a, 'b>(
    panels: &'b [Panel<'a>],
) -> Vec<(&'b Panel<'a>, Markup)> {
    let drawn = panels
        .iter()
        .map(|panel| (panel, series(panel, Shown::Validation, Along::Time)))
        .filter(|(_, series)| !series.is_empty());
    let drawn: Vec<_> = drawn.collect();
    let limit = |panel: &Panel<'_>| panel.target.map(|target| target.goal.limit());
    let target = panels.first().and_then(limit);
    let axes = Axes::of(drawn.iter().flat_map(|(_, series)| series), target);
    let charts = drawn.iter().map(|(panel, series)| {
        let y = validation_label(panel);
        let labels = Labels {
            x: SECONDS,
            y: &y,
            target,
        };
        (*panel, chart(series, labels, axes, panel.number))
    });
    charts.collect()
}

/// Over time, updates and samples.
pub(super) fn curves(panel: &Panel<'_>) -> Markup {
    html! {
        (rows(panel, Shown::Validation, 0))
        (rows(panel, Shown::Loss, 1))
    }
}

/// Charts of one thing beside each other; `row` tells them apart from others.
fn rows(panel: &Panel<'_>, shown: Shown, row: usize) -> Markup {
    let axes = [
        (Along::Time, SECONDS),
        (Along::Updates, "updates applied"),
        (Along::Samples, "samples applied"),
    ];
    let series = axes.map(|(along, _)| series(panel, shown, along));
    if series[0].is_empty() {
        return Markup::default();
    }
    let (y, target, head) = match shown {
        Shown::Validation => {
            let target = panel.target.map(|target| target.goal.limit());
            (validation_label(panel), target, "Validation")
        }
        Shown::Loss => (
            "training loss, running mean".to_owned(),
            None,
            "Training loss",
        ),
    };
    let charts = series.iter().zip(axes).enumerate();
    let charts = charts.map(|(column, (series, (_, x)))| {
        let labels = Labels { x, y: &y, target };
        let axes = Axes::of(series.iter(), target);
        chart(series, labels, axes, 100 * panel.number + 10 * row + column)
    });
    html! {
        h3 { (head) }
        p.legend { (legend(panel)) }
        div.row { @for chart in charts { (chart) } }
    }
}

fn series(panel: &Panel<'_>, shown: Shown, along: Along) -> Vec<Series> {
    let all = panel.lines.iter().map(|line| {
        let curves: Vec<_> = readings(line).map(|r| curve(r, shown, along)).collect();
        Series {
            index: panel.index(line),
            class: panel.class(line),
            mark: panel.mark(line),
            points: band(&curves),
            label: line.label.clone(),
        }
    });
    all.filter(|series| !series.points.is_empty()).collect()
}

fn legend(panel: &Panel<'_>) -> Markup {
    let seeds = panel.lines.iter().map(|line| readings(line).count()).max();
    let mut caption = match seeds {
        Some(2..) => {
            "line: mean of the seeds; band: from the least to the most of them; dashed: synchronous"
        }
        _ => "dashed: synchronous",
    }
    .to_owned();
    if let Some(lacking) = panel.not_drawn() {
        caption += &format!("; {lacking}");
    }
    html! { (legend_of(panel, &panel.lines)) span.none { (caption) } }
}
