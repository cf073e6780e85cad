//! How often a delay or a lag occurred.

use std::collections::BTreeMap;

use maud::Markup;

use super::svg::{At, Svg};

const SIZE: (f64, f64) = (280.0, 96.0);
/// Left, top, right, bottom of the bars.
const FRAME: (f64, f64, f64, f64) = (8.0, 20.0, 272.0, 74.0);
/// Columns; a wider range is put together.
const COLUMNS: u64 = 24;

/// A column is no wider, however few there are.
const ACROSS_MAX: f64 = 22.0;

/// Counts by value.
pub(super) type Counts = BTreeMap<u64, u64>;

/// Columns of the share of each value, from 0 to `most`, which others that it is beside have, too.
pub(super) fn histogram(counts: &Counts, most: u64, index: usize, label: &str) -> Markup {
    let (left, top, right, bottom) = FRAME;
    let total: u64 = counts.values().sum();
    let width = (most / COLUMNS + 1).max(1);
    let columns = most / width + 1;
    let mut sums = vec![0u64; columns as usize];
    for (value, count) in counts {
        sums[((value / width) as usize).min(columns as usize - 1)] += count;
    }
    let highest = sums.iter().max().copied().unwrap_or(0).max(1);
    let across = ((right - left) / columns as f64).min(ACROSS_MAX);
    let mut svg = Svg::new(SIZE.0, SIZE.1);
    let mean = counts
        .iter()
        .map(|(v, n)| *v as f64 * *n as f64)
        .sum::<f64>()
        / total.max(1) as f64;
    let words = match total {
        0 => "none".to_owned(),
        _ => format!(
            "mean {mean:.1}, most {}",
            counts.keys().max().expect("not empty")
        ),
    };
    svg.text((left, 13.0), At::Start, "small", &words);
    svg.line(&[(left, bottom), (right, bottom)], "class=\"axis\"");
    for (column, sum) in sums.iter().enumerate() {
        let height = (bottom - top) * *sum as f64 / highest as f64;
        let first = column as u64 * width;
        let values = match width {
            1 => first.to_string(),
            _ => format!("{first} to {}", first + width - 1),
        };
        let share = 100.0 * *sum as f64 / total.max(1) as f64;
        let gap = if across > 5.0 { 1.5 } else { 0.0 };
        svg.rectangle(
            (left + across * column as f64, bottom - height),
            (across - gap, height),
            &format!("class=\"column s{index}\""),
            &format!("{values}: {share:.1} %"),
        );
    }
    let middle = |column: u64| left + across * (column as f64 + 0.5);
    svg.text((middle(0), bottom + 15.0), At::Middle, "tick", "0");
    if columns > 1 {
        let last = (columns - 1) * width;
        svg.text(
            (middle(columns - 1), bottom + 15.0),
            At::Middle,
            "tick",
            &last.to_string(),
        );
    }
    svg.finish(label)
}
