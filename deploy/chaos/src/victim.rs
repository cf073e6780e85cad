//! Whose processes a fault hurts. Nobody is asked whether it may.

use std::collections::BTreeSet;
use std::fmt;

use anyhow::Context;

use tradewind_launch::Member;

/// Who is meant by a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    Rank {
        group: u32,
        rank: u32,
    },
    /// All ranks of it.
    Group(u32),
    Server(u32),
    /// Whichever server hosts it by then.
    Coordinator,
    /// Whichever server answers for this shard by then.
    Primary(u32),
    /// The server and the group of this number, as if they shared a machine.
    Node(u32),
    /// Every server.
    Servers,
    /// Every process.
    All,
}

impl Victim {
    /// Whether it is made of servers alone.
    pub fn is_servers(self) -> bool {
        match self {
            Self::Server(_) | Self::Coordinator | Self::Primary(_) | Self::Servers => true,
            Self::Rank { .. } | Self::Group(_) | Self::Node(_) | Self::All => false,
        }
    }

    /// Says who is missing where there are so many servers, and groups of so many ranks.
    pub fn exists(self, servers: u32, groups: &[u32]) -> anyhow::Result<()> {
        let server = |server: u32| {
            anyhow::ensure!(
                server < servers,
                "there is no server {server}: they are 0 to {}",
                servers - 1
            );
            Ok(())
        };
        let ranks = |group: u32| {
            let ranks = groups.get(group as usize);
            ranks.copied().with_context(|| {
                format!(
                    "there is no group {group}: they are 0 to {}",
                    groups.len() - 1
                )
            })
        };
        match self {
            Self::Rank { group, rank } => {
                let ranks = ranks(group)?;
                anyhow::ensure!(
                    rank < ranks,
                    "there is no rank {rank} in group {group}: they are 0 to {}",
                    ranks - 1
                );
                Ok(())
            }
            Self::Group(group) => ranks(group).map(drop),
            // Shards are as many as servers.
            Self::Server(number) | Self::Primary(number) => server(number),
            Self::Node(node) => server(node).and_then(|()| ranks(node).map(drop)),
            Self::Coordinator | Self::Servers | Self::All => Ok(()),
        }
    }

    /// The sort of it, in a word.
    pub fn sort(self) -> &'static str {
        match self {
            Self::Rank { .. } => "rank",
            Self::Group(_) => "group",
            Self::Server(_) => "server",
            Self::Coordinator => "coordinator",
            Self::Primary(_) => "primary",
            Self::Node(_) => "node",
            Self::Servers => "servers",
            Self::All => "all",
        }
    }
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Rank { group, rank } => Member::Rank { group, rank }.fmt(f),
            Self::Group(group) => write!(f, "group {group}"),
            Self::Server(server) => Member::Server(server).fmt(f),
            Self::Coordinator => f.write_str("coordinator"),
            Self::Primary(shard) => write!(f, "primary of shard {shard}"),
            Self::Node(node) => write!(f, "node {node}"),
            Self::Servers => f.write_str("all servers"),
            Self::All => f.write_str("everything"),
        }
    }
}

/// Who is who, as it was seen last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The server that hosts the coordinator.
    pub host: Option<u32>,
    /// Which server answers for each shard, as they say themselves.
    pub primaries: Vec<Option<u32>>,
    /// Every shard has all its holders, and nothing has happened to them.
    pub whole: bool,
}

impl Known {
    /// Those of `present` who are meant; nobody, if nobody is there, or it is not known who it is.
    pub fn members(&self, victim: Victim, present: &BTreeSet<Member>) -> Vec<Member> {
        let server = |server: Option<u32>| {
            move |member: &Member| server.is_some_and(|server| *member == Member::Server(server))
        };
        let of_group = |number: u32| move |member: &Member| matches!(member, Member::Rank { group, .. } if *group == number);
        let meant = |is: &dyn Fn(&Member) -> bool| -> Vec<Member> {
            present.iter().copied().filter(|m| is(m)).collect()
        };
        match victim {
            Victim::Rank { group, rank } => meant(&|m| *m == Member::Rank { group, rank }),
            Victim::Group(group) => meant(&of_group(group)),
            Victim::Server(number) => meant(&server(Some(number))),
            Victim::Coordinator => meant(&server(self.host)),
            Victim::Primary(shard) => {
                let primary = self.primaries.get(shard as usize).copied().flatten();
                meant(&server(primary))
            }
            Victim::Node(node) => {
                let (server, ranks) = (server(Some(node)), of_group(node));
                meant(&|m| server(m) || ranks(m))
            }
            Victim::Servers => meant(&|m| matches!(m, Member::Server(_))),
            Victim::All => meant(&|_| true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn rank(group: u32, rank: u32) -> Member {
        Member::Rank { group, rank }
    }

    #[test]
    fn those_are_hurt_who_are_meant_and_there() {
        use Member::Server;
        let all = [Server(0), Server(2), rank(0, 0), rank(0, 1), rank(1, 1)];
        let present: BTreeSet<Member> = all.into_iter().collect();
        let known = Known {
            host: Some(2),
            primaries: vec![Some(2), Some(1), None],
            whole: true,
        };
        let cases: &[(Victim, &[Member])] = &[
            (Victim::Server(0), &[Server(0)]),
            (Victim::Server(1), &[]),
            (Victim::Coordinator, &[Server(2)]),
            (Victim::Primary(0), &[Server(2)]),
            (Victim::Primary(1), &[]),
            (Victim::Primary(2), &[]),
            (Victim::Primary(3), &[]),
            (Victim::Rank { group: 0, rank: 1 }, &[rank(0, 1)]),
            (Victim::Group(0), &[rank(0, 0), rank(0, 1)]),
            (Victim::Node(0), &[Server(0), rank(0, 0), rank(0, 1)]),
            (Victim::Node(1), &[rank(1, 1)]),
            (Victim::Servers, &[Server(0), Server(2)]),
            (Victim::All, &all),
        ];
        for (victim, want) in cases {
            let mut want = want.to_vec();
            want.sort();
            assert_eq!(known.members(*victim, &present), want, "{victim}");
        }
        for (victim, want) in [
            (Victim::Server(2), None),
            (Victim::Server(3), Some("no server 3: they are 0 to 2")),
            (Victim::Primary(3), Some("no server 3")),
            (Victim::Node(2), Some("no group 2: they are 0 to 1")),
            (Victim::Group(1), None),
            (
                Victim::Rank { group: 1, rank: 1 },
                Some("no rank 1 in group 1: they are 0 to 0"),
            ),
        ] {
            let told = victim
                .exists(3, &[2, 1])
                .err()
                .map(|error| error.to_string());
            assert_eq!(told.is_some(), want.is_some(), "{told:?}");
            assert!(told.unwrap_or_default().contains(want.unwrap_or("")));
        }
        let nobody = Known::default().members(Victim::Coordinator, &present);
        assert!(nobody.is_empty(), "nobody knows where it is");
    }
}
