//! How late the exchanges of a panel's settings were, and how far apart their groups.

use maud::{Markup, html};
use tradewind_common::record::StepRecord;

use super::histogram::{Counts, histogram};
use super::panel::{Panel, readings, readings_of};
use crate::line::Line;

const DELAY: &str = "Delay";

/// What is counted of a step.
type Of = fn(&StepRecord) -> Option<u64>;

/// A histogram of each setting: of delays, and of lags.
pub(super) fn histograms(panel: &Panel<'_>) -> Markup {
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
    html! {
        @for (head, meaning, of) in kinds {
            (kind(panel, head, meaning, of))
        }
    }
}

/// The histograms of one thing.
fn kind(panel: &Panel<'_>, head: &str, meaning: &str, of: Of) -> Markup {
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
    let Some(most) = most.copied() else {
        return Markup::default();
    };
    html! {
        h3 {
            (head) " "
            span.none {
                @if most == 0 { "none: every " (head.to_lowercase()) " was 0" }
                @else { (meaning) }
            }
        }
        @if most > 0 {
            div.histograms {
                @for (line, counts) in &counts {
                    figure {
                        figcaption { (line.label) }
                        (histogram(counts, most, panel.index(line), head))
                    }
                }
            }
        }
        @if head == DELAY { (counted(panel, most > 0)) }
    }
}

/// What histograms of delays count, and what is not in them. Where none is `drawn`, because every delay
/// was 0, only what was dropped is worth a word.
fn counted(panel: &Panel<'_>, drawn: bool) -> Markup {
    let dropped = panel.lines.iter().filter_map(|line| {
        let told = readings(line).filter_map(|reading| reading.summary.updates.as_ref());
        let (dropped, all) = told.fold((0_u64, 0_u64), |(dropped, all), own| {
            (dropped + own.dropped, all + own.dropped + own.applied)
        });
        (dropped > 0).then_some((line, dropped, all))
    });
    let dropped: Vec<_> = dropped.collect();
    if dropped.is_empty() && !drawn {
        return Markup::default();
    }
    let all_told = readings_of(panel).all(|reading| reading.summary.updates.is_some());
    html! {
        p.legend {
            "counted: each exchange once, by the largest delay of its blocks; "
            @match (dropped.is_empty(), all_told) {
                (true, true) => "nothing was dropped",
                (true, false) => "what was dropped is not in it",
                (false, _) => {
                    "contributions to blocks that were dropped are not in it: "
                    @for (at, (line, dropped, all)) in dropped.iter().enumerate() {
                        @if at > 0 { ", " }
                        b { (line.label) } " " (dropped) " of " (all)
                    }
                },
            }
        }
    }
}
