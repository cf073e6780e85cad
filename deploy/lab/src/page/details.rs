//! What anybody needs to run it again: cells, configurations, versions, seeds.

use std::fmt::Write;

use super::Page;
use super::svg::escape;
use crate::line::{CellState, Line, Reached};
use crate::results::status;
use crate::table::Column;

/// The last section.
pub(super) fn details(page: &Page<'_>) -> String {
    let mut html = String::from("<section><h2>To run it again</h2>");
    let _ = write!(html, "<pre>{}</pre>", escape(page.command));
    for (name, text) in page.files {
        html += &folded(name, &format!("<pre>{}</pre>", escape(text)));
    }
    html += &folded("Every run", &cells(page.lines, page.target.is_some()));
    if !page.trials.is_empty() {
        html += &folded("Every trial of the tuning", &trials(page.trials));
    }
    html += &configurations(page.lines);
    html + "</section>"
}

fn folded(head: &str, body: &str) -> String {
    format!(
        "<details><summary>{}</summary>{body}</details>",
        escape(head)
    )
}

fn cells(lines: &[Line], target: bool) -> String {
    let mut html = String::from(
        "<div class=\"wide\"><table class=\"cells\"><tr><th>run</th><th>setting</th><th>seed</th><th>status</th><th>time to target, s</th><th>samples to target</th><th>validation at the end</th><th>held out</th><th>steps late<br>(sync: clocks)</th></tr>",
    );
    let number =
        |x: Option<f64>, digits: usize| x.map_or("–".to_owned(), |x| format!("{x:.digits$}"));
    for line in lines {
        for run in &line.runs {
            // Whoever came to an end without the target will not reach it.
            let reached = |of: fn(&Reached) -> f64, digits| match (&run.reached, &run.state) {
                (None, CellState::Completed(_) | CellState::Failed(_)) if target => {
                    "never".to_owned()
                }
                (reached, _) => number(reached.as_ref().map(of), digits),
            };
            let metric = run.reading().and_then(|r| r.summary.metric.as_ref());
            let (word, why) = status(run);
            let why = why.map_or(String::new(), |why| format!(": {why}"));
            let _ = write!(
                html,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                escape(&run.id),
                escape(&format!("{} {}", line.label, line.panel)),
                run.seed,
                escape(&format!("{word}{why}")),
                reached(|r| r.seconds, 1),
                reached(|r| r.samples, 0),
                number(metric.map(|m| m.validation.value), 4),
                number(metric.map(|m| m.value), 4),
                number(run.reading().map(|r| 100.0 * r.missed()), 1) + " %",
            );
        }
    }
    html + "</table></div>"
}

fn trials(columns: &[Column]) -> String {
    let mut html = String::from("<div class=\"wide\"><table class=\"cells\"><tr>");
    for column in columns {
        let _ = write!(html, "<th>{}</th>", escape(&column.name));
    }
    html += "</tr>";
    for row in 0..columns.first().map_or(0, Column::rows) {
        html += "<tr>";
        for column in columns {
            let _ = write!(html, "<td>{}</td>", escape(&column.text(row)));
        }
        html += "</tr>";
    }
    html + "</table></div>"
}

/// What all settings share, and how each differs from that.
fn configurations(lines: &[Line]) -> String {
    let Some(first) = lines.first() else {
        return String::new();
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
    folded(
        "What the settings differ in",
        &format!("<pre>{}</pre>", escape(own.trim_end())),
    ) + &folded(
        "What they share: every other key, resolved",
        &format!("<pre>{}</pre>", escape(shared.trim_end())),
    )
}
