//! What of a run is shown, and which key changes that.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// A part of the screen with rows of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// Runs of a fleet.
    Runs,
    #[default]
    Groups,
    Servers,
    Shards,
    Events,
}

/// All of them, from the top.
pub(super) const PARTS: [Part; 5] = [
    Part::Runs,
    Part::Groups,
    Part::Servers,
    Part::Shards,
    Part::Events,
];

/// What each key does, as the help has it.
pub(super) const KEYS: &[(&str, &str)] = &[
    ("q, Ctrl-C", "leave; the run goes on"),
    ("Tab, ← →", "next part: groups, servers, shards, events"),
    ("g v s e", "go to groups, servers, shards, events"),
    ("↑ ↓, PgUp PgDn, Home End", "scroll the part that is marked"),
    ("f", "faults alone, or all events"),
    ("r", "each group with its ranks, or without"),
    ("?", "this help"),
];

/// What is shown.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// The part that keys scroll, and that has most room.
    pub(super) at: Part,
    pub(super) faults_only: bool,
    pub(super) ranks: bool,
    pub(super) help: bool,
    /// Parts that have rows, as they were drawn last.
    pub(super) there: Vec<Part>,
    /// Rows of each part that are above what is shown of it.
    above: [usize; PARTS.len()],
    /// Rows of the part that is marked which were there, and which were shown.
    last: (usize, usize),
}

impl View {
    /// Rows of a part that are not shown at its top, when it has `rows` and room for `shown`.
    pub(super) fn above(&mut self, part: Part, rows: usize, shown: usize) -> usize {
        if part == self.at {
            self.last = (rows, shown);
        }
        let above = &mut self.above[part as usize];
        *above = (*above).min(rows.saturating_sub(shown));
        *above
    }

    /// A key is pressed. Whether it leaves the screen.
    pub(super) fn key(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return key.code == KeyCode::Char('c');
        }
        if self.help {
            // Whatever it is, it closes the help; leaving stays what it is.
            self.help = false;
            return key.code == KeyCode::Char('q');
        }
        let page = self.last.1.saturating_sub(1).max(1) as isize;
        match key.code {
            KeyCode::Char('q') => return true,
            KeyCode::Char('?') => self.help = true,
            KeyCode::Char('f') => {
                self.faults_only = !self.faults_only;
                self.above[Part::Events as usize] = 0;
            }
            KeyCode::Char('r') => self.ranks = !self.ranks,
            KeyCode::Char('g') => self.at = Part::Groups,
            KeyCode::Char('v') => self.at = Part::Servers,
            KeyCode::Char('s') => self.at = Part::Shards,
            KeyCode::Char('e') => self.at = Part::Events,
            KeyCode::Tab | KeyCode::Right => self.go(1),
            KeyCode::BackTab | KeyCode::Left => self.go(-1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            KeyCode::PageUp => self.scroll(-page),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scroll(page),
            KeyCode::Home => self.scroll(isize::MIN),
            KeyCode::End => self.scroll(isize::MAX),
            _ => {}
        }
        false
    }

    /// To the next part that has rows, or the one before.
    fn go(&mut self, by: isize) {
        let count = self.there.len() as isize;
        let at = self.there.iter().position(|part| *part == self.at);
        if count > 0 {
            let next = (at.unwrap_or(0) as isize + by).rem_euclid(count);
            self.at = self.there[next as usize];
        }
    }

    fn scroll(&mut self, by: isize) {
        let (rows, shown) = self.last;
        let above = &mut self.above[self.at as usize];
        *above = above
            .saturating_add_signed(by)
            .min(rows.saturating_sub(shown));
    }
}
