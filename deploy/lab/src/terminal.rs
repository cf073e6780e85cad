//! What an experiment prints at its end.

use std::fmt::Write;

use super::file::{ExperimentPlan, Target};
use super::line::{Line, Sums, footnote, panels};
use super::stats::Estimate;

/// A table for each panel: a row a setting.
pub fn tables(plan: &ExperimentPlan, lines: &[Line]) -> String {
    let mut text = String::new();
    let width = lines.iter().map(|line| line.marked().chars().count());
    let width = width.max().unwrap_or(0).max(8);
    for panel in panels(lines) {
        let name = match panel.as_str() {
            "" => String::new(),
            name => format!("{name}\n"),
        };
        let _ = writeln!(
            text,
            "\n{name}{:width$}  {:>22}  {:>22}  {:>22}",
            "", "seconds to target", "times sooner than sync", "validation at the end"
        );
        for line in lines.iter().filter(|line| line.panel == panel) {
            row(&mut text, plan, line, width);
        }
    }
    if let Some(footnote) = footnote(lines) {
        let _ = writeln!(text, "{footnote}");
    }
    text
}

fn row(text: &mut String, plan: &ExperimentPlan, line: &Line, width: usize) {
    let Sums {
        sooner, validation, ..
    } = &line.sums;
    let of = line.runs.len();
    let sooner = match (line.sums.best_synchronous, sooner) {
        (true, _) => "1 (best synchronous)".to_owned(),
        (false, Some(sooner)) => number(*sooner, of),
        (false, None) => "–".to_owned(),
    };
    let _ = writeln!(
        text,
        "{:width$}  {:>22}  {sooner:>22}  {:>22}",
        line.marked(),
        to_target(plan.target.as_ref(), &line.sums, of),
        validation.map_or("–".to_owned(), |validation| number(validation, of)),
    );
}

/// Seconds to the target, or how many runs reached it.
fn to_target(target: Option<&Target>, sums: &Sums, of: usize) -> String {
    match (target, sums.seconds) {
        (None, _) => "no target".to_owned(),
        _ if sums.counted == 0 => "–".to_owned(),
        (Some(_), Some(seconds)) => number(seconds, of),
        (Some(_), None) => format!("{} of {}", sums.reached, sums.counted),
    }
}

/// A mean with its interval, to four digits that count, and of how many it is if not of all `of`.
fn number(estimate: Estimate, of: usize) -> String {
    let size = estimate.mean.abs().max(1e-12).log10().floor() as i32;
    let digits = (3 - size).clamp(0, 6) as usize;
    let n = match estimate.n < of {
        true => format!(" (n = {} of {of})", estimate.n),
        false => String::new(),
    };
    match estimate.interval {
        Some((low, high)) => format!(
            "{:.digits$} [{low:.digits$}, {high:.digits$}]{n}",
            estimate.mean
        ),
        None => format!("{:.digits$}{n}", estimate.mean),
    }
}
