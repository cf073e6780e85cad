//! `report.html`: one page without anything outside it, which compares settings.

mod bars;
mod chart;
mod curve;
mod details;
mod histogram;
mod panel;
mod svg;
mod table;

use std::fmt::Write;

use crate::experiment::analysis::{Line, panels};
use crate::experiment::file::Target;
use crate::experiment::table::Column;
use crate::report::series_color;
use svg::{css, escape};

/// What a page is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page<'a> {
    pub(crate) title: &'a str,
    /// A sentence under it.
    pub(crate) about: &'a str,
    pub(crate) target: Option<&'a Target>,
    pub(crate) lines: &'a [Line],
    /// The table of what was tried before, if anything was.
    pub(crate) trials: &'a [Column],
    /// How to have it made again, as a command.
    pub(crate) command: &'a str,
    /// Files that the command needs, with their content.
    pub(crate) files: &'a [(String, String)],
}

/// The page as HTML.
pub(crate) fn page(page: &Page<'_>) -> String {
    let labels = labels(page.lines);
    let mut body = String::new();
    let _ = write!(body, "<h1>{}</h1>", escape(page.title));
    if !page.about.is_empty() {
        let _ = write!(body, "<p class=\"about\">{}</p>", escape(page.about));
    }
    body += &details::facts(page);
    for (number, name) in panels(page.lines).iter().enumerate() {
        let own: Vec<&Line> = page.lines.iter().filter(|l| l.panel == *name).collect();
        let shown = panel::Panel {
            name,
            lines: &own,
            labels: &labels,
            target: page.target,
            number,
        };
        body += &panel::panel(&shown);
    }
    body += &details::details(page);
    let mut colors = String::new();
    for index in 0..labels.len() {
        let color = css(series_color(index, labels.len()));
        let _ = write!(
            colors,
            ".s{index}{{--c:{color}}}body:has(.chip.s{index}:hover) .curve:not(.s{index}),body:has(.chip.s{index}:hover) .band:not(.s{index}){{opacity:.08}}body:has(.chip.s{index}:hover) .band.s{index}{{opacity:.3}}"
        );
    }
    let (title, style) = (escape(page.title), include_str!("style.css"));
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title><style>{style}{colors}</style></head><body><main>{body}</main></body></html>\n"
    )
}

/// The settings' names, each once: a setting has one colour in all panels.
fn labels(lines: &[Line]) -> Vec<&str> {
    let mut labels: Vec<&str> = Vec::new();
    for line in lines {
        if !labels.contains(&line.label.as_str()) {
            labels.push(&line.label);
        }
    }
    labels
}
