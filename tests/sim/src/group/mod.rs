//! The ranks of a group of the simulated world: the real sessions, and around them what a worker
//! process does: join, create if asked to, pull, then step after step; leave at stop. With overlap
//! the next step is computed while an exchange is under way. A rank whose group is broken enters it
//! again.

mod exchange;
mod rank;
mod talk;

use std::collections::BTreeMap;

use tradewind_client::core::session::Summary;
use tradewind_common::{Clock, GroupId, Incarnation, Rank};

pub use rank::Process;
pub use talk::{Call, Common, Directory, Meeting, Out, Outcome, Primary, UNTRACKED, Wake};

/// The ranks of a group that are up, and where they meet.
#[derive(Debug, Default)]
pub struct Group {
    /// The processes that are up.
    pub ranks: BTreeMap<Rank, Process>,
    rooms: BTreeMap<(Incarnation, Meeting), Room>,
}

/// Ranks that wait for each other.
#[derive(Debug, Default)]
struct Room {
    there: BTreeMap<Rank, Option<Summary>>,
}

/// All ranks of a life have met.
#[derive(Debug)]
pub struct Met {
    /// Who.
    pub ranks: Vec<Rank>,
    /// What for.
    pub meeting: Meeting,
    /// What they gathered.
    pub outcome: Outcome,
    /// The clock that is behind them, if they had contributed.
    pub ticked: Option<Clock>,
}

impl Group {
    /// Somebody waits for the others of its life; answers whether all have met.
    pub fn meet(&mut self, rank: Rank, meeting: Meeting, summary: Option<Summary>) -> Option<Met> {
        let process = &self.ranks[&rank];
        let (key, size) = ((process.incarnation(), meeting), process.size());
        let room = self.rooms.entry(key).or_default();
        room.there.insert(rank, summary);
        if room.there.len() < size as usize {
            return None;
        }
        let room = self.rooms.remove(&key).expect("entered above");
        let summaries = || room.there.values().map(Option::as_ref);
        let mut outcome = summaries().fold(Outcome::default(), Outcome::with);
        let there = room.there.keys().filter_map(|rank| self.ranks.get(rank));
        outcome.leave = there.into_iter().any(Process::is_asked);
        let contributed = meeting == Meeting::Gather && process.contributing();
        Some(Met {
            ranks: room.there.keys().copied().collect(),
            meeting,
            outcome,
            ticked: process.ticked().filter(|_| contributed),
        })
    }

    /// A rank is not in a life any more; who is left there.
    pub fn desert(&mut self, rank: Rank, life: Incarnation) -> Vec<Rank> {
        self.rooms
            .retain(|(incarnation, _), _| *incarnation != life);
        let peers = self.ranks.iter().filter(|(other, process)| {
            **other != rank && process.incarnation() == life && !process.leaving()
        });
        peers.map(|(other, _)| *other).collect()
    }
}

/// Names a group in numbers that are unique among all.
fn numbered(id: GroupId, rank: Rank, next: u64) -> u64 {
    (next << 16) | (u64::from(id.0) << 8) | u64::from(rank.0)
}
