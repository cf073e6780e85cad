//! What the page of an experiment draws: charts, bars and histograms of runs of which all is known.

use super::analysis::{line, summed};
use crate::line::Line;
use crate::origin::Origin;
use crate::reading::Updates;
use crate::tests::page::{each_reading, page_of};

type Points = Vec<(f64, f64)>;

fn drawn(lines: Vec<Line>) -> String {
    page_of(&summed(lines), &Origin::default())
}

/// What lies from one text to the next one.
fn between<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
    let begin = page.find(from).unwrap_or_else(|| panic!("no {from}"));
    let rest = &page[begin..];
    &rest[..rest.find(to).unwrap_or_else(|| panic!("no {to}"))]
}

/// The only picture that a screen reader calls so.
fn picture<'a>(page: &'a str, label: &str) -> &'a str {
    let label = format!("aria-label=\"{label}\"");
    assert_eq!(page.matches(&label).count(), 1, "{label}");
    between(page, &label, "</svg>")
}

/// The points of all lines or areas of a class.
fn shapes(picture: &str, element: &str, class: &str) -> Vec<Points> {
    let number = |text: &str| text.parse::<f64>().unwrap();
    let class = format!("class=\"{class}\"");
    let begin = format!("<{element} points=\"");
    let shapes = picture.split(&begin).skip(1);
    let shapes = shapes.filter_map(|rest| {
        let (points, rest) = rest.split_once('"')?;
        let style = rest.split("/>").next()?;
        let pairs = points.split(' ').filter_map(|pair| pair.split_once(','));
        let points = pairs.map(|(x, y)| (number(x), number(y)));
        style.contains(&class).then(|| points.collect())
    });
    shapes.collect()
}

#[track_caller]
fn is_near(found: f64, wanted: f64) {
    assert!((found - wanted).abs() < 0.3, "{found}, not {wanted}");
}

#[test]
fn charts_have_the_mean_and_the_band_of_the_seeds() {
    let mut sync = line("sync", true, &[0, 0]);
    let mut value = 1.0;
    each_reading(&mut sync, |reading| {
        for one in &mut reading.validations {
            one.measure.value = value;
            one.wall += 3.0;
        }
        for (index, record) in reading.records.iter_mut().enumerate() {
            (record.loss, record.updates) = (Some(value), index as u64);
        }
        value += 2.0;
    });
    let page = drawn(vec![sync]);
    let (measure, loss) = ("error (K)", "training loss, running mean");
    // Where the first point is, of those from 56 to 428, says along what they go: evaluations are after 4
    // to 43 seconds, 0 to 39 updates, 10 to 400 samples; steps end after 0.13 to 9.13 seconds, 0 to 9
    // updates, 8 to 80 samples.
    for (y, x, first) in [
        (measure, "seconds since the first step", 90.6),
        (measure, "updates applied", 56.0),
        (measure, "samples applied", 65.3),
        (loss, "seconds since the first step", 61.3),
        (loss, "updates applied", 56.0),
        (loss, "samples applied", 93.2),
    ] {
        let chart = picture(&page, &format!("{y} over {x}: sync"));
        let lines = shapes(chart, "polyline", "curve dashed s0");
        let bands = shapes(chart, "polygon", "band s0");
        let ([line], [band]) = (lines.as_slice(), bands.as_slice()) else {
            panic!("{chart}")
        };
        is_near(line[0].0, first);
        is_near(line[line.len() - 1].0, 428.0);
        let ys = |points: &Points| {
            let ends = (f64::MAX, f64::MIN);
            let ys = points.iter().map(|point| point.1);
            ys.fold(ends, |(low, high), y| (low.min(y), high.max(y)))
        };
        // One seed is at 1, the other at 3: 2 is half-way.
        let ((top, bottom), (above, below)) = (ys(band), ys(line));
        is_near(above, below);
        is_near(above, f64::midpoint(top, bottom));
        assert!(bottom - top > 100.0, "{top}, {bottom}");
        let targets = chart.matches("class=\"target\"").count();
        assert_eq!(targets, usize::from(y == measure), "{y}");
        for label in [x, y] {
            let label = format!("class=\"label\">{label}</text>");
            assert!(chart.contains(&label), "{label}");
        }
    }
    let legend = "<p class=\"legend\"><span class=\"chip s0\"><i class=\"sync\"></i>sync</span><span class=\"none\">line: mean of the seeds; band: from the least to the most of them; dashed: synchronous</span></p><div class=\"row\">";
    for head in ["Validation", "Training loss"] {
        assert!(page.contains(&format!("<h3>{head}</h3>{legend}")), "{head}");
    }
}

#[test]
fn without_evaluations_there_is_a_loss_to_be_seen() {
    let mut sync = line("sync", true, &[10]);
    each_reading(&mut sync, |reading| reading.validations.clear());
    let page = drawn(vec![sync]);
    assert!(!page.contains("<h3>Validation</h3>"));
    assert!(page.contains("<h3>Training loss</h3>"));
    assert!(page.contains("<span class=\"none\">dashed: synchronous</span>"));
}

#[test]
fn other_targets_are_compared_from_the_easiest_to_the_hardest() {
    let page = drawn(vec![line("sync", true, &[10]), line("async", false, &[5])]);
    let head = "<h3>At other targets <span class=\"none\">how many times sooner than sync each";
    assert!(page.contains(head));
    let chart = picture(&page, "times sooner over target: error (K)");
    assert!(shapes(chart, "polyline", "curve dashed s0").is_empty());
    let lines = shapes(chart, "polyline", "curve s1");
    let [line] = lines.as_slice() else {
        panic!("{chart}")
    };
    // 0.9 is where both begin; whatever is lower both reach at once, the one after half the time.
    assert_eq!(line.len(), 20);
    is_near(line[0].0, 428.0);
    is_near(line[19].0, 56.0);
    assert!(line[0].1 > line[1].1 + 100.0, "{line:?}");
    assert!(
        line[1..].iter().all(|point| point.1 == line[1].1),
        "{line:?}"
    );
}

/// Two seeds, of which the one takes a third of the time of the other; seconds of both on average: 2 of
/// computing, 1.2 of reducing, and 0.8 of an exchange, of which 0.4 are waited, all of it times `factor`.
fn spent(mut line: Line, factor: f64) -> Line {
    let mut factor = 0.5 * factor;
    each_reading(&mut line, |reading| {
        let group = &mut reading.summary.groups[0];
        group.data_seconds = 0.0;
        group.compute_seconds = 2.0 * factor;
        group.reduce_seconds = 1.2 * factor;
        group.exposed_seconds = 0.8 * factor;
        group.wait_seconds = 0.4 * factor;
        factor *= 3.0;
    });
    line
}

#[test]
fn bars_are_as_long_as_what_they_stand_for() {
    let page = drawn(vec![
        spent(line("sync", true, &[10, 10]), 1.0),
        spent(line("async", false, &[10, 10]), 0.5),
    ]);
    let bars = picture(&page, "where the time went");
    // The longest is 1110 wide.
    for (label, y, parts) in [
        (
            "sync",
            "9.0",
            [
                ("computing", "190.0", "555.00", "2.0 s, 50 %"),
                ("reducing", "745.0", "333.00", "1.2 s, 30 %"),
                ("exchanging", "1078.0", "111.00", "0.4 s, 10 %"),
                ("waiting", "1189.0", "111.00", "0.4 s, 10 %"),
            ],
        ),
        (
            "async",
            "37.0",
            [
                ("computing", "190.0", "277.50", "1.0 s, 50 %"),
                ("reducing", "467.5", "166.50", "0.6 s, 30 %"),
                ("exchanging", "634.0", "55.50", "0.2 s, 10 %"),
                ("waiting", "689.5", "55.50", "0.2 s, 10 %"),
            ],
        ),
    ] {
        assert!(bars.contains(&format!("class=\"row\">{label}</text>")));
        for (name, x, width, told) in parts {
            let part = format!(
                "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"19.00\" class=\"part {name}\"><title>{label}: {name} {told}</title></rect>"
            );
            assert!(bars.contains(&part), "{part} is not in {bars}");
            let chip = format!("<span class=\"chip\"><i class=\"part {name}\"></i>{name}</span>");
            assert!(page.contains(&chip), "{chip}");
        }
    }
    assert!(page.contains("<h3>Where the time went</h3><p class=\"legend\"><span class=\"chip\">"));
}

/// Sets the delay and the lag of each exchange.
fn delayed(mut line: Line, delays: [Option<u64>; 10], lags: [u64; 10]) -> Line {
    each_reading(&mut line, |reading| {
        let records = reading.records.iter_mut().zip(delays).zip(lags);
        for ((record, delay), lag) in records {
            (record.delay, record.lag) = (delay, lag);
        }
    });
    line
}

#[test]
fn histograms_have_a_column_for_each_delay_and_each_lag() {
    let [zero, one, two] = [0, 1, 2].map(Some);
    let delays = [zero, zero, zero, zero, zero, one, one, one, two, None];
    let page = drawn(vec![
        delayed(
            line("sync", true, &[10]),
            delays,
            [0, 0, 0, 0, 0, 0, 0, 0, 3, 3],
        ),
        delayed(line("async", false, &[10]), [Some(4); 10], [0; 10]),
    ]);
    let column = |part: &str, (x, y, height): (&str, &str, &str), index: usize, title: &str| {
        let column = format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"20.50\" height=\"{height}\" class=\"column s{index}\"><title>{title}</title></rect>"
        );
        assert!(part.contains(&column), "{column} is not in {part}");
    };
    let delay = between(&page, "<h3>Delay", "<h3>Lag");
    column(delay, ("8.0", "20.0", "54.00"), 0, "0: 55.6 %");
    column(delay, ("30.0", "41.6", "32.40"), 0, "1: 33.3 %");
    column(delay, ("52.0", "63.2", "10.80"), 0, "2: 11.1 %");
    column(delay, ("96.0", "74.0", "0.00"), 0, "4: 0.0 %");
    column(delay, ("8.0", "74.0", "0.00"), 1, "0: 0.0 %");
    column(delay, ("96.0", "20.0", "54.00"), 1, "4: 100.0 %");
    assert_eq!(delay.matches("class=\"column ").count(), 10);
    let lag = between(&page, "<h3>Lag", "</section>");
    column(lag, ("8.0", "20.0", "54.00"), 0, "0: 80.0 %");
    column(lag, ("74.0", "60.5", "13.50"), 0, "3: 20.0 %");
    column(lag, ("8.0", "20.0", "54.00"), 1, "0: 100.0 %");
    assert_eq!(lag.matches("class=\"column ").count(), 8);
    let told = [
        (
            delay,
            [
                "updates between the pull",
                "mean 0.6, most 2",
                "mean 4.0, most 4",
            ],
        ),
        (
            lag,
            [
                "exchanges behind the",
                "mean 0.6, most 3",
                "mean 0.0, most 0",
            ],
        ),
    ];
    for (part, texts) in told {
        for text in texts {
            assert!(part.contains(text), "{text} is not in {part}");
        }
        for label in ["sync", "async"] {
            let figure = format!("<figure><figcaption>{label}</figcaption><svg ");
            assert!(part.contains(&figure), "{figure} is not in {part}");
        }
    }
}

#[test]
fn a_wide_range_of_delays_is_put_together() {
    let mut delays = [Some(0); 10];
    delays[9] = Some(50);
    let page = drawn(vec![delayed(line("async", false, &[10]), delays, [0; 10])]);
    let delay = between(&page, "<h3>Delay", "<h3>Lag");
    assert!(delay.contains("<title>0 to 2: 90.0 %</title>"), "{delay}");
    assert!(delay.contains("<title>48 to 50: 10.0 %</title>"), "{delay}");
    let none = "<h3>Lag <span class=\"none\">none: every lag was 0</span></h3>";
    assert!(page.contains(none));
}

#[test]
fn what_was_dropped_is_told_beside_the_delays() {
    // Decisions that applied a contribution, and that dropped one, in each of two runs.
    let told = |decisions: [Option<(u64, u64)>; 2], delay: u64| {
        let lines = [("sync", true), ("a < b", false)].into_iter();
        let lines = lines
            .zip(decisions)
            .map(|((label, synchronous), decisions)| {
                let line = line(label, synchronous, &[10, 10]);
                let mut line = delayed(line, [Some(delay); 10], [0; 10]);
                each_reading(&mut line, |reading| {
                    let updates = decisions.map(|(applied, dropped)| Updates { applied, dropped });
                    reading.summary.updates = updates;
                });
                line
            });
        between(&drawn(lines.collect()), "<h3>Delay", "<h3>Lag").to_owned()
    };
    let check = |decisions, lacking: &str| {
        let found = told(decisions, 1);
        let wanted = format!(
            "</div><p class=\"legend\">counted: each exchange once, by the largest delay of its blocks; {lacking}</p>"
        );
        assert!(found.ends_with(&wanted), "{found}");
    };
    let (whole, some) = (Some((10, 0)), Some((480, 12)));
    check([whole, whole], "nothing was dropped");
    check([whole, None], "what was dropped is not in it");
    let dropped = "contributions to blocks that were dropped are not in it:";
    check(
        [whole, some],
        &format!("{dropped} <b>a &lt; b</b> 24 of 984"),
    );
    let both = format!("{dropped} <b>sync</b> 24 of 984, <b>a &lt; b</b> 24 of 984");
    check([some, some], &both);

    let zero = "<h3>Delay <span class=\"none\">none: every delay was 0</span></h3>";
    assert_eq!(told([whole, whole], 0), zero);
    let found = told([some, whole], 0);
    assert!(found.ends_with("<b>sync</b> 24 of 984</p>"), "{found}");
}
