//! Who takes part in a run.

use std::fmt;

/// A place in a run that one process fills at a time. Servers come before ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Member {
    /// A parameter server, by its number.
    Server(u32),
    /// A rank, as configured.
    Rank {
        /// Its group.
        group: u32,
        /// Its number in the group.
        rank: u32,
    },
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(server) => write!(f, "server {server}"),
            Self::Rank { group, rank } => write!(f, "rank {rank} of group {group}"),
        }
    }
}
