//! The terminal, while the screen has it. However that ends, by a key, an error or a panic, it is given back as it
//! was: with its cursor, its lines and its way of taking keys.

use std::io::{self, Stdout, stdout};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{Frame, Terminal};

/// Whether it is to be given back.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal of this process, which is given back when this is dropped.
pub(super) struct Taken(Terminal<CrosstermBackend<Stdout>>);

impl Taken {
    pub(super) fn take() -> io::Result<Self> {
        let terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        enable_raw_mode()?;
        IS_TAKEN.store(true, Ordering::SeqCst);
        let taken = Self(terminal);
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        Ok(taken)
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.0.draw(draw).map(drop)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

/// What fails here fails because the terminal has gone.
fn give_back() {
    if IS_TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(stdout(), Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}
