//! What is compared, as all parts of its section of the page need it.

use maud::{Markup, html};

use crate::file::{Goal, Target};
use crate::line::{Line, Progress, Run};
use crate::reading::Reading;

/// So many settings have colours that can be told apart; where there are more, marks help.
const COLORS: usize = 6;
const MARKS: [char; 4] = ['●', '▲', '■', '◆'];

/// Settings that are compared with each other.
#[derive(Clone, Debug)]
pub(super) struct Panel<'a> {
    /// Empty if it is the only one.
    pub(super) name: String,
    pub(super) lines: Vec<&'a Line>,
    /// Names of all settings of the page.
    pub(super) labels: &'a [&'a str],
    pub(super) target: Option<&'a Target>,
    pub(super) number: usize,
}

impl Panel<'_> {
    /// The number of a setting: its colour.
    pub(super) fn index(&self, line: &Line) -> usize {
        let own = self.labels.iter().position(|label| *label == line.label);
        own.expect("made from all lines")
    }

    /// What a setting's curve looks like.
    pub(super) fn class(&self, line: &Line) -> String {
        let dashed = if line.synchronous { " dashed" } else { "" };
        format!("curve{dashed} s{}", self.index(line))
    }

    /// What stands along it.
    pub(super) fn mark(&self, line: &Line) -> Option<char> {
        let many = self.labels.len() > COLORS;
        many.then(|| MARKS[self.index(line) % MARKS.len()])
    }

    /// What its charts lack, if anything.
    pub(super) fn not_drawn(&self) -> Option<String> {
        let runs = self.lines.iter().flat_map(|line| &line.runs);
        match Progress::of(runs).failed {
            0 => None,
            1 => Some("1 run diverged and is not drawn".to_owned()),
            failed => Some(format!("{failed} runs diverged and are not drawn")),
        }
    }

    /// Name and unit of what is measured on the validation split, as the first run that has one tells.
    pub(super) fn metric(&self) -> Option<(String, String)> {
        readings_of(self).find_map(|reading| {
            let at_end = reading.summary.metric.as_ref();
            let along = reading.validations.first().map(|v| &v.measure);
            match (along, at_end) {
                (Some(measure), _) => Some((measure.name.clone(), measure.unit.clone())),
                (None, Some(metric)) => {
                    let measure = &metric.validation;
                    Some((measure.name.clone(), measure.unit.clone()))
                }
                (None, None) => None,
            }
        })
    }
}

/// The runs of a setting that count.
pub(super) fn readings(line: &Line) -> impl Iterator<Item = &Reading> {
    line.runs.iter().filter_map(Run::reading)
}

/// All runs of a panel that count.
pub(super) fn readings_of<'a>(panel: &Panel<'a>) -> impl Iterator<Item = &'a Reading> {
    panel.lines.iter().flat_map(|line| readings(line))
}

/// Such as `validation RMSE ≤ 0.8 K`.
pub(super) fn goal(target: &Target, unit: Option<&str>) -> String {
    let sign = match target.goal {
        Goal::AtMost(_) => '≤',
        Goal::AtLeast(_) => '≥',
    };
    let unit = unit
        .filter(|u| !u.is_empty())
        .map_or(String::new(), |u| format!(" {u}"));
    let (metric, limit) = (&target.metric, target.goal.limit());
    format!("{metric} {sign} {limit}{unit}")
}

/// What the validation's axis says.
pub(super) fn validation_label(panel: &Panel<'_>) -> String {
    let (name, unit) = panel.metric().unwrap_or_default();
    match unit.is_empty() {
        true => name,
        false => format!("{name} ({unit})"),
    }
}

/// What the lines of some settings look like.
pub(super) fn legend_of(panel: &Panel<'_>, lines: &[&Line]) -> Markup {
    html! {
        @for line in lines {
            @let index = panel.index(line);
            span class={ "chip s" (index) } {
                i.sync[line.synchronous] {}
                @if let Some(mark) = panel.mark(line) {
                    b class={ "mark s" (index) } { (mark) }
                }
                (line.label)
            }
        }
    }
}
