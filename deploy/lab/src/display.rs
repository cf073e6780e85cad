//! The live display of an experiment: a line for each cell that runs, and a bar over all of them.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::cell::CellRecord;
use super::matrix::Matrix;
use tradewind_folder::clock::Clock;
use tradewind_launch::progress::seconds_text;
use tradewind_process::log::say;

/// What there is to do when it begins, as far as that is known, and what was done before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub settings: usize,
    pub cells: usize,
    pub cells_finished: usize,
    /// Those that are to be run next: what they come to may lead to more.
    pub trials: usize,
    pub trials_finished: usize,
}

impl Counts {
    /// `records` are those of trials and cells that were run before, `trials` are left.
    pub fn new(matrix: &Matrix, records: &BTreeMap<String, CellRecord>, trials: usize) -> Self {
        let finished = matrix.cells.iter().filter(|c| records.contains_key(&c.id));
        let cells_finished = finished.count();
        Self {
            settings: matrix.settings.len(),
            cells: matrix.cells.len(),
            cells_finished,
            trials,
            trials_finished: records.len() - cells_finished,
        }
    }

    /// Such as `90 cells of 18 settings and 72 trials before them; 9 cells and 72 trials are finished`.
    pub fn in_words(self) -> String {
        let Self {
            settings, cells, ..
        } = self;
        let trials = match (self.trials, self.trials + self.trials_finished) {
            (_, 0) => String::new(),
            (0, all) => format!(" and {all} trials before them"),
            (_, all) => format!(" and {all} trials or more before them"),
        };
        let finished = [
            (self.cells_finished, "cells"),
            (self.trials_finished, "trials"),
        ];
        let finished = finished.iter().filter(|(count, _)| *count > 0);
        let finished: Vec<String> = finished.map(|(n, what)| format!("{n} {what}")).collect();
        let finished = match finished.is_empty() {
            true => String::new(),
            false => format!("; {} are finished", finished.join(" and ")),
        };
        format!("{cells} cells of {settings} settings{trials}{finished}")
    }
}

/// How far everything is.
pub struct Display {
    clock: Clock,
    /// Trials and cells, those that are still to be run and those that have ended.
    cells: usize,
    ended: usize,
    /// Expected work of all cells that are to be run, and of those that have ended, in the same
    /// unit, whatever it is.
    work: f64,
    done: f64,
    running: BTreeMap<String, Running>,
    view: Option<(MultiProgress, ProgressBar)>,
}

struct Running {
    work: f64,
    part: f64,
    bar: Option<ProgressBar>,
}

impl Display {
    /// After `ended` trials and cells that were finished before.
    pub fn new(ended: usize) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self::on(ended, is_terminal.then(ProgressDrawTarget::stderr))
    }

    fn on(ended: usize, terminal: Option<ProgressDrawTarget>) -> Self {
        let view = terminal.map(|target| {
            let lines = MultiProgress::with_draw_target(target);
            let bar = lines.add(ProgressBar::new(1000));
            bar.set_style(style("[{bar:40}] {wide_msg}").progress_chars("=> "));
            (lines, bar)
        });
        Self {
            clock: Clock::start(),
            cells: ended,
            ended,
            work: 0.0,
            done: 0.0,
            running: BTreeMap::new(),
            view,
        }
    }

    /// So many are left, with so much work.
    pub fn expect(&mut self, left: usize, work: f64) {
        self.cells = self.ended + left;
        self.work = self.done + work;
    }

    pub fn began(&mut self, id: &str, work: f64) {
        let bar = self.view.as_ref().map(|(lines, all)| {
            let line = lines.insert_before(all, ProgressBar::new_spinner());
            line.set_style(style("{wide_msg}"));
            line.set_message(format!("{id}: starting"));
            line
        });
        let running = Running {
            work,
            part: 0.0,
            bar,
        };
        self.running.insert(id.to_owned(), running);
    }

    /// A cell has come so far, 0 to 1.
    pub fn moved(&mut self, id: &str, part: f64, loss: Option<f64>) {
        if let Some(running) = self.running.get_mut(id) {
            running.part = part;
            if let Some(bar) = &running.bar {
                let loss = loss.map_or(String::new(), |loss| format!(", loss {loss:.4}"));
                bar.set_message(format!("{id}: {:.0} %{loss}", 100.0 * part.min(1.0)));
            }
        }
        self.show();
    }

    /// A cell has ended; with `again` it is going to be run once more.
    pub fn ended(&mut self, id: &str, what: &str, again: bool) {
        if let Some(running) = self.running.remove(id) {
            if let Some(bar) = &running.bar {
                bar.finish_and_clear();
            }
            if again {
                self.work += running.work;
            } else {
                self.ended += 1;
            }
            self.done += running.work;
        }
        let left = self.left();
        self.message(&format!(
            "[{} of {}] {id}: {what}{left}",
            self.ended, self.cells
        ));
        self.show();
    }

    pub fn message(&self, text: &str) {
        match &self.view {
            Some((lines, _)) => drop(lines.println(text)),
            None => say(text),
        }
    }

    pub fn finish(self) {
        if let Some((_, bar)) = self.view {
            bar.abandon();
        }
    }

    fn now_done(&self) -> f64 {
        let running = self.running.values().map(|r| r.work * r.part.min(1.0));
        self.done + running.sum::<f64>()
    }

    fn left(&self) -> String {
        let done = self.now_done();
        if done <= 0.0 || done >= self.work {
            return String::new();
        }
        let seconds = seconds_left(self.clock.elapsed().as_secs_f64(), done, self.work);
        format!("; about {} left", seconds_text(seconds.ceil()))
    }

    fn show(&self) {
        if let Some((_, bar)) = &self.view {
            bar.set_position((1000.0 * self.now_done() / self.work.max(f64::MIN_POSITIVE)) as u64);
            let left = self.left();
            bar.set_message(format!("{} of {} cells{left}", self.ended, self.cells));
        }
    }
}

/// Work goes on at the pace that it has had.
fn seconds_left(elapsed: f64, done: f64, work: f64) -> f64 {
    elapsed * (work - done) / done
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is right")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::record;
    use crate::tests::{HEAD, leave, matrix};
    use tradewind_launch::progress::fixture::Paper;

    #[test]
    fn a_terminal_shows_what_runs_over_a_bar_of_all() {
        let paper = Paper::default();
        let target = ProgressDrawTarget::term_like(Box::new(paper.clone()));
        let mut display = Display::on(1, Some(target));
        display.expect(2, 4.0);
        display.began("a", 1.0);
        display.began("b", 3.0);
        display.moved("b", 0.5, Some(0.25));
        let says = |text: &str| assert!(paper.text().contains(text), "{:?}", paper.text());
        says("a: starting");
        says("b: 50 %, loss 0.2500");
        says("1 of 3 cells; about");
        assert_eq!((display.now_done(), display.work), (1.5, 4.0));

        // What is going to be run again is more to do.
        display.ended("b", "void", true);
        says("[1 of 3] b: void; about");
        assert_eq!((display.now_done(), display.work), (3.0, 7.0));
        display.ended("a", "completed", false);
        display.began("b", 3.0);
        display.ended("b", "completed", false);
        says("[2 of 3] a: completed");
        says("[3 of 3] b: completed");
        assert_eq!(display.now_done(), display.work);
        assert_eq!(display.left(), "", "all is done");
    }

    #[test]
    fn cells_and_trials_are_counted_apart() {
        let check = |cells_finished, trials, trials_finished, want: &str| {
            let counts = Counts {
                settings: 18,
                cells: 90,
                cells_finished,
                trials,
                trials_finished,
            };
            let want = format!("90 cells of 18 settings{want}");
            assert_eq!(counts.in_words(), want);
        };
        check(0, 0, 0, "");
        check(9, 0, 0, "; 9 cells are finished");
        check(0, 72, 0, " and 72 trials or more before them");
        let some = " and 72 trials or more before them; 40 trials are finished";
        check(0, 32, 40, some);
        let all = " and 72 trials before them; 9 cells and 72 trials are finished";
        check(9, 0, 72, all);
    }

    #[test]
    fn what_was_run_before_is_a_cell_or_a_trial() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("{HEAD}seeds = [1, 2, 3]\n");
        let (_, matrix) = matrix(folder.path(), &text, false).unwrap();
        leave(folder.path(), "completed", 0);
        let record = record(folder.path(), None).unwrap();
        let ids = ["cell-seed-1", "cell-tune-0.1", "cell-tune-0.3"];
        let records = ids.map(|id| (id.to_owned(), record.clone())).into();
        let want = Counts {
            settings: 1,
            cells: 3,
            cells_finished: 1,
            trials: 4,
            trials_finished: 2,
        };
        assert_eq!(Counts::new(&matrix, &records, 4), want);
    }

    #[test]
    fn work_that_is_left_takes_as_long_as_work_that_was_done() {
        assert_eq!(seconds_left(10.0, 1.0, 4.0), 30.0);
    }
}
