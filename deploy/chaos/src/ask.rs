//! Asks the servers of a run directly, not through what stands in front of them: who is cut off is
//! still watched.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use tradewind_common::RunId;
use tradewind_proto::v1::coordinator_client::CoordinatorClient;
use tradewind_proto::v1::shard_client::ShardClient;
use tradewind_proto::v1::{ShardStatusReply, ShardStatusRequest, StatusReply, StatusRequest};

use tradewind_folder::cluster::{Access, Connection};
use tradewind_launch::Roster;

/// How long an answer may take; a process that is stopped gives none.
const PATIENCE: Duration = Duration::from_millis(300);

/// What a server says of a shard.
#[derive(Clone, Debug)]
pub struct Seen {
    pub shard: u32,
    pub reply: ShardStatusReply,
}

/// Connections to the present servers.
#[derive(Debug)]
pub struct Ask {
    access: Access,
    roster: Roster,
    run: RunId,
    open: BTreeMap<String, Connection>,
    /// Servers that are not asked, because they are stopped.
    spared: BTreeSet<u32>,
}

impl Ask {
    pub fn new(access: Access, roster: Roster, run: RunId) -> Self {
        Self {
            access,
            roster,
            run,
            open: BTreeMap::new(),
            spared: BTreeSet::new(),
        }
    }

    /// Leaves these out from now on: whoever waits for their answers looks less often.
    pub fn spare(&mut self, servers: BTreeSet<u32>) {
        self.spared = servers;
    }

    /// Every coordinator that answers, and the server that hosts it; a deposed one may be among them.
    pub async fn coordinators(&mut self) -> Vec<(u32, StatusReply)> {
        let servers = self.connect().await;
        let run = self.run.to_string();
        let asked = servers.into_iter().map(|(server, connection)| {
            let request = StatusRequest { run: run.clone() };
            async move {
                let mut client = CoordinatorClient::new(connection);
                let told = timeout(PATIENCE, client.status(request)).await;
                Some((server, told.ok()?.ok()?.into_inner()))
            }
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// The present coordinator, if it answers.
    pub async fn coordinator(&mut self) -> Option<(u32, StatusReply)> {
        let all = self.coordinators().await;
        all.into_iter().max_by_key(|(_, told)| told.coordinator)
    }

    /// What every server says of every shard that it holds.
    pub async fn shards(&mut self, count: u32) -> Vec<Seen> {
        let servers = self.connect().await;
        let run = self.run.to_string();
        let asked = servers.into_iter().flat_map(|(_, connection)| {
            let run = run.clone();
            (0..count).map(move |shard| {
                let mut client = ShardClient::new(connection.clone());
                let run = run.clone();
                async move {
                    let request = ShardStatusRequest {
                        run,
                        shard,
                        digest: true,
                    };
                    let told = timeout(PATIENCE, client.shard_status(request)).await;
                    let reply = told.ok()?.ok()?.into_inner();
                    Some(Seen { shard, reply })
                }
            })
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// A connection to every server that listens. They mend themselves when they break.
    async fn connect(&mut self) -> Vec<(u32, Connection)> {
        let servers = self.roster.servers();
        self.open
            .retain(|open, _| servers.iter().any(|(_, address)| address == open));
        let mut connections = Vec::new();
        for (server, address) in servers {
            if self.spared.contains(&server) {
                continue;
            }
            let connection = match self.open.get(&address) {
                Some(open) => open.clone(),
                None => {
                    let connecting = timeout(PATIENCE, self.access.connect(&address)).await;
                    let Ok(Ok(new)) = connecting else { continue };
                    self.open.insert(address, new.clone());
                    new
                }
            };
            connections.push((server, connection));
        }
        connections
    }
}
