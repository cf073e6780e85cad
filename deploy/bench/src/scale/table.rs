//! What the samples of `bench scale` come to: JSON and a table.

use std::fmt::Write;

use serde::Serialize;

use super::{Figure, Unit};

/// The figures of one number of groups.
#[derive(Clone, Debug)]
pub(super) struct Scaled {
    pub(super) groups: u32,
    pub(super) figures: Vec<Figure>,
}

/// What `--json` prints.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ScaleReport {
    /// Of which core.
    of: &'static str,
    groups: Vec<u32>,
    rows: Vec<Row>,
}

/// One figure by number of groups, in the order of `groups`.
#[derive(Clone, Debug, Serialize)]
struct Row {
    what: &'static str,
    unit: &'static str,
    values: Vec<f64>,
}

impl ScaleReport {
    pub(super) fn new(of: &'static str, scaled: Vec<Scaled>) -> Self {
        let first = scaled.first().map(|first| &first.figures[..]);
        let row = |(number, figure): (usize, &Figure)| Row {
            what: figure.what,
            unit: figure.unit.text(),
            values: scaled.iter().map(|s| s.figures[number].value).collect(),
        };
        Self {
            of,
            groups: scaled.iter().map(|scaled| scaled.groups).collect(),
            rows: (first.unwrap_or_default().iter().enumerate())
                .map(row)
                .collect(),
        }
    }

    pub(super) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and names")
    }

    /// For people.
    pub(super) fn table(&self) -> String {
        let mut text = format!("{:36}", format!("{}, groups:", self.of));
        for groups in &self.groups {
            let _ = write!(text, "{groups:>10}");
        }
        text += "   last over first\n";
        for row in &self.rows {
            let what = match row.unit {
                "" => row.what.to_owned(),
                unit => format!("{}, {unit}", row.what),
            };
            // Names of units have letters of more than a byte.
            let padding = 36_usize.saturating_sub(what.chars().count());
            let _ = write!(text, "{what}{:padding$}", "");
            for value in &row.values {
                let _ = write!(text, "{:>10}", number(*value));
            }
            let over = match (row.values.first(), row.values.last()) {
                (Some(first), Some(last)) if *first > 0.0 => format!("{:.2}", last / first),
                _ => String::new(),
            };
            let _ = writeln!(text, "{over:>18}");
        }
        text.trim_end().to_owned()
    }
}

impl Figure {
    pub(super) fn microseconds(what: &'static str, value: f64) -> Self {
        let unit = Unit::Microseconds;
        Self { what, unit, value }
    }

    pub(super) fn seconds(what: &'static str, value: f64) -> Self {
        let unit = Unit::Seconds;
        Self { what, unit, value }
    }

    pub(super) fn bytes(what: &'static str, value: f64) -> Self {
        let unit = Unit::Bytes;
        Self { what, unit, value }
    }

    pub(super) fn count(what: &'static str, value: f64) -> Self {
        let unit = Unit::Count;
        Self { what, unit, value }
    }
}

/// Three digits that matter.
fn number(value: f64) -> String {
    match value {
        0.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_all_numbers_of_groups_and_what_they_grow_by() {
        let scaled = |groups, join, written| Scaled {
            groups,
            figures: vec![
                Figure::microseconds("join", join),
                Figure::bytes("join: written", written),
                Figure::count("join: orders", 0.0),
            ],
        };
        let report = ScaleReport::new(
            "coordinator",
            vec![scaled(10, 2.0, 300.0), scaled(10_000, 3.0, 450.4)],
        );
        let want = "\
coordinator, groups:                        10     10000   last over first
join, µs                                  2.00      3.00              1.50
join: written, B                           300       450              1.50
join: orders                              0.00      0.00";
        assert_eq!(report.table(), want);
        assert!(report.json().contains("\"what\": \"join: written\""));
    }
}
