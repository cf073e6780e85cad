//! How late the exchanges of a panel's settings were, and how far apart their groups.

use std::fmt::Write;

use super::histogram::{Counts, histogram};
use super::panel::{Panel, readings, readings_of};
use super::svg::escape;
use crate::line::Line;

const DELAY: &str = "Delay";

/// A histogram of each setting: of delays, and of lags.
pub(super) fn histograms(panel: &Panel<'_>) -> String {
    type Of = fn(&tradewind_common::record::StepRecord) -> Option<u64>;
    let kinds: [(&str, &str, Of); 2] = [
        (
            DELAY,
            "updates between the pull that a gradient was computed on and its own application",
            |r| r.delay,
        ),
        ("Lag", "exchanges behind the fastest live group", |r| {
            Some(r.lag)
        }),
    ];
    let mut html = String::new();
    for (head, meaning, of) in kinds {
        let counts: Vec<(&&Line, Counts)> = panel
            .lines
            .iter()
            .map(|line| {
                let mut counts = Counts::new();
                for record in readings(line).flat_map(|r| &r.records) {
                    if let Some(value) = of(record) {
                        *counts.entry(value).or_default() += record.exchanges;
                    }
                }
                (line, counts)
            })
            .filter(|(_, counts)| !counts.is_empty())
            .collect();
        let most = counts.iter().filter_map(|(_, c)| c.keys().max()).max();
        let Some(most) = most.copied() else { continue };
        if most == 0 {
            let word = head.to_lowercase();
            let _ = write!(
                html,
                "<h3>{head} <span class=\"none\">none: every {word} was 0</span></h3>"
            );
            if head == DELAY {
                html += &counted(panel, false);
            }
            continue;
        }
        let _ = write!(
            html,
            "<h3>{head} <span class=\"none\">{meaning}</span></h3><div class=\"histograms\">"
        );
        for (line, counts) in &counts {
            let label = escape(&line.label);
            let drawn = histogram(counts, most, panel.index(line), head);
            let _ = write!(
                html,
                "<figure><figcaption>{label}</figcaption>{drawn}</figure>"
            );
        }
        html += "</div>";
        if head == DELAY {
            html += &counted(panel, true);
        }
    }
    html
}

/// What histograms of delays count, and what is not in them. Where none is `drawn`, because every delay
/// was 0, only what was dropped is worth a word.
fn counted(panel: &Panel<'_>, drawn: bool) -> String {
    let dropped = panel.lines.iter().filter_map(|line| {
        let told = readings(line).filter_map(|reading| reading.summary.updates.as_ref());
        let (dropped, all) = told.fold((0_u64, 0_u64), |(dropped, all), own| {
            (dropped + own.dropped, all + own.dropped + own.applied)
        });
        let label = escape(&line.label);
        (dropped > 0).then(|| format!("<b>{label}</b> {dropped} of {all}"))
    });
    let dropped: Vec<String> = dropped.collect();
    if dropped.is_empty() && !drawn {
        return String::new();
    }
    let all_told = readings_of(panel).all(|reading| reading.summary.updates.is_some());
    let lacking = match (dropped.is_empty(), all_told) {
        (true, true) => "nothing was dropped".to_owned(),
        (true, false) => "what was dropped is not in it".to_owned(),
        (false, _) => format!(
            "contributions to blocks that were dropped are not in it: {}",
            dropped.join(", ")
        ),
    };
    format!(
        "<p class=\"legend\">counted: each exchange once, by the largest delay of its blocks; {lacking}</p>"
    )
}
