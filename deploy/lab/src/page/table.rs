//! The table of a comparison: a row a setting.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::forest::Forest;
use super::panel::Panel;
use crate::line::{CellState, Line, Progress, Sums, footnote};
use crate::stats::Estimate;

pub(super) fn table(panel: &Panel<'_>) -> Markup {
    let shown = Shown::of(panel);
    let baseline = panel.lines.iter().find(|line| line.sums.baseline);
    let footnote = footnote(panel.lines.iter().copied());
    html! {
        div.wide {
            table {
                tr {
                    th { "setting" }
                    @if shown.target {
                        th { "time to target" br; "s" }
                        th { "samples to target" }
                        th { "times sooner than the" br; "best synchronous" }
                        @if let Some(forest) = shown.forest { th { (forest.head()) } }
                    }
                    (head_of_metric(panel))
                    @if shown.against {
                        th { "of it more than" br; @if let Some(line) = baseline { (line.label) } }
                    }
                    @if shown.bytes { th { "exchanged" br; "MB" } }
                    th { "training" br; "s" }
                }
                @for line in &panel.lines { (row(panel, line, &shown)) }
            }
        }
        @if let Some(footnote) = footnote { p { small { (footnote) } } }
    }
}

/// Which columns there are besides those that every table has.
struct Shown {
    target: bool,
    forest: Option<Forest>,
    against: bool,
    bytes: bool,
}

impl Shown {
    fn of(panel: &Panel<'_>) -> Self {
        Self {
            target: panel.target.is_some(),
            forest: Forest::of(panel),
            against: panel.lines.iter().any(|line| line.sums.against.is_some()),
            bytes: bytes_differ(panel),
        }
    }
}

fn row(panel: &Panel<'_>, line: &Line, shown: &Shown) -> Markup {
    let sums = &line.sums;
    let best = match Progress::of(panel.lines.iter().flat_map(|l| &l.runs)).is_complete() {
        true => "the best",
        false => "the best so far",
    };
    html! {
        tr class={ "s" (panel.index(line)) } {
            td {
                i.dot {} (line.marked())
                @if sums.baseline { small { "the baseline" } }
                (tuned(line)) (flaws(line))
            }
            @if shown.target {
                (cell_or_misses(line, sums.seconds))
                (cell_or_misses(line, sums.samples))
                @if sums.best_synchronous { td { "1" small { (best) } } }
                @else { (paired(line, sums.sooner, "×")) }
                @if let Some(forest) = shown.forest { td { (forest.row(sums)) } }
            }
            (cell(line, sums.validation, ""))
            (cell(line, sums.held_out, ""))
            @if shown.against { (paired(line, sums.against, "")) }
            @if shown.bytes { (cell(line, sums.bytes.map(|bytes| bytes.times(1e-6)), "")) }
            (cell(line, sums.train_seconds, ""))
        }
    }
}

/// Whether settings exchange different amounts: by more than what the last exchanges add.
fn bytes_differ(panel: &Panel<'_>) -> bool {
    let bytes = panel.lines.iter().filter_map(|line| line.sums.bytes);
    let bytes: Vec<f64> = bytes.map(|bytes| bytes.mean).collect();
    let least = bytes.iter().copied().fold(f64::INFINITY, f64::min);
    bytes.iter().any(|bytes| *bytes > 1.1 * least)
}

fn head_of_metric(panel: &Panel<'_>) -> Markup {
    let held_out = super::panel::readings_of(panel).find_map(|reading| {
        let metric = reading.summary.metric.as_ref()?;
        Some((metric.name.clone(), metric.unit.clone()))
    });
    let (validation, unit) = panel.metric().unwrap_or_default();
    let heads = [
        (format!("{validation} at the end"), unit),
        held_out.unwrap_or_default(),
    ];
    html! {
        @for (name, unit) in heads {
            th { (name) @if !unit.is_empty() { br; (unit) } }
        }
    }
}

/// What it was tuned to, and of what another value might be better.
fn tuned(line: &Line) -> Markup {
    let Some(tuned) = &line.tuned else {
        return Markup::default();
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
    html! { small { "tuned to " (values.join(", ")) } }
}

/// Runs that do not count.
fn flaws(line: &Line) -> Markup {
    let count =
        |what: fn(&CellState) -> bool| line.runs.iter().filter(|run| what(&run.state)).count();
    let kinds = [
        (count(|s| matches!(s, CellState::Void(..))), "void"),
        (count(|s| matches!(s, CellState::Failed(_))), "failed"),
        (count(|s| matches!(s, CellState::NotRun(_))), "not run"),
    ];
    let texts = kinds.iter().filter(|(n, _)| *n > 0);
    let texts: Vec<String> = texts.map(|(n, what)| format!("{n} {what}")).collect();
    html! {
        @if !texts.is_empty() { small { (texts.join(", ")) } }
    }
}

/// A mean, or how many runs have reached the target.
fn cell_or_misses(line: &Line, estimate: Option<Estimate>) -> Markup {
    let Sums {
        counted, reached, ..
    } = line.sums;
    match estimate {
        None if counted > 0 => html! { td.miss { (reached) " of " (counted) } },
        _ => cell(line, estimate, ""),
    }
}

/// A mean over runs, the ends of its interval, and of how many it is if not of all.
fn cell(line: &Line, estimate: Option<Estimate>, unit: &str) -> Markup {
    of_all(line.runs.len(), estimate, unit)
}

/// The same of what is paired by seed.
fn paired(line: &Line, estimate: Option<Estimate>, unit: &str) -> Markup {
    let seeds: BTreeSet<u64> = line.runs.iter().map(|run| run.seed).collect();
    of_all(seeds.len(), estimate, unit)
}

fn of_all(all: usize, estimate: Option<Estimate>, unit: &str) -> Markup {
    let Some(Estimate {
        mean, interval, n, ..
    }) = estimate
    else {
        return html! { td.none { "–" } };
    };
    let digits = digits(mean);
    html! {
        td {
            (format_args!("{mean:.digits$}")) (unit)
            @if let Some((low, high)) = interval {
                small { (format_args!("{low:.digits$} … {high:.digits$}")) }
            }
            @if n < all { small { "n = " (n) " of " (all) } }
        }
    }
}

/// Decimals that leave four digits that count.
fn digits(value: f64) -> usize {
    let size = value.abs().max(1e-12).log10().floor() as i32;
    (3 - size).clamp(0, 6).min(4) as usize
}
