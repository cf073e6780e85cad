//! The table of a comparison: a row a setting.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::forest::Forest;
use super::panel::Panel;
use super::svg::escape;
use crate::line::{CellState, Line, Progress, Sums, footnote};
use crate::stats::Estimate;

pub(super) fn table(panel: &Panel<'_>) -> String {
    let forest = Forest::of(panel);
    let baseline = panel.lines.iter().find(|line| line.sums.baseline);
    let baseline = baseline.map_or(String::new(), |line| escape(&line.label));
    let best = match Progress::of(panel.lines.iter().flat_map(|l| &l.runs)).is_complete() {
        true => "the best",
        false => "the best so far",
    };
    let with_target = panel.target.is_some();
    let compared = panel.lines.iter().any(|line| line.sums.against.is_some());
    let with_bytes = bytes_differ(panel);
    let mut html = String::from("<div class=\"wide\"><table><tr><th>setting</th>");
    if with_target {
        html += "<th>time to target<br>s</th><th>samples to target</th><th>times sooner than the<br>best synchronous</th>";
        if let Some(forest) = forest {
            let _ = write!(html, "<th>{}</th>", forest.head());
        }
    }
    html += &head_of_metric(panel);
    if compared {
        let _ = write!(html, "<th>of it more than<br>{baseline}</th>");
    }
    if with_bytes {
        html += "<th>exchanged<br>MB</th>";
    }
    html += "<th>training<br>s</th></tr>";
    for line in &panel.lines {
        let sums = &line.sums;
        let _ = write!(
            html,
            "<tr class=\"s{}\"><td><i class=\"dot\"></i>{}{}{}{}</td>",
            panel.index(line),
            escape(&line.marked()),
            if sums.baseline {
                "<small>the baseline</small>"
            } else {
                ""
            },
            tuned(line),
            flaws(line)
        );
        if with_target {
            html += &cell_or_misses(line, sums.seconds);
            html += &cell_or_misses(line, sums.samples);
            match (sums.best_synchronous, sums.sooner) {
                (true, _) => {
                    let _ = write!(html, "<td>1<small>{best}</small></td>");
                }
                (false, sooner) => html += &paired(line, sooner, "×"),
            }
            if let Some(forest) = forest {
                let _ = write!(html, "<td>{}</td>", forest.row(sums));
            }
        }
        html += &cell(line, sums.validation, "");
        html += &cell(line, sums.held_out, "");
        if compared {
            html += &paired(line, sums.against, "");
        }
        if with_bytes {
            html += &cell(line, sums.bytes.map(|bytes| bytes.times(1e-6)), "");
        }
        html += &cell(line, sums.train_seconds, "");
        html += "</tr>";
    }
    html += "</table></div>";
    if let Some(footnote) = footnote(panel.lines.iter().copied()) {
        let _ = write!(html, "<p><small>{}</small></p>", escape(&footnote));
    }
    html
}

/// Whether settings exchange different amounts: by more than what the last exchanges add.
fn bytes_differ(panel: &Panel<'_>) -> bool {
    let bytes = panel.lines.iter().filter_map(|line| line.sums.bytes);
    let bytes: Vec<f64> = bytes.map(|bytes| bytes.mean).collect();
    let least = bytes.iter().copied().fold(f64::INFINITY, f64::min);
    bytes.iter().any(|bytes| *bytes > 1.1 * least)
}

fn head_of_metric(panel: &Panel<'_>) -> String {
    let held_out = super::panel::readings_of(panel).find_map(|reading| {
        let metric = reading.summary.metric.as_ref()?;
        Some((metric.name.clone(), metric.unit.clone()))
    });
    let head = |name: String, unit: &str| {
        let gap = if unit.is_empty() { "" } else { "<br>" };
        format!("<th>{}{gap}{}</th>", escape(&name), escape(unit))
    };
    let (validation, unit) = panel.metric().unwrap_or_default();
    let (name, held_out_unit) = held_out.unwrap_or_default();
    head(format!("{validation} at the end"), &unit) + &head(name, &held_out_unit)
}

/// What it was tuned to, and of what another value might be better.
fn tuned(line: &Line) -> String {
    let Some(tuned) = &line.tuned else {
        return String::new();
    };
    let values = tuned.iter().map(|(key, value)| {
        let name = key.rsplit('.').next().unwrap_or(key);
        let edge = match line.on_edge.contains(key) {
            true => " (the grid's edge)",
            false => "",
        };
        format!("{} {value}{edge}", name.replace('_', " "))
    });
    let values: Vec<String> = values.collect();
    format!("<small>tuned to {}</small>", escape(&values.join(", ")))
}

/// Runs that do not count.
fn flaws(line: &Line) -> String {
    let count =
        |what: fn(&CellState) -> bool| line.runs.iter().filter(|run| what(&run.state)).count();
    let kinds = [
        (count(|s| matches!(s, CellState::Void(..))), "void"),
        (count(|s| matches!(s, CellState::Failed(_))), "failed"),
        (count(|s| matches!(s, CellState::NotRun(_))), "not run"),
    ];
    let texts = kinds.iter().filter(|(n, _)| *n > 0);
    let texts: Vec<String> = texts.map(|(n, what)| format!("{n} {what}")).collect();
    match texts.is_empty() {
        true => String::new(),
        false => format!("<small>{}</small>", texts.join(", ")),
    }
}

/// A mean, or how many runs have reached the target.
fn cell_or_misses(line: &Line, estimate: Option<Estimate>) -> String {
    let Sums {
        counted, reached, ..
    } = line.sums;
    match estimate {
        None if counted > 0 => format!("<td class=\"miss\">{reached} of {counted}</td>"),
        _ => cell(line, estimate, ""),
    }
}

/// A mean over runs, the ends of its interval, and of how many it is if not of all.
fn cell(line: &Line, estimate: Option<Estimate>, unit: &str) -> String {
    of_all(line.runs.len(), estimate, unit)
}

/// The same of what is paired by seed.
fn paired(line: &Line, estimate: Option<Estimate>, unit: &str) -> String {
    let seeds: BTreeSet<u64> = line.runs.iter().map(|run| run.seed).collect();
    of_all(seeds.len(), estimate, unit)
}

fn of_all(all: usize, estimate: Option<Estimate>, unit: &str) -> String {
    let Some(estimate) = estimate else {
        return "<td class=\"none\">–</td>".to_owned();
    };
    let digits = digits(estimate.mean);
    let interval = estimate.interval.map_or(String::new(), |(low, high)| {
        format!("<small>{low:.digits$} … {high:.digits$}</small>")
    });
    let n = match estimate.n < all {
        true => format!("<small>n = {} of {all}</small>", estimate.n),
        false => String::new(),
    };
    format!("<td>{:.digits$}{unit}{interval}{n}</td>", estimate.mean)
}

/// Decimals that leave four digits that count.
fn digits(value: f64) -> usize {
    let size = value.abs().max(1e-12).log10().floor() as i32;
    (3 - size).clamp(0, 6).min(4) as usize
}
