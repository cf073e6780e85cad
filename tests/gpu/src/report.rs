//! What a part of the check finds, told line by line, so that what was found before a part hangs
//! is not lost; and the report that is made of it.

use std::io::Write;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A line of a part's standard output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Line {
    /// Something that was measured.
    Figure(String, Value),
    /// Something that is not as it must be.
    Fault(String),
    /// The part has looked at everything.
    Done,
}

/// Tells the lines of a part.
#[derive(Debug, Default)]
pub(crate) struct Teller;

impl Teller {
    /// A figure; its name ends with the unit, where it has one.
    pub(crate) fn figure(&self, name: impl Into<String>, value: impl Into<Value>) {
        say(&Line::Figure(name.into(), value.into()));
    }

    /// Something that is not as it must be.
    pub(crate) fn fault(&self, what: impl Into<String>) {
        say(&Line::Fault(what.into()));
    }

    /// A fault unless `holds`.
    pub(crate) fn demand(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.fault(what());
        }
    }

    /// The part has come to its end.
    pub(crate) fn done(&self) {
        say(&Line::Done);
    }
}

fn say(line: &Line) {
    let text = serde_json::to_string(line).expect("a line is plain data");
    let mut out = std::io::stdout().lock();
    // Who listens may be gone; then nobody is interested.
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// What came of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// Everything is as it must be.
    Pass,
    /// Something is not.
    Fail,
    /// It could not look at everything.
    Error,
}

/// All that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Report {
    /// Version of the check.
    pub(crate) check: &'static str,
    /// What was computed on.
    pub(crate) device: &'static str,
    /// The GPU's name.
    pub(crate) gpu: Option<String>,
    /// Cores of the CPU.
    pub(crate) cores: usize,
    /// Whether all parts that were asked for are there.
    pub(crate) complete: bool,
    /// How long they took.
    pub(crate) seconds: f64,
    /// In their order.
    pub(crate) parts: Vec<Part>,
}

impl Report {
    /// The worst of its parts; an error without any.
    pub(crate) fn verdict(&self) -> Verdict {
        let parts = self.parts.iter().map(|part| part.verdict);
        let worst = parts.max_by_key(|verdict| *verdict as u8);
        worst.unwrap_or(Verdict::Error)
    }

    /// As JSON, with the verdict.
    pub(crate) fn text(&self) -> serde_json::Result<String> {
        let mut report = serde_json::to_value(self)?;
        report["verdict"] = serde_json::to_value(self.verdict())?;
        serde_json::to_string_pretty(&report)
    }
}

/// A part of the report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Part {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it looks at.
    pub(crate) about: &'static str,
    /// What came of it.
    pub(crate) verdict: Verdict,
    /// Why it is not `pass`.
    pub(crate) reason: Option<String>,
    /// How long it took.
    pub(crate) seconds: f64,
    /// How long it might have taken.
    pub(crate) limit_seconds: u64,
    /// What was measured.
    pub(crate) figures: Map<String, Value>,
}

/// How a part's process ended, besides what it told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// In order.
    Ended,
    /// Otherwise: with these last words.
    Failed(String),
    /// It was ended after its limit.
    OutOfTime,
}

/// The verdict on what a part has told, and its figures.
pub(crate) fn judge(text: &str, end: &End) -> (Verdict, Option<String>, Map<String, Value>) {
    let mut figures = Map::new();
    let (mut faults, mut done) = (Vec::new(), false);
    for line in text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
    {
        match line {
            Line::Figure(name, value) => drop(figures.insert(name, value)),
            Line::Fault(what) => faults.push(what),
            Line::Done => done = true,
        }
    }
    let why = match end {
        End::Ended if done => None,
        End::Ended => Some("it ended before its end".to_owned()),
        End::Failed(words) => Some(words.clone()),
        End::OutOfTime => Some("it ran out of time".to_owned()),
    };
    let verdict = match (&why, faults.is_empty()) {
        (Some(_), _) => Verdict::Error,
        (None, true) => Verdict::Pass,
        (None, false) => Verdict::Fail,
    };
    faults.extend(why);
    let reason = (!faults.is_empty()).then(|| faults.join("; "));
    (verdict, reason, figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts() {
        let line = |line: &Line| serde_json::to_string(line).unwrap();
        let (figure, fault, done) = (
            line(&Line::Figure("x_seconds".into(), 1.5.into())),
            line(&Line::Fault("wrong sum".into())),
            line(&Line::Done),
        );
        let check = |lines: &[&String], end: End, verdict, reason: Option<&str>| {
            let text: String = lines
                .iter()
                .flat_map(|line| [line.as_str(), "\n"])
                .collect();
            let (got, why, figures) = judge(&text, &end);
            assert_eq!(
                (got, why.as_deref()),
                (verdict, reason),
                "{lines:?} {end:?}"
            );
            assert_eq!(
                figures.len(),
                lines.iter().filter(|line| **line == &figure).count()
            );
        };
        let failed = || End::Failed("killed".into());
        check(&[&figure, &done], End::Ended, Verdict::Pass, None);
        check(
            &[&figure, &fault, &done],
            End::Ended,
            Verdict::Fail,
            Some("wrong sum"),
        );
        check(
            &[&figure],
            End::Ended,
            Verdict::Error,
            Some("it ended before its end"),
        );
        check(&[&figure, &done], failed(), Verdict::Error, Some("killed"));
        check(
            &[&fault],
            failed(),
            Verdict::Error,
            Some("wrong sum; killed"),
        );
        check(
            &[&figure],
            End::OutOfTime,
            Verdict::Error,
            Some("it ran out of time"),
        );
        check(
            &[&"noise".to_owned(), &done],
            End::Ended,
            Verdict::Pass,
            None,
        );
    }
}
