//! Who a process is among those of its run or fleet, as its certificate names it.

use std::fmt;

use crate::{GroupId, RunId};

/// Who somebody is: each may ask for what its role needs, and for nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A server of the run or fleet.
    Server,
    /// A rank of this group, which speaks for its own group alone.
    Rank {
        /// The run.
        run: RunId,
        /// The group.
        group: GroupId,
    },
    /// Whoever owns the run or fleet: asks for its status, drains, takes snapshots.
    Person,
}

/// Begins the name of an identity in a certificate, which is a URI.
const SCHEME: &str = "tradewind:";

impl Identity {
    /// The name in a certificate: `tradewind:server`, `tradewind:rank/RUN/GROUP`, `tradewind:person`.
    pub fn uri(&self) -> String {
        match self {
            Self::Server => format!("{SCHEME}server"),
            Self::Rank { run, group } => format!("{SCHEME}rank/{run}/{group}"),
            Self::Person => format!("{SCHEME}person"),
        }
    }

    /// The identity of this name; `None` if it names none.
    pub fn of_uri(uri: &str) -> Option<Self> {
        match uri.strip_prefix(SCHEME)?.split('/').collect::<Vec<_>>()[..] {
            ["server"] => Some(Self::Server),
            ["rank", run, group] => Some(Self::Rank {
                run: RunId::new(run).ok()?,
                group: GroupId(group.parse().ok()?),
            }),
            ["person"] => Some(Self::Person),
            _ => None,
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => f.write_str("a server"),
            Self::Rank { run, group } => write!(f, "a rank of group {group} of run {run}"),
            Self::Person => f.write_str("a person"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_back_and_others_name_nobody() {
        let rank = Identity::Rank {
            run: RunId::new("climate-1.b").unwrap(),
            group: GroupId(3),
        };
        for (identity, uri) in [
            (Identity::Server, "tradewind:server"),
            (rank, "tradewind:rank/climate-1.b/3"),
            (Identity::Person, "tradewind:person"),
        ] {
            assert_eq!(identity.uri(), uri);
            assert_eq!(Identity::of_uri(uri), Some(identity));
        }
        for uri in [
            "",
            "server",
            "tradewind:",
            "tradewind:Server",
            "tradewind:server/1",
            "tradewind:rank/climate",
            "tradewind:rank/climate/-1",
            "tradewind:rank//0",
            "tradewind:rank/climate/1/2",
            "spiffe://tradewind/server",
        ] {
            assert_eq!(Identity::of_uri(uri), None, "{uri}");
        }
    }
}
