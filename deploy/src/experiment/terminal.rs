//! What an experiment prints at its end.

use std::fmt::Write;

use super::analysis::{Line, Sums};
use super::file::{Plan, Target};
use super::stats::Estimate;

/// A table for each panel: a row a setting.
pub(crate) fn tables(plan: &Plan, lines: &[Line]) -> String {
    let mut text = String::new();
    let mut panel = None;
    let width = lines.iter().map(|line| line.label.chars().count());
    let width = width.max().unwrap_or(0).max(8);
    for line in lines {
        if panel != Some(&line.panel) {
            panel = Some(&line.panel);
            let name = if line.panel.is_empty() {
                String::new()
            } else {
                format!("{}\n", line.panel)
            };
            let _ = writeln!(
                text,
                "\n{name}{:width$}  {:>22}  {:>22}  {:>22}",
                "", "seconds to target", "times sooner than sync", "validation at the end"
            );
        }
        let Sums {
            sooner, validation, ..
        } = &line.sums;
        let sooner = match (line.sums.best_synchronous, sooner) {
            (true, _) => "1 (best synchronous)".to_owned(),
            (false, Some(sooner)) => number(*sooner),
            (false, None) => "–".to_owned(),
        };
        let _ = writeln!(
            text,
            "{:width$}  {:>22}  {sooner:>22}  {:>22}",
            line.label,
            to_target(plan.target.as_ref(), &line.sums),
            validation.map_or("–".to_owned(), number),
        );
    }
    text
}

/// Seconds to the target, or how many runs reached it.
fn to_target(target: Option<&Target>, sums: &Sums) -> String {
    match (target, sums.seconds) {
        (None, _) => "no target".to_owned(),
        (Some(_), Some(seconds)) => number(seconds),
        (Some(_), None) => format!("{} of {} reached it", sums.reached, sums.counted),
    }
}

/// A mean with its interval, to four digits that count.
pub(crate) fn number(estimate: Estimate) -> String {
    let size = estimate.mean.abs().max(1e-12).log10().floor() as i32;
    let digits = (3 - size).clamp(0, 6) as usize;
    match estimate.interval {
        Some((low, high)) => format!(
            "{:.digits$} [{low:.digits$}, {high:.digits$}]",
            estimate.mean
        ),
        None => format!("{:.digits$}", estimate.mean),
    }
}
