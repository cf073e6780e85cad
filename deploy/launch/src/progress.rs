//! The live display of a run: a line per group and a bar over the samples applied, redrawn in place
//! on a terminal; plain lines at a slow pace anywhere else, so that a log file stays readable.
//!
//! Rates and the time left follow from the wall times in the records; nothing here reads a clock.

#[doc(hidden)]
pub mod fixture;
pub mod rate;
mod text;

use std::collections::BTreeMap;
use std::io::Write;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tradewind_common::record::StepRecord;

use rate::Rate;
pub use text::seconds_text;
use text::{GroupState, bar_text, done_text, group_text, passed_text, percent, plain_text};

/// Without a terminal a group writes one line in this many seconds of the run.
const PLAIN_EVERY_SECONDS: f64 = 5.0;
/// Groups beyond this many count towards the bar but have no line.
const GROUPS_MAX: usize = 64;

/// When training ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Budget {
    /// When so many samples are applied.
    Samples(u64),
    /// So many seconds after the first exchange.
    Seconds(f64),
}

/// The display of one run.
pub struct Progress {
    budget: Budget,
    samples_applied: u64,
    /// Wall time of the first record and of the latest.
    walls: Option<(f64, f64)>,
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

impl Progress {
    /// A display for groups `0..groups` and a budget of samples. With `interactive` it draws on
    /// the terminal behind stderr and leaves `out` alone, else it writes lines to `out`.
    pub fn new(
        groups: usize,
        samples_total: u64,
        interactive: bool,
        out: Box<dyn Write + Send>,
    ) -> Self {
        Self::with_budget(groups, Budget::Samples(samples_total), interactive, out)
    }

    /// The same of a run that trains for so many seconds, whatever its budget of samples is.
    pub fn lasting(
        groups: usize,
        seconds: f64,
        interactive: bool,
        out: Box<dyn Write + Send>,
    ) -> Self {
        Self::with_budget(groups, Budget::Seconds(seconds), interactive, out)
    }

    fn with_budget(
        groups: usize,
        budget: Budget,
        interactive: bool,
        out: Box<dyn Write + Send>,
    ) -> Self {
        if interactive {
            return Self::on_terminal(groups, budget, ProgressDrawTarget::stderr());
        }
        Self::with_view(budget, View::Plain(out))
    }

    fn on_terminal(groups: usize, budget: Budget, target: ProgressDrawTarget) -> Self {
        let lines = MultiProgress::with_draw_target(target);
        let length = match budget {
            Budget::Samples(samples) => samples,
            Budget::Seconds(seconds) => seconds.ceil() as u64,
        };
        let bar = lines.add(ProgressBar::new(length.max(1)));
        bar.set_style(style("[{bar:40}] {wide_msg}").progress_chars("=> "));
        bar.set_message(match budget {
            Budget::Samples(samples) => bar_text(0, samples, None),
            Budget::Seconds(seconds) => passed_text(0.0, seconds),
        });
        let of_group = BTreeMap::new();
        let view = View::Terminal {
            lines,
            bar,
            of_group,
        };
        let mut progress = Self::with_view(budget, view);
        // A group is seen before its first step, which may take long.
        for group in (0..groups.min(GROUPS_MAX)).filter_map(|g| u32::try_from(g).ok()) {
            progress.show_line(group, format!("group {group:<2} starting"));
        }
        progress
    }

    fn with_view(budget: Budget, view: View) -> Self {
        Self {
            budget,
            samples_applied: 0,
            walls: None,
            rate: Rate::default(),
            groups: BTreeMap::new(),
            view,
        }
    }

    /// Takes in one record. Records of one group come in the order of its clocks, those of
    /// different groups in any.
    pub fn record(&mut self, record: &StepRecord) {
        self.samples_applied = self.samples_applied.max(record.samples_applied);
        self.rate.push(record.wall, self.samples_applied);
        let (first, last) = self.walls.unwrap_or((record.wall, record.wall));
        self.walls = Some((first.min(record.wall), last.max(record.wall)));
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
    pub fn message(&mut self, text: &str) {
        match &mut self.view {
            View::Terminal { lines, .. } => drop(lines.println(text)),
            View::Plain(out) => write_line(out, text),
        }
    }

    /// Shows the last state of every group and leaves it standing.
    pub fn finish(mut self) {
        if let View::Terminal { bar, of_group, .. } = &self.view {
            bar.abandon_with_message(match self.budget {
                Budget::Samples(total) => bar_text(self.samples_applied, total, None),
                Budget::Seconds(total) => passed_text(self.passed(), total),
            });
            of_group.values().for_each(ProgressBar::abandon);
            return;
        }
        let unshown = self.groups.iter().filter(|(_, group)| group.unshown);
        for id in unshown.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.write_group(id);
        }
    }

    fn seconds_left(&self, total: u64) -> Option<f64> {
        let left = total.saturating_sub(self.samples_applied);
        self.rate.per_second().map(|rate| left as f64 / rate)
    }

    /// Seconds from the first exchange to the latest.
    fn passed(&self) -> f64 {
        self.walls.map_or(0.0, |(first, last)| last - first)
    }

    /// How far training has come, in front of the line of a group.
    fn part_text(&self) -> String {
        match self.budget {
            Budget::Samples(total) => done_text(
                percent(self.samples_applied, total),
                self.seconds_left(total),
            ),
            Budget::Seconds(total) => passed_text(self.passed(), total),
        }
    }

    fn write_group(&mut self, id: u32) {
        let part = self.part_text();
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        group.unshown = false;
        let line = plain_text(id, &group.state, &part);
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
            match self.budget {
                Budget::Samples(total) => {
                    let left = self.seconds_left(total);
                    bar.set_position(self.samples_applied.min(total));
                    bar.set_message(bar_text(self.samples_applied, total, left));
                }
                Budget::Seconds(total) => {
                    let passed = self.passed().min(total);
                    bar.set_position(passed as u64);
                    bar.set_message(passed_text(passed, total));
                }
            }
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

fn style(template: &str) -> ProgressStyle {
    // A template that does not parse would be a mistake in this file; the default still shows.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn write_line(out: &mut dyn Write, line: &str) {
    // The display is not the run: a closed pipe must not end a training.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {

    use super::fixture::Paper;
    use super::*;

    fn step(group: u32, clock: u64, wall: f64, samples_applied: u64) -> StepRecord {
        StepRecord {
            wall: 1.7e9 + wall,
            group,
            clock,
            exchanges: 1,
            loss: Some(0.5),
            samples: 50,
            samples_applied,
            updates: clock,
            lag: 1,
            delay: Some(0),
            dropped: 0,
            skipped: false,
            buckets_skipped: 0,
            local_steps: 1,
            local_skipped: 0,
            missed_pace: 0,
            overflowed: false,
            loss_scale: None,
            data_seconds: 0.0,
            staged_bytes: 0,
            staged_seconds: 0.0,
            compute_seconds: 0.1,
            reduce_seconds: 0.0,
            exchange_seconds: 0.0,
            exposed_seconds: 0.0,
            wait_seconds: 0.5,
            reduce_bytes_per_second: None,
            gpu: None,
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
    fn a_run_of_some_seconds_tells_how_many_have_passed() {
        let paper = Paper::default();
        let mut progress = Progress::lasting(1, 10.0, false, Box::new(paper.clone()));
        for clock in 0..12 {
            progress.record(&step(0, clock, 100.0 + clock as f64, 50 * (clock + 1)));
        }
        progress.finish();
        let expected = "\
0 s of 10 s: group 0: clock 0, loss 0.5000, ? samples/s, lag 1, waited 0.5 s
5 s of 10 s: group 0: clock 5, loss 0.5000, 50 samples/s, lag 1, waited 3 s
10 s of 10 s: group 0: clock 10, loss 0.5000, 50 samples/s, lag 1, waited 5.5 s
10 s of 10 s: group 0: clock 11, loss 0.5000, 50 samples/s, lag 1, waited 6 s
";
        assert_eq!(paper.text(), expected);
    }

    #[test]
    fn a_terminal_shows_a_line_per_group_over_a_bar() {
        let paper = Paper::default();
        let target = ProgressDrawTarget::term_like(Box::new(paper.clone()));
        let mut progress = Progress::on_terminal(2, Budget::Samples(1_000), target);
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
}
