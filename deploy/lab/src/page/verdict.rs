//! What a comparison comes to, in a sentence.

use maud::{Markup, html};
use tradewind_common::record::Better;

use super::panel::{Panel, goal, readings_of};
use crate::line::{Line, Progress};
use crate::stats::Estimate;

/// Whether any setting was sooner than the best synchronous one, and by how much.
pub(super) fn verdict(panel: &Panel<'_>) -> Markup {
    let progress = Progress::of(panel.lines.iter().flat_map(|line| &line.runs));
    let text = match (progress.is_complete(), panel.target) {
        (false, _) => unfinished(progress),
        (true, None) => return Markup::default(),
        (true, Some(target)) => {
            let name = goal(target, panel.metric().map(|m| m.1).as_deref());
            finished(panel, &name)
        }
    };
    html! { p.verdict { (text) } }
}

/// What is still to come may change everything.
fn unfinished(progress: Progress) -> Markup {
    let Progress {
        all, ended, void, ..
    } = progress;
    html! {
        "Not finished: " b { (ended) " of " (all) } " runs have ended"
        @if void > 0 { " (void: " (void) ")" } "."
    }
}

fn finished(panel: &Panel<'_>, name: &str) -> Markup {
    let Some(best) = panel.lines.iter().find(|line| line.sums.best_synchronous) else {
        return without_baseline(panel, name);
    };
    let after = |line: &Line| {
        let seconds = line.sums.seconds.map_or(f64::NAN, |seconds| seconds.mean);
        html! { b { (format_args!("{seconds:.1} s")) } }
    };
    let own = |line: &Line| html! { b { (line.label) } };
    let Some((line, sooner)) = first(panel) else {
        let others = panel.lines.iter().filter(|line| !line.sums.baseline);
        let why = match others.clone().any(|line| line.sums.seconds.is_some()) {
            true => "those that did as well have no seed in common with it",
            false => "no other setting did in all of its runs",
        };
        return html! { (own(best)) " reached " (name) " after " (after(best)) "; " (why) "." };
    };
    let unsure = "; one seed has no interval that would say how sure that is";
    let is_sooner = sooner.mean > 1.0;
    html! {
        @if is_sooner && (sooner.interval.is_none() || sooner.excludes(1.0)) {
            (own(line)) " reached " (name) " " (times(sooner)) " than the best synchronous setting, "
            (own(best)) ": after " (after(line)) ", not " (after(best))
            @if sooner.interval.is_none() { (unsure) }
        } @else if sooner.interval.is_some() {
            "No setting was distinguishably sooner than the best synchronous one, " (own(best))
            ", which reached " (name) " after " (after(best)) "; the nearest, " (own(line)) ", "
            (if is_sooner { "was" } else { "took" }) " " (times(sooner))
        } @else {
            (own(best)) " reached " (name) " after " (after(best))
            ", and no setting was sooner; the nearest, " (own(line)) ", took " (times(sooner)) (unsure)
        }
        (held_out(panel, line)) "."
    }
}

/// Nobody to be compared with.
fn without_baseline(panel: &Panel<'_>, name: &str) -> Markup {
    let seconds = |line: &&&Line| line.sums.seconds.map_or(f64::INFINITY, |s| s.mean);
    let least = panel
        .lines
        .iter()
        .filter(|line| line.sums.seconds.is_some());
    match least.min_by(|a, b| seconds(a).total_cmp(&seconds(b))) {
        None => html! { "No setting reached " b { (name) } " in all of its runs." },
        Some(line) => html! {
            "No synchronous setting reached " b { (name) }
            " in all of its runs. Of those that did, " b { (line.label) }
            " has the least mean time, " b { (format_args!("{:.1} s", seconds(&line))) } "."
        },
    }
}

/// The setting that was sooner by most, of those of which that is sure; without any, of all.
fn first<'a>(panel: &Panel<'a>) -> Option<(&'a Line, Estimate)> {
    let rivals = panel
        .lines
        .iter()
        .filter(|line| !line.sums.best_synchronous);
    let rivals = rivals.filter_map(|line| Some((*line, line.sums.sooner?)));
    let sure = |sooner: Estimate| sooner.mean > 1.0 && sooner.excludes(1.0);
    let order = |sooner: Estimate| (sure(sooner), sooner.mean);
    rivals.max_by(|(_, a), (_, b)| {
        let (a, b) = (order(*a), order(*b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    })
}

/// Such as `1.30 times sooner (95 % interval 1.10 to 1.50)`; of what was slower `1.02 times as long`.
fn times(sooner: Estimate) -> Markup {
    let (ratio, word) = match sooner.mean > 1.0 {
        true => (sooner, "times sooner"),
        false => (sooner.inverse(), "times as long"),
    };
    html! {
        b { (format_args!("{:.2} {word}", ratio.mean)) }
        @if let Some((low, high)) = ratio.interval {
            (format_args!(" (95 % interval {low:.2} to {high:.2})"))
        }
    }
}

/// What its haste costs on the held-out split, or brings, where that is sure.
fn held_out(panel: &Panel<'_>, line: &Line) -> Markup {
    let metric = readings_of(panel).find_map(|r| r.summary.metric.as_ref());
    let difference = line.sums.against.filter(|against| against.excludes(0.0));
    let (Some(metric), Some(difference)) = (metric, difference) else {
        return Markup::default();
    };
    let higher = difference.mean > 0.0;
    let joint = match metric.better {
        Some(better) if (better == Better::Higher) == higher => ", and",
        Some(_) => ", but",
        None => ";",
    };
    let unit = match metric.unit.as_str() {
        "" => String::new(),
        "%" => " points".to_owned(),
        unit => format!(" {unit}"),
    };
    let (low, high) = difference.interval.unwrap_or_default();
    let (low, high) = (low.abs().min(high.abs()), low.abs().max(high.abs()));
    let size = difference.mean.abs();
    let digits = (1 - size.log10().floor() as i32).clamp(0, 6) as usize;
    html! {
        (joint) " its " (metric.name) " is "
        b { (format_args!("{size:.digits$}{unit} {}", if higher { "higher" } else { "lower" })) }
        (format_args!(" (95 % interval {low:.digits$} to {high:.digits$})"))
    }
}
