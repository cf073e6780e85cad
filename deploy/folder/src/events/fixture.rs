//! Events that tests of their readers begin with.

use tradewind_common::RunId;

use super::Event;
use crate::member::Member;

/// An event about nobody.
pub fn event(wall: f64, kind: &str, text: &str) -> Event {
    Event {
        group: None,
        rank: None,
        ..Event::of(
            wall,
            kind,
            text.into(),
            Member::Rank { group: 0, rank: 0 },
            0,
        )
    }
}

/// The name of a run.
pub fn run(name: &str) -> RunId {
    RunId::new(name).unwrap()
}
