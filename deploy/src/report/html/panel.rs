//! One comparison: a sentence, a table, curves, times and histograms.

use std::fmt::Write;

use super::chart::{Axes, Labels, Series, chart};
use super::curve::{Along, Shown, band, curve};
use super::svg::escape;
use super::{bars, delays, levels, table, verdict};
use crate::experiment::analysis::{Line, Progress, Run};
use crate::experiment::file::{Goal, Target};
use crate::experiment::reading::{Reading, Times};

/// So many settings have colours that can be told apart; where there are more, marks help.
const COLORS: usize = 6;
const MARKS: [char; 4] = ['●', '▲', '■', '◆'];

/// What is compared.
#[derive(Clone, Debug)]
pub(super) struct Panel<'a> {
    /// Empty if it is the only one.
    pub(super) name: String,
    pub(super) lines: Vec<&'a Line>,
    /// Names of all settings of the page.
    pub(super) labels: &'a [&'a str],
    pub(super) target: Option<&'a Target>,
    pub(super) number: usize,
}

impl Panel<'_> {
    /// The number of a setting: its colour.
    pub(super) fn index(&self, line: &Line) -> usize {
        let own = self.labels.iter().position(|label| *label == line.label);
        own.expect("made from all lines")
    }

    /// What a setting's curve looks like.
    pub(super) fn class(&self, line: &Line) -> String {
        let dashed = if line.synchronous { " dashed" } else { "" };
        format!("curve{dashed} s{}", self.index(line))
    }

    /// What stands along it.
    pub(super) fn mark(&self, line: &Line) -> Option<char> {
        let many = self.labels.len() > COLORS;
        many.then(|| MARKS[self.index(line) % MARKS.len()])
    }

    /// What its charts lack, if anything.
    pub(super) fn not_drawn(&self) -> Option<String> {
        let runs = self.lines.iter().flat_map(|line| &line.runs);
        match Progress::of(runs).failed {
            0 => None,
            1 => Some("1 run gave up and is not drawn".to_owned()),
            failed => Some(format!("{failed} runs gave up and are not drawn")),
        }
    }

    /// Name and unit of what is measured on the validation split, as the first run that has one tells.
    pub(super) fn metric(&self) -> Option<(String, String)> {
        readings_of(self).find_map(|reading| {
            let at_end = reading.summary.metric.as_ref();
            let along = reading.validations.first().map(|v| &v.measure);
            match (along, at_end) {
                (Some(measure), _) => Some((measure.name.clone(), measure.unit.clone())),
                (None, Some(metric)) => {
                    let measure = &metric.validation;
                    Some((measure.name.clone(), measure.unit.clone()))
                }
                (None, None) => None,
            }
        })
    }
}

/// The runs of a setting that count.
pub(super) fn readings(line: &Line) -> impl Iterator<Item = &Reading> {
    line.runs.iter().filter_map(Run::reading)
}

/// All runs of a panel that count.
pub(super) fn readings_of<'a>(panel: &Panel<'a>) -> impl Iterator<Item = &'a Reading> {
    panel.lines.iter().flat_map(|line| readings(line))
}

pub(super) fn panel(panel: &Panel<'_>) -> String {
    let mut html = String::from("<section>");
    if !panel.name.is_empty() {
        let _ = write!(html, "<h2>{}</h2>", escape(&panel.name));
    }
    html += &verdict::verdict(panel);
    html += &table::table(panel);
    html += &levels::levels(panel);
    html += &curves(panel);
    html += &times(panel);
    html += &delays::histograms(panel);
    html + "</section>"
}

/// Such as `validation RMSE ≤ 0.8 K`.
pub(super) fn goal(target: &Target, unit: Option<&str>) -> String {
    let sign = match target.goal {
        Goal::AtMost(_) => '≤',
        Goal::AtLeast(_) => '≥',
    };
    let unit = unit
        .filter(|u| !u.is_empty())
        .map_or(String::new(), |u| format!(" {u}"));
    let (metric, limit) = (&target.metric, target.goal.limit());
    escape(&format!("{metric} {sign} {limit}{unit}"))
}

/// What the validation's axis says.
pub(super) fn validation_label(panel: &Panel<'_>) -> String {
    let (name, unit) = panel.metric().unwrap_or_default();
    match unit.is_empty() {
        true => name,
        false => format!("{name} ({unit})"),
    }
}

const SECONDS: &str = "seconds since the first step";

/// The charts that answer what a page asks, without a legend: one for each of the panels that have
/// evaluations along the way, all with the same axes.
pub(super) fn validation_over_time<'a, 'b>(
    panels: &'b [Panel<'a>],
) -> Vec<(&'b Panel<'a>, String)> {
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

fn curves(panel: &Panel<'_>) -> String {
    let mut html = String::new();
    for (row, shown) in [Shown::Validation, Shown::Loss].into_iter().enumerate() {
        let axes = [
            (Along::Time, SECONDS),
            (Along::Updates, "updates applied"),
            (Along::Samples, "samples applied"),
        ];
        let series = axes.map(|(along, _)| series(panel, shown, along));
        if series[0].is_empty() {
            continue;
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
        let _ = write!(
            html,
            "<h3>{head}</h3><p class=\"legend\">{}</p><div class=\"row\">",
            legend(panel)
        );
        for (column, (series, (_, x))) in series.iter().zip(axes).enumerate() {
            let labels = Labels { x, y: &y, target };
            let axes = Axes::of(series.iter(), target);
            html += &chart(series, labels, axes, 100 * panel.number + 10 * row + column);
        }
        html += "</div>";
    }
    html
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

/// What the lines of some settings look like.
pub(super) fn legend_of(panel: &Panel<'_>, lines: &[&Line]) -> String {
    let chips = lines.iter().map(|line| {
        let (index, label) = (panel.index(line), escape(&line.label));
        let sync = if line.synchronous {
            " class=\"sync\""
        } else {
            ""
        };
        let mark = panel.mark(line).map_or(String::new(), |mark| {
            format!("<b class=\"mark s{index}\">{mark}</b>")
        });
        format!("<span class=\"chip s{index}\"><i{sync}></i>{mark}{label}</span>")
    });
    chips.collect()
}

fn legend(panel: &Panel<'_>) -> String {
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
    legend_of(panel, &panel.lines) + &format!("<span class=\"none\">{caption}</span>")
}

fn times(panel: &Panel<'_>) -> String {
    let rows = panel.lines.iter().filter_map(|line| {
        let times: Vec<Times> = readings(line).map(Reading::times).collect();
        let mean = |of: fn(&Times) -> f64| times.iter().map(of).sum::<f64>() / times.len() as f64;
        let mean = Times {
            computing: mean(|t| t.computing),
            reducing: mean(|t| t.reducing),
            exchanging: mean(|t| t.exchanging),
            waiting: mean(|t| t.waiting),
        };
        (!times.is_empty()).then(|| (line.label.clone(), mean))
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "<h3>Where the time went</h3><p class=\"legend\">{}</p>{}",
        bars::legend(),
        bars::bars(&rows)
    )
}
