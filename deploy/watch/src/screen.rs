//! `tradewind status --watch` as a full screen: what the page shows of a run, in rows, from the same sight.

mod draw;
mod keys;
mod rows;
mod spark;
mod terminal;
#[cfg(test)]
mod tests;

use std::io::{IsTerminal, stdin, stdout};

use ratatui::crossterm::event::{Event, read};
use tokio::sync::mpsc;
use tradewind_folder::found::FoundRun;
use tradewind_launch::run::Interruption;
use tradewind_process::log::say;
use tradewind_process::supervise_thread;

use crate::look::RunState;
use crate::observe::observe;
use draw::{Paint, draw};
use keys::View;
use terminal::Taken;

/// Keys that wait to be looked at.
const KEYS_MAX: usize = 64;

/// Whether there is a terminal that a screen can be drawn on, and keys can be read from.
pub fn is_possible() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    !dumb && stdin().is_terminal() && stdout().is_terminal()
}

/// Shows a run until somebody leaves the screen. Call it within a runtime.
///
/// # Errors
/// The terminal cannot be taken over or drawn on, or nobody keeps the run going although it has not ended.
pub async fn show(place: FoundRun) -> anyhow::Result<()> {
    let name = place.config.name.to_string();
    let mut sights = observe(place)?;
    let mut interruption = Interruption::new()?;
    let mut screen = Taken::take()?;
    let mut typed = typed()?;
    let paint = Paint::from_environment();
    let mut view = View::default();
    loop {
        let sight = sights.borrow_and_update().clone();
        screen.draw(|frame| draw(frame, &name, sight.as_deref(), &mut view, paint))?;
        tokio::select! {
            seen = sights.changed() => seen.expect("it is looked at for as long as the runtime is there"),
            _ = interruption.wait() => break,
            event = typed.recv() => match event {
                Some(Event::Key(key)) => if view.key(key) { break },
                // Drawn anew, as large as it is now.
                Some(_) => {}
                // The terminal has gone.
                None => break,
            },
        }
    }
    drop(screen);
    let sight = sights.borrow().clone();
    let Some(look) = sight.as_deref().map(|sight| &sight.look) else {
        return Ok(());
    };
    if look.state == RunState::Abandoned {
        anyhow::bail!("{}", look.sentence);
    }
    say(draw::headline(look));
    Ok(())
}

/// What is typed, and how large the terminal becomes, until it has gone.
fn typed() -> anyhow::Result<mpsc::Receiver<Event>> {
    let (to, typed) = mpsc::channel(KEYS_MAX);
    let work = move || {
        while let Ok(event) = read()
            && to.blocking_send(event).is_ok()
        {}
    };
    // It waits for a key, and ends with the process.
    supervise_thread("the keyboard", work)?;
    Ok(typed)
}
