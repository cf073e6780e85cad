//! What anybody needs to run it again: cells, configurations, versions, seeds.

use std::fmt::Write;

use maud::{Markup, html};

use super::Page;
use crate::line::{CellState, Line, Reached, Run};
use crate::results::status;
use crate::table::Column;

/// The last section.
pub(super) fn details(page: &Page<'_>) -> Markup {
    html! {
        section {
            h2 { "To run it again" }
            pre { (page.command) }
            @for (name, text) in page.files { (folded(name, &html! { pre { (text) } })) }
            (folded("Every run", &cells(page.lines, page.target.is_some())))
            @if !page.trials.is_empty() { (folded("Every trial of the tuning", &trials(page.trials))) }
            (configurations(page.lines))
        }
    }
}

fn folded(head: &str, body: &Markup) -> Markup {
    html! { details { summary { (head) } (body) } }
}

fn cells(lines: &[Line], target: bool) -> Markup {
    let runs = lines
        .iter()
        .flat_map(|line| line.runs.iter().map(move |run| (line, run)));
    html! {
        div.wide {
            table.cells {
                tr {
                    th { "run" } th { "setting" } th { "seed" } th { "status" }
                    th { "time to target, s" } th { "samples to target" }
                    th { "validation at the end" } th { "held out" }
                    th { "steps late" br; "(sync: clocks)" }
                }
                @for (line, run) in runs { (cell(line, run, target)) }
            }
        }
    }
}

fn cell(line: &Line, run: &Run, target: bool) -> Markup {
    let number =
        |x: Option<f64>, digits: usize| x.map_or("–".to_owned(), |x| format!("{x:.digits$}"));
    // Whoever came to an end without the target will not reach it.
    let reached = |of: fn(&Reached) -> f64, digits| match (&run.reached, &run.state) {
        (None, CellState::Completed(_) | CellState::Failed(_)) if target => "never".to_owned(),
        (reached, _) => number(reached.as_ref().map(of), digits),
    };
    let metric = run.reading().and_then(|r| r.summary.metric.as_ref());
    let (word, why) = status(run);
    html! {
        tr {
            td { (run.id) }
            td { (line.label) " " (line.panel) }
            td { (run.seed) }
            td { (word) @if let Some(why) = why { ": " (why) } }
            td { (reached(|r| r.seconds, 1)) }
            td { (reached(|r| r.samples, 0)) }
            td { (number(metric.map(|m| m.validation.value), 4)) }
            td { (number(metric.map(|m| m.value), 4)) }
            td { (number(run.reading().map(|r| 100.0 * r.missed()), 1)) " %" }
        }
    }
}

fn trials(columns: &[Column]) -> Markup {
    html! {
        div.wide {
            table.cells {
                tr { @for column in columns { th { (column.name) } } }
                @for row in 0..columns.first().map_or(0, Column::rows) {
                    tr { @for column in columns { td { (column.text(row)) } } }
                }
            }
        }
    }
}

/// What all settings share, and how each differs from that.
fn configurations(lines: &[Line]) -> Markup {
    let Some(first) = lines.first() else {
        return Markup::default();
    };
    let common = |key: &str, value: &str| {
        let own = |line: &Line| line.keys.get(key).is_some_and(|v| v == value);
        lines.iter().all(own)
    };
    let mut shared = String::new();
    let mut section = String::new();
    for (key, value) in first.keys.iter().filter(|(key, value)| common(key, value)) {
        let (head, name) = key.split_once('.').unwrap_or(("", key));
        if head != section {
            let gap = if section.is_empty() { "" } else { "\n" };
            let _ = writeln!(shared, "{gap}[{head}]");
            head.clone_into(&mut section);
        }
        let _ = writeln!(shared, "{name} = {value}");
    }
    let mut own = String::new();
    for line in lines {
        let panel = if line.panel.is_empty() {
            String::new()
        } else {
            format!(", {}", line.panel)
        };
        let _ = writeln!(own, "# {}{panel}", line.label);
        for (key, value) in line.keys.iter().filter(|(key, value)| !common(key, value)) {
            let _ = writeln!(own, "{key} = {value}");
        }
        own.push('\n');
    }
    html! {
        (folded("What the settings differ in", &html! { pre { (own.trim_end()) } }))
        (folded(
            "What they share: every other key, resolved",
            &html! { pre { (shared.trim_end()) } },
        ))
    }
}
