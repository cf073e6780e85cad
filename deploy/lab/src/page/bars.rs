//! Where the time went: a stacked bar for each setting.

use maud::{Markup, html};

use super::panel::{Panel, readings};
use super::svg::{At, Svg};
use crate::reading::{Reading, Times};
use tradewind_report::axes::Scale;

const WIDTH: f64 = 1320.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 1300.0;
const ROW: f64 = 28.0;

/// Name, class, and which part of the times it is.
type Part = (&'static str, &'static str, fn(&Times) -> f64);

/// What a rank does, in the order of a step.
const PARTS: [Part; 5] = [
    ("waiting for data", "reading", |t| t.reading),
    ("computing", "computing", |t| t.computing),
    ("reducing", "reducing", |t| t.reducing),
    ("exchanging", "exchanging", |t| t.exchanging),
    ("waiting", "waiting", |t| t.waiting),
];

/// What an average rank spent its time on in each setting, means over the seeds.
pub(super) fn times(panel: &Panel<'_>) -> Markup {
    let rows = panel.lines.iter().filter_map(|line| {
        let times: Vec<Times> = readings(line).map(Reading::times).collect();
        let mean = |of: fn(&Times) -> f64| times.iter().map(of).sum::<f64>() / times.len() as f64;
        let mean = Times {
            reading: mean(|t| t.reading),
            computing: mean(|t| t.computing),
            reducing: mean(|t| t.reducing),
            exchanging: mean(|t| t.exchanging),
            waiting: mean(|t| t.waiting),
        };
        (!times.is_empty()).then(|| (line.label.clone(), mean))
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return Markup::default();
    }
    html! {
        h3 { "Where the time went" }
        p.legend {
            // What the colours mean.
            @for (name, class, _) in PARTS {
                span.chip { i.part.(class) {} (name) }
            }
        }
        (bars(&rows))
    }
}

/// Bars of seconds a rank.
fn bars(rows: &[(String, Times)]) -> Markup {
    let sum = |times: &Times| PARTS.iter().map(|(.., of)| of(times)).sum::<f64>();
    let most = rows.iter().map(|(_, times)| sum(times)).fold(0.0, f64::max);
    let x = Scale::Linear(0.0, if most > 0.0 { most } else { 1.0 });
    let place = |seconds: f64| LEFT + x.position(seconds) * (RIGHT - LEFT);
    let bottom = 8.0 + ROW * rows.len() as f64;
    let mut svg = Svg::new(WIDTH, bottom + 44.0);
    for tick in x.ticks(6) {
        let at = place(tick.value);
        svg.line(&[(at, 4.0), (at, bottom)], "class=\"grid\"");
        svg.text((at, bottom + 16.0), At::Middle, "tick", &tick.label);
    }
    svg.text(
        ((LEFT + RIGHT) / 2.0, bottom + 38.0),
        At::Middle,
        "label",
        "seconds of an average rank",
    );
    for (row, (label, times)) in rows.iter().enumerate() {
        let top = 8.0 + ROW * row as f64;
        svg.text((LEFT - 10.0, top + 16.0), At::End, "row", label);
        let (mut from, all) = (0.0, sum(times));
        for (name, class, of) in PARTS {
            let (seconds, begin) = (of(times), place(from));
            let title = format!(
                "{label}: {name} {seconds:.1} s, {:.0} %",
                100.0 * seconds / all
            );
            let size = (place(from + seconds) - begin, ROW - 9.0);
            let style = format!("class=\"part {class}\"");
            svg.rectangle((begin, top + 1.0), size, &style, &title);
            if size.0 > 44.0 {
                let share = format!("{:.0} %", 100.0 * seconds / all);
                let at = (begin + size.0 / 2.0, top + 16.0);
                svg.text(at, At::Middle, &format!("share on-{class}"), &share);
            }
            from += seconds;
        }
    }
    svg.finish("where the time went")
}
