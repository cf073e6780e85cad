//! The live display of a run: a line per group and a bar over the samples applied, redrawn in place
//! on a terminal; plain lines at a slow pace anywhere else, so that a log file stays readable.
//!
//! Rates and the time left follow from the wall times in the records; nothing here reads a clock.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tradewind_common::record::StepRecord;

/// Without a terminal a group writes one line in this many seconds of the run.
const PLAIN_EVERY_SECONDS: f64 = 5.0;
/// Groups beyond this many count towards the bar but have no line.
const GROUPS_MAX: usize = 64;
/// A rate is measured over so many seconds of the run.
const RATE_SECONDS: f64 = 20.0;
/// Points of a rate are at least this far apart, so that they are few.
const RATE_STEP_SECONDS: f64 = 0.25;

/// The display of one run.
pub(crate) struct Progress {
    samples_total: u64,
    samples_applied: u64,
    rate: Rate,
    groups: BTreeMap<u32, Group>,
    view: View,
}

enum View {
    Terminal {
        lines: MultiProgress,
        bar: ProgressBar,
        of_group: BTreeMap<u32, ProgressBar>,
    },
    Plain(Box<dyn Write + Send>),
}

/// What is known of a group from its records.
#[derive(Default)]
struct Group {
    state: GroupState,
    rate: Rate,
    samples: u64,
    /// Wall time of the record that the group's latest plain line showed.
    shown_wall: Option<f64>,
    /// Whether records came after that line.
    unshown: bool,
}

/// What a group's line shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct GroupState {
    /// Clock of the latest exchange.
    pub(crate) clock: u64,
    /// Its loss; `None` if it was not finite.
    pub(crate) loss: Option<f64>,
    /// Applied samples per second; `None` until two records are apart in time.
    pub(crate) samples_per_second: Option<f64>,
    /// Exchanges behind the fastest group.
    pub(crate) lag: u64,
    /// Seconds that the consistency policy has held the group back so far, in all.
    pub(crate) waited_seconds: f64,
}

impl Progress {
    /// A display for groups `0..groups` and a budget of samples. With `interactive` it draws on
    /// the terminal behind stderr and leaves `out` alone, else it writes lines to `out`.
    pub(crate) fn new(
        groups: usize,
        samples_total: u64,
        interactive: bool,
        out: Box<dyn Write + Send>,
    ) -> Self {
        if interactive {
            return Self::on_terminal(groups, samples_total, ProgressDrawTarget::stderr());
        }
        Self::with_view(samples_total, View::Plain(out))
    }

    fn on_terminal(groups: usize, samples_total: u64, target: ProgressDrawTarget) -> Self {
        let lines = MultiProgress::with_draw_target(target);
        let bar = lines.add(ProgressBar::new(samples_total.max(1)));
        bar.set_style(style("[{bar:40}] {wide_msg}").progress_chars("=> "));
        bar.set_message(bar_text(0, samples_total, None));
        let of_group = BTreeMap::new();
        let view = View::Terminal {
            lines,
            bar,
            of_group,
        };
        let mut progress = Self::with_view(samples_total, view);
        // A group is seen before its first step, which may take long.
        for group in (0..groups.min(GROUPS_MAX)).filter_map(|g| u32::try_from(g).ok()) {
            progress.show_line(group, format!("group {group:<2} starting"));
        }
        progress
    }

    fn with_view(samples_total: u64, view: View) -> Self {
        Self {
            samples_total,
            samples_applied: 0,
            rate: Rate::default(),
            groups: BTreeMap::new(),
            view,
        }
    }

    /// Takes in one record. Records of one group come in the order of its clocks, those of
    /// different groups in any.
    pub(crate) fn record(&mut self, record: &StepRecord) {
        self.samples_applied = self.samples_applied.max(record.samples_applied);
        self.rate.push(record.wall, self.samples_applied);
        if !self.groups.contains_key(&record.group) && self.groups.len() >= GROUPS_MAX {
            return self.show_bar();
        }
        let group = self.groups.entry(record.group).or_default();
        group.record(record);
        let due = group
            .shown_wall
            .is_none_or(|shown| (record.wall - shown).abs() >= PLAIN_EVERY_SECONDS);
        match self.view {
            View::Terminal { .. } => {
                let line = group_text(record.group, &group.state);
                self.show_line(record.group, line);
                self.show_bar();
            }
            View::Plain(_) if due => {
                group.shown_wall = Some(record.wall);
                self.write_group(record.group);
            }
            View::Plain(_) => {}
        }
    }

    /// Shows a text between the lines of the groups: above them on a terminal.
    pub(crate) fn message(&mut self, text: &str) {
        match &mut self.view {
            View::Terminal { lines, .. } => drop(lines.println(text)),
            View::Plain(out) => write_line(out, text),
        }
    }

    /// Shows the last state of every group and leaves it standing.
    pub(crate) fn finish(mut self) {
        if let View::Terminal { bar, of_group, .. } = &self.view {
            let text = bar_text(self.samples_applied, self.samples_total, None);
            bar.abandon_with_message(text);
            of_group.values().for_each(ProgressBar::abandon);
            return;
        }
        let unshown = self.groups.iter().filter(|(_, group)| group.unshown);
        for id in unshown.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.write_group(id);
        }
    }

    fn seconds_left(&self) -> Option<f64> {
        let left = self.samples_total.saturating_sub(self.samples_applied);
        self.rate.per_second().map(|rate| left as f64 / rate)
    }

    fn write_group(&mut self, id: u32) {
        let seconds_left = self.seconds_left();
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        group.unshown = false;
        let line = plain_text(
            id,
            &group.state,
            percent(self.samples_applied, self.samples_total),
            seconds_left,
        );
        if let View::Plain(out) = &mut self.view {
            write_line(out, &line);
        }
    }

    fn show_line(&mut self, group: u32, text: String) {
        let View::Terminal {
            lines,
            bar,
            of_group,
        } = &mut self.view
        else {
            return;
        };
        if let Some(line) = of_group.get(&group) {
            return line.set_message(text);
        }
        // Lines stand in the order of the groups, the bar under them all.
        let line = ProgressBar::new_spinner();
        line.set_style(style("{wide_msg}"));
        let line = match of_group.range(group..).next() {
            Some((_, next)) => lines.insert_before(next, line),
            None => lines.insert_before(bar, line),
        };
        line.set_message(text);
        of_group.insert(group, line);
    }

    fn show_bar(&self) {
        if let View::Terminal { bar, .. } = &self.view {
            let left = self.seconds_left();
            bar.set_position(self.samples_applied.min(self.samples_total));
            bar.set_message(bar_text(self.samples_applied, self.samples_total, left));
        }
    }
}

impl Group {
    fn record(&mut self, record: &StepRecord) {
        if !record.skipped {
            self.samples += record.samples;
        }
        self.rate.push(record.wall, self.samples);
        self.unshown = true;
        self.state = GroupState {
            clock: record.clock,
            loss: record.loss.filter(|loss| loss.is_finite()),
            samples_per_second: self.rate.per_second(),
            lag: record.lag,
            waited_seconds: self.state.waited_seconds + record.wait_seconds.max(0.0),
        };
    }
}

/// Growth of a count per second, over the last [`RATE_SECONDS`].
#[derive(Debug, Default)]
struct Rate {
    /// Wall time and count, both rising; at most `RATE_SECONDS / RATE_STEP_SECONDS + 2` of them.
    points: VecDeque<(f64, u64)>,
}

impl Rate {
    fn push(&mut self, wall: f64, count: u64) {
        if !wall.is_finite() {
            return;
        }
        // Clocks of several machines disagree a little; time does not go back here.
        let wall = self.points.back().map_or(wall, |last| wall.max(last.0));
        let before_last = self.points.len().checked_sub(2).map(|i| self.points[i].0);
        if before_last.is_some_and(|before| wall - before < RATE_STEP_SECONDS) {
            self.points.pop_back();
        }
        self.points.push_back((wall, count));
        // Two points stay, however far apart: steps may be slower than the span.
        while self.points.len() > 2 && wall - self.points[1].0 >= RATE_SECONDS {
            self.points.pop_front();
        }
    }

    fn per_second(&self) -> Option<f64> {
        let (first, last) = (self.points.front()?, self.points.back()?);
        let (seconds, count) = (last.0 - first.0, last.1.saturating_sub(first.1));
        (seconds > 0.0 && count > 0).then(|| count as f64 / seconds)
    }
}

fn style(template: &str) -> ProgressStyle {
    // A template that does not parse would be a mistake in this file; the default still shows.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn write_line(out: &mut dyn Write, line: &str) {
    // The display is not the run: a closed pipe must not end a training.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// A group's line on a terminal: in columns, so that the numbers do not dance.
pub(crate) fn group_text(group: u32, state: &GroupState) -> String {
    format!(
        "group {group:<2}  clock {:>6}  loss {:>10}  {:>7} samples/s  lag {:>3}  waited {:>7}",
        state.clock,
        loss_text(state.loss),
        rate_text(state.samples_per_second),
        state.lag,
        seconds_text(state.waited_seconds),
    )
}

/// A group's line without a terminal.
pub(crate) fn plain_text(
    group: u32,
    state: &GroupState,
    percent: u64,
    seconds_left: Option<f64>,
) -> String {
    format!(
        "{percent:>3}%, {}: group {group}: clock {}, loss {}, {} samples/s, lag {}, waited {}",
        left_text(seconds_left),
        state.clock,
        loss_text(state.loss),
        rate_text(state.samples_per_second),
        state.lag,
        seconds_text(state.waited_seconds),
    )
}

/// What stands behind the bar. Without a time left only what has been done is told.
pub(crate) fn bar_text(applied: u64, total: u64, seconds_left: Option<f64>) -> String {
    let percent = percent(applied, total);
    let left = seconds_left.map_or(String::new(), |s| format!(", {}", left_text(Some(s))));
    format!("{percent:>3}%  {applied} of {total} samples{left}")
}

/// Whole percents that are done; 100 only when all is.
fn percent(applied: u64, total: u64) -> u64 {
    match total {
        0 => 100,
        _ => (u128::from(applied) * 100 / u128::from(total)).min(100) as u64,
    }
}

fn left_text(seconds: Option<f64>) -> String {
    match seconds {
        // Rounded up, as the last second is not over yet.
        Some(s) if s.is_finite() => format!("{} left", seconds_text(s.ceil())),
        _ => "time left unknown".to_owned(),
    }
}

fn loss_text(loss: Option<f64>) -> String {
    match loss {
        None => "not finite".to_owned(),
        Some(loss) if loss == 0.0 => "0".to_owned(),
        Some(loss) if (1e-3..1e4).contains(&loss.abs()) => {
            // Four digits that count, wherever the point is.
            let before_point = loss.abs().log10().floor() as i32 + 1;
            format!("{loss:.*}", (4 - before_point).clamp(0, 6) as usize)
        }
        Some(loss) => format!("{loss:.3e}"),
    }
}

fn rate_text(rate: Option<f64>) -> String {
    match rate {
        None => "?".to_owned(),
        Some(rate) if rate < 10.0 => format!("{rate:.1}"),
        Some(rate) if rate < 1e6 => format!("{rate:.0}"),
        Some(rate) => format!("{:.2}M", rate / 1e6),
    }
}

/// Seconds, with minutes and hours where there are any.
fn seconds_text(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..60 if seconds.fract() == 0.0 => format!("{whole} s"),
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{}:{:02} min", whole / 60, whole % 60),
        _ => format!("{}:{:02} h", whole / 3600, whole / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Collects what is written, for a pipe and for a terminal of 120 columns.
    #[derive(Clone, Debug, Default)]
    struct Paper(Arc<Mutex<String>>);

    impl Paper {
        fn text(&self) -> String {
            self.0.lock().unwrap().clone()
        }
        fn add(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
    }

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.add(std::str::from_utf8(bytes).unwrap())?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl indicatif::TermLike for Paper {
        fn width(&self) -> u16 {
            120
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.add(text)?;
            self.add("\n")
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.add(text)
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn step(group: u32, clock: u64, wall: f64, samples_applied: u64) -> StepRecord {
        StepRecord {
            wall: 1.7e9 + wall,
            group,
            clock,
            loss: Some(0.5),
            samples: 50,
            samples_applied,
            updates: clock,
            lag: 1,
            delay: Some(0),
            skipped: false,
            compute_seconds: 0.1,
            reduce_seconds: 0.0,
            exchange_seconds: 0.0,
            wait_seconds: 0.5,
        }
    }

    #[test]
    fn lines_of_a_log_are_few_and_tell_percent_and_time_left() {
        let paper = Paper::default();
        let mut progress = Progress::new(1, 2_000, false, Box::new(paper.clone()));
        // 50 samples in half a second, for 15 seconds.
        for clock in 0..30 {
            progress.record(&step(0, clock, clock as f64 * 0.5, 50 * (clock + 1)));
        }
        progress.message("a message");
        progress.finish();
        let expected = "  \
  2%, time left unknown: group 0: clock 0, loss 0.5000, ? samples/s, lag 1, waited 0.5 s
 27%, 15 s left: group 0: clock 10, loss 0.5000, 100 samples/s, lag 1, waited 5.5 s
 52%, 10 s left: group 0: clock 20, loss 0.5000, 100 samples/s, lag 1, waited 10.5 s
a message
 75%, 5 s left: group 0: clock 29, loss 0.5000, 100 samples/s, lag 1, waited 15 s
";
        assert_eq!(paper.text(), expected);
    }

    #[test]
    fn a_terminal_shows_a_line_per_group_over_a_bar() {
        let paper = Paper::default();
        let target = ProgressDrawTarget::term_like(Box::new(paper.clone()));
        let mut progress = Progress::on_terminal(2, 1_000, target);
        progress.record(&step(1, 7, 0.0, 250));
        progress.record(&step(3, 0, 0.1, 300));
        progress.message("a message");
        progress.finish();
        let text = paper.text();
        let expected = [
            "a message",
            "group 0  starting",
            "group 1   clock      7  loss     0.5000        ? samples/s  lag   1",
            "group 3   clock      0",
            "[============>",
            " 30%  300 of 1000 samples",
        ];
        // The last drawing holds all of them in this order.
        let mut from = text.rfind("a message").unwrap();
        for part in expected {
            let at = text[from..].find(part);
            from += at.unwrap_or_else(|| panic!("no {part:?} in {:?}", &text[from..]));
        }
    }

    #[test]
    fn groups_without_end_are_counted_but_not_all_shown() {
        let paper = Paper::default();
        let mut progress = Progress::new(1, 1_000_000, false, Box::new(paper.clone()));
        for group in 0..1_000 {
            progress.record(&step(group, 0, 0.0, 50 * u64::from(group)));
        }
        assert_eq!(paper.text().lines().count(), GROUPS_MAX);
        assert_eq!(progress.samples_applied, 50 * 999);
    }

    #[test]
    fn rates_follow_recent_records() {
        let cases: &[(&[(f64, u64)], Option<f64>)] = &[
            (&[], None),
            (&[(1.0, 5)], None),
            (&[(1.0, 5), (1.0, 9)], None),
            (&[(1.0, 5), (3.0, 9)], Some(2.0)),
            (&[(1.0, 5), (0.0, 6), (3.0, 9)], Some(2.0)),
            (&[(1.0, 5), (f64::NAN, 6), (3.0, 9)], Some(2.0)),
            (&[(0.0, 0), (100.0, 100), (120.0, 2_100)], Some(100.0)),
            (&[(0.0, 0), (90.0, 9)], Some(0.1)),
        ];
        for (points, expected) in cases {
            let mut rate = Rate::default();
            points.iter().for_each(|&(wall, n)| rate.push(wall, n));
            assert_eq!(rate.per_second(), *expected, "{points:?}");
        }
        let mut rate = Rate::default();
        (0..100_000).for_each(|i| rate.push(0.001 * f64::from(i), i as u64));
        assert!(rate.points.len() as f64 <= RATE_SECONDS / RATE_STEP_SECONDS + 2.0);
        assert!((rate.per_second().unwrap() - 1_000.0).abs() < 1.0);
    }

    #[test]
    fn quantities_are_short_and_have_units() {
        let seconds = [
            (0.0, "0 s"),
            (1.25, "1.2 s"),
            (59.0, "59 s"),
            (61.4, "1:01 min"),
            (3599.7, "1:00 h"),
            (90_061.0, "25:01 h"),
        ];
        for (value, text) in seconds {
            assert_eq!(seconds_text(value), text);
        }
        let losses = [
            (None, "not finite"),
            (Some(0.0), "0"),
            (Some(0.123_456), "0.1235"),
            (Some(0.012_345_6), "0.01235"),
            (Some(12.345), "12.35"),
            (Some(-2.5), "-2.500"),
            (Some(1.5e-7), "1.500e-7"),
            (Some(1e30), "1.000e30"),
        ];
        for (value, text) in losses {
            assert_eq!(loss_text(value), text);
        }
        let bars = [
            (0, 100, None, "  0%  0 of 100 samples"),
            (999, 1_000, Some(0.2), " 99%  999 of 1000 samples, 1 s left"),
            (
                50,
                100,
                Some(f64::INFINITY),
                " 50%  50 of 100 samples, time left unknown",
            ),
            (120, 100, None, "100%  120 of 100 samples"),
            (0, 0, None, "100%  0 of 0 samples"),
        ];
        for (applied, total, left, text) in bars {
            assert_eq!(bar_text(applied, total, left), text);
        }
        for (rate, text) in [(None, "?"), (Some(3.25), "3.2"), (Some(345.6), "346")] {
            assert_eq!(rate_text(rate), text);
        }
    }
}
