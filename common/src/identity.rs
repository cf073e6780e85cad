//! Who a process is among those of its run or fleet, as its certificate names it.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{GroupId, Rank, RunId, ServerId};

/// Who somebody is: each may ask for what its role needs, and for nothing else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Identity {
    /// The server of this number; without one, who speaks to servers as one of them, such as a launcher.
    Server(Option<ServerId>),
    /// A rank of this group, which speaks for its own group alone.
    Rank {
        /// The run.
        run: RunId,
        /// The group.
        group: GroupId,
        /// Which rank of the group; without a number, any.
        rank: Option<Rank>,
    },
    /// Asks for status, drains, takes snapshots: whoever has this name; without one, the owner of the run or fleet.
    Person(Option<PersonName>),
}

/// The name of a person: the same characters as in the name of a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PersonName(RunId);

/// A name that cannot be a [`PersonName`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a person's name {0:?} is not 1 to 64 characters of letters, digits, '.', '_' and '-', starting with a letter or a digit"
)]
pub struct BadPersonName(pub String);

/// Text that names no [`Identity`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names nobody of a run or fleet")]
pub struct NobodysName(pub String);

/// What it is that was shut out, when somebody's certificate is good for nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutOut {
    /// A group, and it is one of its ranks.
    Group,
    /// The rank alone.
    Rank,
    /// The server.
    Server,
    /// The person.
    Person,
}

/// Begins the name of an identity in a certificate, which is a URI.
const SCHEME: &str = "tradewind:";

impl PersonName {
    /// Checks the name.
    pub fn new(name: &str) -> Result<Self, BadPersonName> {
        let checked = RunId::new(name).map_err(|_| BadPersonName(name.to_owned()))?;
        Ok(Self(checked))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl Identity {
    /// The name in a certificate: `tradewind:server/SERVER`, `tradewind:rank/RUN/GROUP/RANK`,
    /// `tradewind:person/NAME`; the last part is missing where an identity has none.
    pub fn uri(&self) -> String {
        match self {
            Self::Server(None) => format!("{SCHEME}server"),
            Self::Server(Some(server)) => format!("{SCHEME}server/{server}"),
            Self::Rank { run, group, rank } => match rank {
                None => format!("{SCHEME}rank/{run}/{group}"),
                Some(rank) => format!("{SCHEME}rank/{run}/{group}/{rank}"),
            },
            Self::Person(None) => format!("{SCHEME}person"),
            Self::Person(Some(name)) => format!("{SCHEME}person/{name}"),
        }
    }

    /// The identity of this name; `None` if it names none.
    pub fn of_uri(uri: &str) -> Option<Self> {
        let rank = |run: &str, group: &str, rank| {
            Some(Self::Rank {
                run: RunId::new(run).ok()?,
                group: GroupId(number(group)?),
                rank,
            })
        };
        match uri.strip_prefix(SCHEME)?.split('/').collect::<Vec<_>>()[..] {
            ["server"] => Some(Self::Server(None)),
            ["server", server] => Some(Self::Server(Some(ServerId(number(server)?)))),
            ["rank", run, group] => rank(run, group, None),
            ["rank", run, group, of] => rank(run, group, Some(Rank(number(of)?))),
            ["person"] => Some(Self::Person(None)),
            ["person", name] => Some(Self::Person(Some(PersonName::new(name).ok()?))),
            _ => None,
        }
    }

    /// Whether its certificates are good for nothing any more, where these are revoked: by itself, or with its group.
    pub fn is_shut_out(&self, revoked: &BTreeSet<Self>) -> Option<ShutOut> {
        let itself = match self {
            Self::Server(_) => ShutOut::Server,
            Self::Rank { rank: None, .. } => ShutOut::Group,
            Self::Rank { .. } => ShutOut::Rank,
            Self::Person(_) => ShutOut::Person,
        };
        let whole = match self {
            Self::Rank { run, group, .. } => Self::Rank {
                run: run.clone(),
                group: *group,
                rank: None,
            },
            other => return revoked.contains(other).then_some(itself),
        };
        match revoked.contains(&whole) {
            true => Some(ShutOut::Group),
            false => revoked.contains(self).then_some(itself),
        }
    }
}

/// A number as it is written: nobody has two names.
fn number(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

impl fmt::Display for PersonName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ShutOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Group => "its group",
            Self::Rank => "this rank",
            Self::Server => "this server",
            Self::Person => "this person",
        })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(None) => f.write_str("a server"),
            Self::Server(Some(server)) => write!(f, "server {server}"),
            Self::Rank { run, group, rank } => match rank {
                None => write!(f, "a rank of group {group} of run {run}"),
                Some(rank) => write!(f, "rank {rank} of group {group} of run {run}"),
            },
            Self::Person(None) => f.write_str("a person"),
            Self::Person(Some(name)) => write!(f, "the person {name}"),
        }
    }
}

impl TryFrom<String> for Identity {
    type Error = NobodysName;
    fn try_from(uri: String) -> Result<Self, NobodysName> {
        Self::of_uri(&uri).ok_or(NobodysName(uri))
    }
}

impl From<Identity> for String {
    fn from(identity: Identity) -> Self {
        identity.uri()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(group: u32, rank: Option<u32>) -> Identity {
        Identity::Rank {
            run: RunId::new("climate-1.b").unwrap(),
            group: GroupId(group),
            rank: rank.map(Rank),
        }
    }

    fn person(name: &str) -> Identity {
        Identity::Person(Some(PersonName::new(name).unwrap()))
    }

    #[test]
    fn a_name_comes_back_and_others_name_nobody() {
        for (identity, uri) in [
            (Identity::Server(None), "tradewind:server"),
            (Identity::Server(Some(ServerId(12))), "tradewind:server/12"),
            (rank(3, None), "tradewind:rank/climate-1.b/3"),
            (rank(3, Some(0)), "tradewind:rank/climate-1.b/3/0"),
            (Identity::Person(None), "tradewind:person"),
            (person("alice.b"), "tradewind:person/alice.b"),
        ] {
            assert_eq!(identity.uri(), uri);
            assert_eq!(Identity::of_uri(uri), Some(identity));
        }
        for uri in [
            "",
            "server",
            "tradewind:",
            "tradewind:Server",
            "tradewind:server/",
            "tradewind:server/-1",
            "tradewind:server/1/2",
            "tradewind:rank/climate",
            "tradewind:rank/climate/-1",
            "tradewind:rank/climate/01",
            "tradewind:rank/climate/+1",
            "tradewind:rank//0",
            "tradewind:rank/climate/1/",
            "tradewind:rank/climate/1/02",
            "tradewind:rank/climate/1/2/3",
            "tradewind:person/",
            "tradewind:person/a b",
            "tradewind:person/a/b",
            "spiffe://tradewind/server",
        ] {
            assert_eq!(Identity::of_uri(uri), None, "{uri}");
        }
    }

    #[test]
    fn a_group_takes_its_ranks_along_and_nobody_else_does() {
        let revoked: BTreeSet<_> = [
            rank(1, None),
            rank(2, Some(0)),
            Identity::Server(Some(ServerId(2))),
            person("alice"),
        ]
        .into();
        for (identity, shut_out) in [
            (rank(1, Some(0)), Some(ShutOut::Group)),
            (rank(1, None), Some(ShutOut::Group)),
            (rank(2, Some(0)), Some(ShutOut::Rank)),
            (rank(2, Some(1)), None),
            (rank(2, None), None),
            (Identity::Server(Some(ServerId(2))), Some(ShutOut::Server)),
            (Identity::Server(Some(ServerId(1))), None),
            (Identity::Server(None), None),
            (person("alice"), Some(ShutOut::Person)),
            (person("bob"), None),
            (Identity::Person(None), None),
        ] {
            assert_eq!(identity.is_shut_out(&revoked), shut_out, "{identity}");
        }
    }
}
