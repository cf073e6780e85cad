//! What a comparison comes to, in a sentence.

use std::fmt::Write;

use tradewind_common::record::Better;

use super::panel::{Panel, goal, readings_of};
use super::svg::escape;
use crate::line::{Line, Progress};
use crate::stats::Estimate;

/// Whether any setting was sooner than the best synchronous one, and by how much.
pub(super) fn verdict(panel: &Panel<'_>) -> String {
    let progress = Progress::of(panel.lines.iter().flat_map(|line| &line.runs));
    let text = match (progress.is_complete(), panel.target) {
        (false, _) => unfinished(progress),
        (true, None) => return String::new(),
        (true, Some(target)) => {
            let name = goal(target, panel.metric().map(|m| m.1).as_deref());
            finished(panel, &name)
        }
    };
    format!("<p class=\"verdict\">{text}</p>")
}

/// What is still to come may change everything.
fn unfinished(progress: Progress) -> String {
    let Progress {
        all, ended, void, ..
    } = progress;
    let void = match void {
        0 => String::new(),
        void => format!(" (void: {void})"),
    };
    format!("Not finished: <b>{ended} of {all}</b> runs have ended{void}.")
}

fn finished(panel: &Panel<'_>, name: &str) -> String {
    let Some(best) = panel.lines.iter().find(|line| line.sums.best_synchronous) else {
        return without_baseline(panel, name);
    };
    let after = |line: &Line| {
        let seconds = line.sums.seconds.map_or(f64::NAN, |seconds| seconds.mean);
        format!("<b>{seconds:.1} s</b>")
    };
    let own = |line: &Line| format!("<b>{}</b>", escape(&line.label));
    let Some((line, sooner)) = first(panel) else {
        let others = panel.lines.iter().filter(|line| !line.sums.baseline);
        let why = match others.clone().any(|line| line.sums.seconds.is_some()) {
            true => "those that did as well have no seed in common with it",
            false => "no other setting did in all of its runs",
        };
        let (best, after) = (own(best), after(best));
        return format!("{best} reached {name} after {after}; {why}.");
    };
    let mut text = match (sooner.interval, sooner.mean > 1.0) {
        (Some(_), true) if sooner.excludes(1.0) => format!(
            "{} reached {name} {} than the best synchronous setting, {}: after {}, not {}",
            own(line),
            times(sooner),
            own(best),
            after(line),
            after(best),
        ),
        (Some(_), _) => format!(
            "No setting was distinguishably sooner than the best synchronous one, {}, which reached {name} after {}; the nearest, {}, {} {}",
            own(best),
            after(best),
            own(line),
            if sooner.mean > 1.0 { "was" } else { "took" },
            times(sooner),
        ),
        (None, true) => format!(
            "{} reached {name} {} than the best synchronous setting, {}: after {}, not {}; one seed has no interval that would say how sure that is",
            own(line),
            times(sooner),
            own(best),
            after(line),
            after(best),
        ),
        (None, false) => format!(
            "{} reached {name} after {}, and no setting was sooner; the nearest, {}, took {}; one seed has no interval that would say how sure that is",
            own(best),
            after(best),
            own(line),
            times(sooner),
        ),
    };
    text += &held_out(panel, line);
    text + "."
}

/// Nobody to be compared with.
fn without_baseline(panel: &Panel<'_>, name: &str) -> String {
    let seconds = |line: &&&Line| line.sums.seconds.map_or(f64::INFINITY, |s| s.mean);
    let least = panel
        .lines
        .iter()
        .filter(|line| line.sums.seconds.is_some());
    match least.min_by(|a, b| seconds(a).total_cmp(&seconds(b))) {
        None => format!("No setting reached <b>{name}</b> in all of its runs."),
        Some(line) => format!(
            "No synchronous setting reached <b>{name}</b> in all of its runs. Of those that did, <b>{}</b> has the least mean time, <b>{:.1} s</b>.",
            escape(&line.label),
            seconds(&line),
        ),
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
fn times(sooner: Estimate) -> String {
    let (ratio, word) = match sooner.mean > 1.0 {
        true => (sooner, "times sooner"),
        false => (sooner.inverse(), "times as long"),
    };
    let interval = ratio.interval.map_or(String::new(), |(low, high)| {
        format!(" (95 % interval {low:.2} to {high:.2})")
    });
    format!("<b>{:.2} {word}</b>{interval}", ratio.mean)
}

/// What its haste costs on the held-out split, or brings, where that is sure.
fn held_out(panel: &Panel<'_>, line: &Line) -> String {
    let metric = readings_of(panel).find_map(|r| r.summary.metric.as_ref());
    let difference = line.sums.against.filter(|against| against.excludes(0.0));
    let (Some(metric), Some(difference)) = (metric, difference) else {
        return String::new();
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
    let mut text = format!("{joint} its {} is", escape(&metric.name));
    let _ = write!(
        text,
        " <b>{size:.digits$}{} {}</b> (95 % interval {low:.digits$} to {high:.digits$})",
        escape(&unit),
        if higher { "higher" } else { "lower" },
    );
    text
}
