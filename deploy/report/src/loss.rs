//! `loss.png` and `loss.svg`: the training loss of every group over wall time and over updates.

use std::collections::BTreeMap;
use std::path::Path;

use plotters::style::RGBColor;
use tradewind_common::record::StepRecord;

use super::axes::{LABEL_SIZE, Panel, Scale, Tick};
use super::picture::{Anchor, Picture, text_width};
use super::{GREY, INK, PAPER, ReportError, blend, series_color};

const SIZE: (u32, u32) = (1400, 560);
/// A longer line of a group is thinned: more points than pixels show nothing more.
const POINTS_MAX: usize = 1600;
/// Groups named in the legend; the remaining ones are counted.
const LEGEND_MAX: usize = 11;
/// A running mean spans this part of a group's steps.
const SMOOTHED_PART: usize = 25;
/// Losses that span more than this factor are shown on a logarithmic axis.
const LOG_FACTOR: f64 = 20.0;

/// Draws the losses as `png` and `svg`. Steps without a finite loss are left out.
pub fn draw_loss(records: &[StepRecord], png: &Path, svg: &Path) -> Result<(), ReportError> {
    let picture = loss_picture(records);
    picture.write_png(png)?;
    picture.write_svg(svg)
}

/// The steps of one group in the order of its clocks.
struct Series {
    group: u32,
    color: RGBColor,
    /// Wall seconds since the first record of the run, updates, loss.
    steps: Vec<(f64, f64, f64)>,
    /// The running mean of the loss.
    smooth: Vec<f64>,
}

fn loss_picture(records: &[StepRecord]) -> Picture {
    let series = series(records);
    let mut picture = Picture::new(SIZE.0, SIZE.1);
    let (top, bottom) = (92.0, 488.0);
    let (left, middle, right) = ((86.0, 680.0), 770.0, 1370.0);
    picture.text((left.0, 30.0), Anchor::Start, 23.0, INK, "Training loss");
    if series.is_empty() {
        let center = (f64::from(SIZE.0) / 2.0, f64::from(SIZE.1) / 2.0);
        let text = "no step with a finite loss was recorded";
        picture.text(center, Anchor::Middle, LABEL_SIZE, GREY, text);
        return picture;
    }
    let caption = "thin: every step; bold: running mean of a group's steps";
    picture.text((left.0, 62.0), Anchor::Start, 15.0, GREY, caption);
    draw_legend(&mut picture, &series, right);

    let all = || series.iter().flat_map(|s| &s.steps);
    let loss = loss_scale(all().map(|step| step.2));
    let (unit, seconds) = time_unit(all().map(|step| step.0).fold(0.0, f64::max));
    let panels = [
        (left, format!("wall time since the first step ({unit})")),
        (
            (middle, right),
            "updates applied to the run (count)".to_owned(),
        ),
    ];
    for (index, (across, label)) in panels.into_iter().enumerate() {
        let along = |step: &(f64, f64, f64)| match index {
            0 => step.0 / seconds,
            _ => step.1,
        };
        let last = all().map(along).fold(0.0, f64::max);
        let panel = Panel {
            across,
            down: (top, bottom),
            x: Scale::Linear(0.0, if last > 0.0 { last * 1.02 } else { 1.0 }),
            y: loss,
        };
        draw_panel(&mut picture, &panel, &series, along, &label);
    }
    picture
}

fn series(records: &[StepRecord]) -> Vec<Series> {
    let finite = records.iter().filter(|r| r.wall.is_finite());
    let start = finite.map(|r| r.wall).fold(f64::INFINITY, f64::min);
    let mut groups: BTreeMap<u32, Vec<(u64, f64, f64, f64)>> = BTreeMap::new();
    for record in records {
        let Some(loss) = record.loss else { continue };
        if loss.is_finite() && record.wall.is_finite() {
            let step = (
                record.clock,
                record.wall - start,
                record.updates as f64,
                loss,
            );
            groups.entry(record.group).or_default().push(step);
        }
    }
    let count = groups.len();
    let colored = groups.into_iter().enumerate();
    colored
        .map(|(index, (group, mut steps))| {
            steps.sort_by_key(|step| step.0);
            let steps: Vec<_> = steps.into_iter().map(|s| (s.1, s.2, s.3)).collect();
            let losses: Vec<f64> = steps.iter().map(|step| step.2).collect();
            Series {
                group,
                color: series_color(index, count),
                smooth: running_mean(&losses, losses.len() / SMOOTHED_PART / 2),
                steps,
            }
        })
        .collect()
}

/// Means over `half` neighbours on each side. Near the start the window shrinks on both sides, so
/// that a steep first fall is not flattened; at the end only on the far side, so that the last
/// value is a mean and not one noisy step.
pub fn running_mean(values: &[f64], half: usize) -> Vec<f64> {
    let mut sums = vec![0.0];
    for value in values {
        sums.push(sums[sums.len() - 1] + value);
    }
    (0..values.len())
        .map(|i| {
            let before = i.min(half);
            let after = before.min(values.len() - 1 - i);
            (sums[i + after + 1] - sums[i - before]) / (before + after + 1) as f64
        })
        .collect()
}

fn loss_scale(losses: impl Iterator<Item = f64>) -> Scale {
    let (low, high) = losses.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), loss| {
        (l.min(loss), h.max(loss))
    });
    if low > 0.0 && high / low > LOG_FACTOR {
        let margin = (high / low).powf(0.04);
        return Scale::Log(low / margin, high * margin);
    }
    let margin = match (high - low) * 0.05 {
        margin if margin > 1e-9 * high.abs() => margin,
        _ => (high.abs() * 0.05).max(1e-6),
    };
    // Where zero is near, starting there shows how much of the loss is gone.
    let from = if low >= 0.0 && low < 0.4 * high {
        0.0
    } else {
        low - margin
    };
    Scale::Linear(from, high + margin)
}

/// A unit in which so many seconds are easily read, and its length in seconds.
fn time_unit(seconds: f64) -> (&'static str, f64) {
    match seconds {
        s if s <= 7_200.0 => ("s", 1.0),
        s if s <= 172_800.0 => ("h", 3_600.0),
        _ => ("d", 86_400.0),
    }
}

fn draw_panel(
    picture: &mut Picture,
    panel: &Panel,
    series: &[Series],
    along: impl Fn(&(f64, f64, f64)) -> f64,
    label: &str,
) {
    let ticks: [Vec<Tick>; 2] = [panel.x.ticks(8), panel.y.ticks(7)];
    panel.draw_grid(picture, &ticks[0], &ticks[1]);
    // All thin lines lie under all bold ones: the trend of one group is not hidden by the noise
    // of another.
    for group in series {
        let raw = group.steps.iter().map(|s| panel.pixel(along(s), s.2));
        let faint = blend(PAPER, group.color, 0.32);
        picture.line(thin(raw.collect()), 1.0, faint);
    }
    for group in series {
        let means = group.steps.iter().zip(&group.smooth);
        let points: Vec<_> = means
            .map(|(s, &mean)| panel.pixel(along(s), mean))
            .collect();
        if let &[(x, y)] = points.as_slice() {
            // A line through one point shows nothing.
            picture.fill((x - 3.0, y - 3.0), (x + 3.0, y + 3.0), group.color);
        }
        picture.line(thin(points), 2.4, group.color);
    }
    panel.draw_frame(picture, &ticks[0], &ticks[1]);
    let center = (panel.across.0 + panel.across.1) / 2.0;
    let below = (center, panel.down.1 + 48.0);
    picture.text(below, Anchor::Middle, LABEL_SIZE, INK, label);
    let beside = (panel.across.0 - 66.0, (panel.down.0 + panel.down.1) / 2.0);
    let name = match panel.y {
        Scale::Linear(..) => "training loss",
        Scale::Log(..) => "training loss (log scale)",
    };
    picture.text(beside, Anchor::Upwards, LABEL_SIZE, INK, name);
}

/// At most about [`POINTS_MAX`] points: of every stretch the highest and the lowest remain.
fn thin(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let stretch = points.len().div_ceil(POINTS_MAX / 2);
    if stretch <= 2 {
        return points;
    }
    let mut kept = Vec::with_capacity(POINTS_MAX);
    for points in points.chunks(stretch) {
        let order = |a: &usize, b: &usize| points[*a].1.total_cmp(&points[*b].1);
        let low = (0..points.len()).min_by(order).unwrap_or(0);
        let high = (0..points.len()).max_by(order).unwrap_or(0);
        kept.push(points[low.min(high)]);
        if low != high {
            kept.push(points[low.max(high)]);
        }
    }
    kept
}

/// Rows of named colours above the panels, ending at `right`.
fn draw_legend(picture: &mut Picture, series: &[Series], right: f64) {
    const SIZE: f64 = 16.0;
    const SWATCH: f64 = 26.0;
    // More would reach the caption on the left.
    const ROW: usize = 6;
    let mut entries: Vec<(String, Option<RGBColor>)> = series
        .iter()
        .take(LEGEND_MAX)
        .map(|s| (format!("group {}", s.group), Some(s.color)))
        .collect();
    if series.len() > LEGEND_MAX {
        entries.push((format!("and {} more", series.len() - LEGEND_MAX), None));
    }
    let widest = entries.iter().map(|(name, _)| text_width(name, SIZE));
    let column = widest.fold(0.0, f64::max) + SWATCH + 30.0;
    let columns = entries.len().min(ROW);
    let left = right - columns as f64 * column + 22.0;
    for (index, (name, color)) in entries.into_iter().enumerate() {
        let x = left + (index % ROW) as f64 * column;
        let y = 30.0 + 32.0 * (index / ROW) as f64;
        if let Some(color) = color {
            picture.line(vec![(x, y), (x + SWATCH, y)], 3.0, color);
        }
        picture.text((x + SWATCH + 8.0, y), Anchor::Start, SIZE, INK, name);
    }
}

#[cfg(test)]
mod tests {
    use super::super::picture::{count_near, png_size};
    use super::*;
    use tradewind_common::record::fixture::run;

    #[test]
    fn both_pictures_show_every_group() {
        let folder = tempfile::tempdir().unwrap();
        let (png, svg) = (
            folder.path().join("loss.png"),
            folder.path().join("loss.svg"),
        );
        let records = run(3, 200);
        draw_loss(&records, &png, &svg).unwrap();
        assert_eq!(png_size(&std::fs::read(&png).unwrap()), SIZE);
        let svg = std::fs::read_to_string(&svg).unwrap();
        let pixels = loss_picture(&records).pixels().unwrap();
        for group in 0..3 {
            assert!(svg.contains(&format!("group {group}\n")));
            assert!(count_near(&pixels, series_color(group, 3)) > 500);
        }
        assert!(svg.contains("wall time since the first step (s)"));
        assert!(svg.contains("updates applied to the run (count)"));
    }

    #[test]
    fn any_records_make_a_picture() {
        let mut broken = run(1, 3);
        broken[0].loss = Some(f64::INFINITY);
        broken[1].wall = f64::NAN;
        let mut flat = run(2, 5);
        flat.iter_mut().for_each(|r| r.loss = Some(0.0));
        for records in [vec![], run(1, 1), broken, flat, run(40, 3)] {
            let pixels = loss_picture(&records).pixels().unwrap();
            let paper = count_near(&pixels, PAPER);
            assert!(paper > 100 && paper < pixels.len() / 3 - 500);
        }
    }

    #[test]
    fn the_axis_is_logarithmic_when_the_range_demands_it() {
        let cases: &[(&[f64], bool)] = &[
            (&[1.0, 0.2], false),
            (&[1.0, 0.001], true),
            (&[1.0, 0.0], false),
            (&[-1.0, 100.0], false),
            (&[3.0], false),
        ];
        for (losses, log) in cases {
            let scale = loss_scale(losses.iter().copied());
            assert_eq!(matches!(scale, Scale::Log(..)), *log, "{losses:?}");
            for &loss in *losses {
                assert!((0.0..=1.0).contains(&scale.position(loss)), "{scale:?}");
            }
        }
    }

    #[test]
    fn a_running_mean_keeps_the_first_value_and_averages_the_last() {
        let cases: &[(&[f64], usize, &[f64])] = &[
            (&[4.0, 2.0, 6.0], 0, &[4.0, 2.0, 6.0]),
            (&[9.0, 3.0, 3.0, 6.0], 1, &[9.0, 5.0, 4.0, 4.5]),
            (&[], 3, &[]),
        ];
        for (values, half, means) in cases {
            assert_eq!(&running_mean(values, *half), means);
        }
    }

    #[test]
    fn thinning_keeps_extremes() {
        let mut points: Vec<_> = (0..50_000).map(|i| (f64::from(i), 1.0)).collect();
        points[31_234].1 = 9.0;
        points[41_234].1 = -9.0;
        let kept = thin(points);
        assert!(kept.len() <= POINTS_MAX);
        assert!(kept.contains(&(31_234.0, 9.0)) && kept.contains(&(41_234.0, -9.0)));
        assert!(kept.is_sorted_by(|a, b| a.0 < b.0));
    }
}
