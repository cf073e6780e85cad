//! What stands under the title: how much has been run, towards what, and how it came about.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::Page;
use super::panel::{goal, readings};
use crate::line::Progress;
use crate::reading::{Reading, RunSummary};

/// Paragraphs under the title.
pub(super) fn facts(page: &Page<'_>) -> Markup {
    let paragraphs = [asked(page), pace(page), made(page)];
    html! {
        @for facts in paragraphs.iter().filter(|facts| !facts.is_empty()) {
            p.facts {
                @for (at, fact) in facts.iter().enumerate() {
                    @if at > 0 { " · " }
                    (fact)
                }
            }
        }
    }
}

fn all<'a>(page: &Page<'a>) -> impl Iterator<Item = &'a Reading> {
    page.lines.iter().flat_map(readings)
}

/// Each value once, in order.
fn distinct<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.collect::<BTreeSet<T>>().into_iter().collect()
}

fn joined<T: ToString>(values: &[T]) -> String {
    let texts: Vec<String> = values.iter().map(T::to_string).collect();
    texts.join(", ")
}

/// Runs, seeds and the target.
fn asked(page: &Page<'_>) -> Vec<Markup> {
    let runs = page.lines.iter().flat_map(|line| &line.runs);
    let Progress {
        all: count,
        ended,
        void,
        ..
    } = Progress::of(runs.clone());
    let settings = page.lines.len();
    let mut facts = vec![html! {
        @if ended == count { b { (count) } " runs of " }
        @else { b { (ended) } " of " b { (count) } " runs have ended, of " }
        b { (settings) } " settings"
    }];
    if void > 0 {
        facts.push(html! { b { (void) } " of them are void and do not count" });
    }
    let seeds = distinct(runs.map(|run| run.seed));
    facts.push(html! { "seeds " b { (joined(&seeds)) } });
    if let Some(target) = page.target {
        let unit = all(page).find_map(|r| Some(r.validations.first()?.measure.unit.clone()));
        facts.push(html! {
            "target: " b { (goal(target, unit.as_deref())) } ", twice in a row, looked at every "
            (target.every_samples) " samples"
        });
    }
    facts
}

/// What the pace covers, and what it does not.
fn pace(page: &Page<'_>) -> Vec<Markup> {
    let mut paces: Vec<f64> = all(page).map(|r| r.config.step_seconds).collect();
    paces.sort_unstable_by(f64::total_cmp);
    paces.dedup();
    paces.retain(|pace| *pace > 0.0);
    if paces.is_empty() {
        return Vec::new();
    }
    let paces: Vec<String> = paces.iter().map(|pace| format!("{pace} s")).collect();
    let counts = distinct(all(page).map(|r| r.config.world_size() + r.config.cluster.servers));
    let hosts: Vec<_> = page.origin.hosts.iter().collect();
    let ran = page.lines.iter().flat_map(|line| &line.runs);
    let on = match hosts.as_slice() {
        [(host, count)] if **count == Progress::of(ran).ended => {
            let processes: Vec<String> = counts.iter().map(u32::to_string).collect();
            format!(
                ": each run did them with {} processes on {} cores of one machine",
                processes.join(" or "),
                host.cores
            )
        }
        _ => String::new(),
    };
    vec![html! {
        "pace on: the computation of a step lasts at least " b { (paces.join(", ")) }
        ". Reducing and exchanging have no pace" (on)
        "; what settings differ by there is partly the machine's"
    }]
}

/// Machines, versions, dates.
fn made(page: &Page<'_>) -> Vec<Markup> {
    let mut facts = Vec::new();
    let runs = page.lines.iter().flat_map(|line| &line.runs);
    let ended = Progress::of(runs).ended;
    for (host, count) in &page.origin.hosts {
        facts.push(html! {
            @if *count != ended { (count) " runs: " }
            (host.processor) ", " (host.cores) " cores, " (host.system)
        });
    }
    let spans = all(page).filter_map(span);
    let spans: Vec<(f64, f64)> = spans.collect();
    let first = spans
        .iter()
        .map(|span| span.0)
        .fold(f64::INFINITY, f64::min);
    let last = spans.iter().map(|span| span.1).fold(0.0, f64::max);
    if !spans.is_empty() {
        facts.push(match (date(first), date(last)) {
            (first, last) if first == last => html! { "run on " (first) " (UTC)" },
            (first, last) => html! { "run from " (first) " to " (last) " (UTC)" },
        });
    }
    if spans.len() > 1 {
        facts.push(match together(&spans) {
            1 => html! { "no two trained at the same time" },
            most => html! { "up to " (most) " trained at the same time" },
        });
    }
    if let Some(elsewhere) = &page.origin.trials {
        facts.push(html! {
            (elsewhere.count) " of " (elsewhere.all) " trials were not run here: "
            (elsewhere.table) " has them"
        });
    }
    let versions = |of: fn(&RunSummary) -> Option<&str>| {
        distinct(all(page).filter_map(move |r| of(&r.summary)))
    };
    for (name, versions) in [
        ("Tradewind", versions(|told| told.version.as_deref())),
        ("libtorch", versions(|told| told.libtorch.as_deref())),
    ] {
        let told = versions.join(", ");
        match versions.len() {
            0 => {}
            1 => facts.push(html! { (name) " " (told) }),
            _ => facts.push(html! { b { "made by different versions of " (name) ": " (told) } }),
        }
    }
    facts
}

/// When a run trained, seconds since the Unix epoch.
fn span(reading: &Reading) -> Option<(f64, f64)> {
    Some((reading.begun(), reading.records.last()?.wall))
}

/// The most that there are of at one time.
fn together(spans: &[(f64, f64)]) -> usize {
    let at = |begin: f64| {
        let there = spans
            .iter()
            .filter(|(from, to)| (*from..*to).contains(&begin));
        there.count()
    };
    let counts = spans.iter().map(|(from, _)| at(*from));
    counts.max().unwrap_or(0)
}

/// The day of a time since the Unix epoch, in the Gregorian calendar. Years are counted from March, so that
/// the day that may be missing is the last.
fn date(seconds: f64) -> String {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    let days = (seconds / 86_400.0).floor() as i64 + 719_468;
    let (era, day) = (
        days.div_euclid(DAYS_OF_400_YEARS),
        days.rem_euclid(DAYS_OF_400_YEARS),
    );
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + 400 * era + i64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, day) in [
            (0.0, "1970-01-01"),
            (951_782_400.0, "2000-02-29"),
            (951_868_799.0, "2000-02-29"),
            (951_868_800.0, "2000-03-01"),
            (1_767_225_599.0, "2025-12-31"),
            (4_107_542_400.0, "2100-03-01"),
        ] {
            assert_eq!(date(seconds), day);
        }
    }

    #[test]
    fn runs_that_follow_each_other_were_not_together() {
        assert_eq!(together(&[(0.0, 1.0), (1.0, 2.0)]), 1);
        assert_eq!(
            together(&[(0.0, 9.0), (1.0, 2.0), (3.0, 5.0), (4.0, 6.0)]),
            3
        );
    }
}
