//! `report.html`: one page without anything outside it, which compares settings.

mod bars;
mod chart;
mod curve;
mod curves;
mod delays;
mod details;
mod facts;
mod figure;
mod forest;
mod histogram;
mod levels;
mod panel;
mod svg;
mod table;
mod verdict;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::file::Target;
use crate::line::{Line, panels};
use crate::origin::Origin;
use crate::table::Column;
use panel::Panel;
use svg::css;
use tradewind_report::series_color;

/// What a page is made of.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    pub title: &'a str,
    /// A sentence under it.
    pub about: &'a str,
    pub target: Option<&'a Target>,
    pub lines: &'a [Line],
    /// The table of what was tried before, if anything was.
    pub trials: &'a [Column],
    pub origin: &'a Origin,
    /// How to have it made again, as a command.
    pub command: &'a str,
    /// Files that the command needs, with their content.
    pub files: &'a [(String, String)],
}

/// The page as HTML.
pub fn page(page: &Page<'_>) -> String {
    let labels = labels(page.lines);
    let css = [
        include_str!("drawing.css"),
        include_str!("style.css"),
        &colors(&labels),
        &highlights(labels.len()),
    ]
    .concat();
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { (page.title) }
                style { (PreEscaped(css)) }
            }
            body {
                main {
                    h1 { (page.title) }
                    @if !page.about.is_empty() { p.about { (page.about) } }
                    (facts::facts(page))
                    @for panel in panels_of(page, &labels) { (section(&panel)) }
                    (details::details(page))
                }
            }
        }
    };
    document.into_string() + "\n"
}

/// Rules by which the curves of a setting stand out while the pointer is on its name.
fn highlights(settings: usize) -> String {
    let rules = (0..settings).map(|index| {
        format!(
            "body:has(.chip.s{index}:hover) .curve:not(.s{index}),body:has(.chip.s{index}:hover) .band:not(.s{index}),body:has(.chip.s{index}:hover) svg .mark:not(.s{index}){{opacity:.08}}body:has(.chip.s{index}:hover) .band.s{index}{{opacity:.3}}"
        )
    });
    rules.collect()
}

/// One comparison: a sentence, a table, curves, times and histograms.
fn section(panel: &Panel<'_>) -> Markup {
    html! {
        section {
            @if !panel.name.is_empty() { h2 { (panel.name) } }
            (verdict::verdict(panel))
            (table::table(panel))
            (levels::levels(panel))
            (curves::curves(panel))
            (bars::times(panel))
            (delays::histograms(panel))
        }
    }
}

/// The validation over time, of all panels, as a picture; `None` without evaluations along the way.
pub fn figure(page: &Page<'_>) -> Option<String> {
    let labels = labels(page.lines);
    figure::figure(&panels_of(page, &labels), &colors(&labels))
}

fn panels_of<'a>(page: &Page<'a>, labels: &'a [&'a str]) -> Vec<Panel<'a>> {
    let panel = |(number, name): (usize, String)| Panel {
        lines: page.lines.iter().filter(|l| l.panel == name).collect(),
        name,
        labels,
        target: page.target,
        number,
    };
    panels(page.lines)
        .into_iter()
        .enumerate()
        .map(panel)
        .collect()
}

/// A rule for the colour of each setting.
fn colors(labels: &[&str]) -> String {
    let all = 0..labels.len();
    let rule = |index| {
        format!(
            ".s{index}{{--c:{}}}",
            css(series_color(index, labels.len()))
        )
    };
    all.map(rule).collect()
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
