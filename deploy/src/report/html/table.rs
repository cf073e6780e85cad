//! The table of a comparison: a row a setting.

use std::fmt::Write;

use super::panel::Panel;
use super::svg::{Svg, escape};
use crate::experiment::analysis::{Line, State, Sums};
use crate::experiment::stats::Estimate;
use crate::report::axes::Scale;

const FOREST: (f64, f64) = (190.0, 22.0);

pub(super) fn table(panel: &Panel<'_>) -> String {
    let scale = forest_scale(panel);
    let with_target = panel.target.is_some();
    let compared = panel.lines.iter().any(|line| line.sums.against.is_some());
    let with_bytes = bytes_differ(panel);
    let mut html = String::from("<div class=\"wide\"><table><tr><th>setting</th>");
    if with_target {
        html += "<th>time to target<br>s</th><th>samples to target</th><th>times sooner than the<br>best synchronous</th>";
        if scale.is_some() {
            html += "<th></th>";
        }
    }
    html += &head_of_metric(panel);
    if compared {
        html += "<th>of it more than the<br>best synchronous</th>";
    }
    if with_bytes {
        html += "<th>exchanged<br>MB</th>";
    }
    html += "<th>training<br>s</th></tr>";
    for line in &panel.lines {
        let sums = &line.sums;
        let _ = write!(
            html,
            "<tr class=\"s{}\"><td><i class=\"dot\"></i>{}{}{}</td>",
            panel.index(line),
            escape(&line.label),
            tuned(line),
            flaws(line)
        );
        if with_target {
            html += &cell_or_misses(sums, sums.seconds);
            html += &cell_or_misses(sums, sums.samples);
            match (sums.best_synchronous, sums.sooner) {
                (true, _) => html += "<td>1<small>the best</small></td>",
                (false, sooner) => html += &cell(sooner, "×"),
            }
            if let Some(scale) = scale {
                let _ = write!(html, "<td>{}</td>", forest(sums.sooner, scale));
            }
        }
        html += &cell(sums.validation, "");
        html += &cell(sums.held_out, "");
        if compared {
            html += &cell(sums.against, "");
        }
        if with_bytes {
            html += &cell(sums.bytes.map(|bytes| bytes.times(1e-6)), "");
        }
        html += &cell(sums.train_seconds, "");
        html += "</tr>";
    }
    html + "</table></div>"
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

/// What it was tuned to.
fn tuned(line: &Line) -> String {
    let Some(tuned) = &line.tuned else {
        return String::new();
    };
    let values = tuned.iter().map(|(key, value)| {
        let name = key.rsplit('.').next().unwrap_or(key);
        format!("{} {value}", name.replace('_', " "))
    });
    let values: Vec<String> = values.collect();
    format!("<small>tuned to {}</small>", escape(&values.join(", ")))
}

/// Runs that do not count.
fn flaws(line: &Line) -> String {
    let count = |what: fn(&State) -> bool| line.runs.iter().filter(|run| what(&run.state)).count();
    let kinds = [
        (count(|s| matches!(s, State::Void(..))), "void"),
        (count(|s| matches!(s, State::Failed(_))), "failed"),
        (count(|s| matches!(s, State::NotRun(_))), "not run"),
    ];
    let texts = kinds.iter().filter(|(n, _)| *n > 0);
    let texts: Vec<String> = texts.map(|(n, what)| format!("{n} {what}")).collect();
    match texts.is_empty() {
        true => String::new(),
        false => format!("<small>{}</small>", texts.join(", ")),
    }
}

/// A mean, or how many runs have reached the target.
fn cell_or_misses(sums: &Sums, estimate: Option<Estimate>) -> String {
    match estimate {
        None if sums.counted > 0 => {
            format!(
                "<td class=\"miss\">{} of {}</td>",
                sums.reached, sums.counted
            )
        }
        _ => cell(estimate, ""),
    }
}

/// A mean, and the half-width or the ends of its interval.
fn cell(estimate: Option<Estimate>, unit: &str) -> String {
    let Some(estimate) = estimate else {
        return "<td class=\"none\">–</td>".to_owned();
    };
    let digits = digits(estimate.mean);
    let interval = estimate.interval.map_or(String::new(), |(low, high)| {
        format!("<small>{low:.digits$} … {high:.digits$}</small>")
    });
    format!("<td>{:.digits$}{unit}{interval}</td>", estimate.mean)
}

/// Decimals that leave four digits that count.
fn digits(value: f64) -> usize {
    let size = value.abs().max(1e-12).log10().floor() as i32;
    (3 - size).clamp(0, 6).min(4) as usize
}

/// All intervals of a panel on one scale that holds 1.
fn forest_scale(panel: &Panel<'_>) -> Option<Scale> {
    let sooner = panel.lines.iter().filter_map(|line| line.sums.sooner);
    let ends: Vec<f64> = sooner
        .flat_map(|s| {
            let (low, high) = s.interval.unwrap_or((s.mean, s.mean));
            // An interval of two seeds says so little that it would hide the others.
            [low.max(s.mean / 3.0), high.min(s.mean * 3.0)]
        })
        .collect();
    if ends.is_empty() {
        return None;
    }
    let low = ends.iter().copied().fold(1.0, f64::min);
    let high = ends.iter().copied().fold(1.0, f64::max);
    Some(Scale::Log(low * 0.93, high * 1.07))
}

/// A mean with its interval beside the line at 1.
fn forest(sooner: Option<Estimate>, scale: Scale) -> String {
    let place = |value: f64| 4.0 + scale.position(value).clamp(0.0, 1.0) * (FOREST.0 - 8.0);
    let middle = FOREST.1 / 2.0;
    let mut svg = Svg::new(FOREST.0, FOREST.1);
    svg.line(
        &[(place(1.0), 0.0), (place(1.0), FOREST.1)],
        "class=\"axis\"",
    );
    if let Some(sooner) = sooner {
        if let Some((low, high)) = sooner.interval {
            svg.line(
                &[(place(low), middle), (place(high), middle)],
                "class=\"whisker\"",
            );
        }
        let title = format!("{:.3} times", sooner.mean);
        svg.circle(
            (place(sooner.mean), middle),
            4.5,
            "fill=\"var(--c)\"",
            &title,
        );
    }
    svg.finish("times sooner than the best synchronous setting")
}
