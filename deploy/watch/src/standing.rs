//! How a run stands, from all who can tell: while the coordinator is away, that is the run's folder
//! and the servers' answers to pings.

use serde::Serialize;
use tradewind_common::RunId;
use tradewind_common::loss::Loss;
use tradewind_proto::holding::Holding;
use tradewind_proto::v1::{self, ShardStatusReply};

use crate::device::Device;
use tradewind_folder::cluster::{ClusterStatus, holding};
use tradewind_folder::events::Event;
use tradewind_launch::slurm::Queued;

/// How a run stands.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Standing {
    pub(crate) run: String,
    /// It is no run but servers of many.
    pub is_fleet: bool,
    pub(crate) folder: String,
    /// How it ended; `null` if it has not.
    pub ended: Option<String>,
    /// What it came to, in a line; `null` if it has not ended or cannot be told.
    pub(crate) result: Option<String>,
    /// It is being ended before its end.
    pub(crate) ending: Option<Ending>,
    /// It has not ended, but nobody keeps it going.
    pub abandoned: bool,
    pub(crate) coordinator: Coordinator,
    /// Jobs of Slurm that are not over, as it told when it was asked last.
    pub(crate) jobs: Vec<Queued>,
    /// Why it is not known which these are; `null` if it is.
    pub(crate) jobs_unknown: Option<String>,
    /// Whether it was ever handed in to Slurm.
    #[serde(skip)]
    pub is_slurm: bool,
    /// Of the run, as the coordinator says.
    pub(crate) phase: Option<String>,
    pub(crate) generation: Option<u64>,
    pub(crate) failure: Option<String>,
    pub(crate) groups: Vec<Group>,
    /// What the groups last wrote down of their GPUs; empty without any.
    pub(crate) devices: Vec<Device>,
    pub(crate) servers: Vec<Server>,
    pub(crate) shards: Vec<Shard>,
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) lost: Option<Loss>,
    /// Of a fleet; empty for a run.
    pub(crate) runs: Vec<FleetRun>,
    /// Oldest first.
    pub(crate) events: Vec<Event>,
}

/// A run that is on a fleet.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FleetRun {
    pub(crate) run: String,
    pub(crate) phase: String,
    pub(crate) failure: Option<String>,
    pub(crate) groups_live: usize,
    pub(crate) groups: usize,
    /// Of the group that has come furthest.
    pub(crate) clock: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Coordinator {
    /// Which life of it; `null` before there was one.
    pub(crate) incarnation: Option<u64>,
    pub(crate) address: Option<String>,
    /// Why it does not answer; `null` if it does.
    pub(crate) away: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Group {
    pub(crate) group: u32,
    pub(crate) state: String,
    pub(crate) incarnation: u64,
    /// Ranks as configured.
    pub(crate) size: u32,
    pub(crate) clock: u64,
    pub(crate) lag: u64,
    pub(crate) lease_left_ms: u64,
    /// Those that are in it.
    pub(crate) ranks: Vec<Rank>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Rank {
    pub(crate) rank: u32,
    pub(crate) clock: u64,
    pub(crate) lease_left_ms: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Server {
    pub(crate) server: u32,
    pub(crate) incarnation: u64,
    pub(crate) address: String,
    /// Its lease holds; while the coordinator is away: it answers a ping.
    pub(crate) alive: bool,
    pub(crate) lease_left_ms: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Shard {
    pub(crate) shard: u32,
    pub(crate) primary: Option<u32>,
    /// Whom it waits for while it has no primary.
    pub(crate) waits_for: Vec<String>,
    pub(crate) copies: Vec<Copy>,
    /// What follows is `null` if nobody answers for it.
    pub(crate) bytes: Option<u64>,
    pub(crate) blocks: Option<u64>,
    pub(crate) version_min: Option<u64>,
    pub(crate) version_max: Option<u64>,
    /// Bytes of values, as they travelled, that contributions brought to its primary, and that its answers
    /// carried.
    pub(crate) pushed_bytes: Option<u64>,
    pub(crate) pulled_bytes: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Copy {
    pub(crate) server: u32,
    pub(crate) full: bool,
}

/// The launcher ends the run: groups leave, a last snapshot is taken, the summary is written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Ending {
    /// The last snapshot, once it is whole.
    pub(crate) snapshot: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Snapshot {
    pub(crate) number: u64,
    /// When it was written, seconds since the Unix epoch.
    pub(crate) wall: Option<f64>,
}

impl Standing {
    /// Whether nothing will change any more.
    pub fn over(&self) -> bool {
        self.ended.is_some() || self.abandoned
    }

    /// Whether no process works on it any more: of one that is abandoned servers may still be there.
    pub fn is_at_rest(&self) -> bool {
        self.over() && !self.servers.iter().any(|server| server.alive)
    }

    pub(crate) fn take_in(&mut self, cluster: ClusterStatus) -> anyhow::Result<()> {
        let holding = holding(&cluster.run)?;
        let status = cluster.run;
        self.lost = Some(status.lost());
        self.phase = Some(status.phase);
        self.generation = Some(status.generation);
        self.failure = Some(status.failure).filter(|text| !text.is_empty());
        self.coordinator.incarnation = Some(status.coordinator);
        self.groups = status.groups.into_iter().map(group).collect();
        self.servers = status.servers.into_iter().map(server).collect();
        self.shards = shards(&holding, &cluster.shards);
        for v1::WaitingShard { shard, waits_for } in status.waiting {
            if let Some(shard) = self.shards.get_mut(shard as usize) {
                shard.waits_for = waits_for;
            }
        }
        Ok(())
    }
}

pub(crate) fn fleet_run(name: &RunId, status: &v1::StatusReply) -> FleetRun {
    let live = status.groups.iter().filter(|group| group.state == "live");
    let clocks = status.groups.iter().map(|group| group.clock);
    FleetRun {
        run: name.to_string(),
        phase: status.phase.clone(),
        failure: Some(status.failure.clone()).filter(|text| !text.is_empty()),
        groups_live: live.count(),
        groups: status.groups.len(),
        clock: clocks.max().unwrap_or_default(),
    }
}

fn group(status: v1::GroupStatus) -> Group {
    let rank = |rank: v1::RankStatus| Rank {
        rank: rank.rank,
        clock: rank.clock,
        lease_left_ms: rank.lease_left_ms,
    };
    Group {
        group: status.group,
        state: status.state,
        incarnation: status.incarnation,
        size: status.size,
        clock: status.clock,
        lag: status.lag,
        lease_left_ms: status.lease_left_ms,
        ranks: status.ranks.into_iter().map(rank).collect(),
    }
}

pub(crate) fn server(status: v1::ServerStatus) -> Server {
    Server {
        server: status.server,
        incarnation: status.incarnation,
        address: status.address,
        alive: status.alive,
        lease_left_ms: Some(status.lease_left_ms),
    }
}

fn shards(holding: &Holding, told: &[Option<ShardStatusReply>]) -> Vec<Shard> {
    let shard = |(number, holders): (usize, &tradewind_common::holders::Holders)| {
        let told = told.get(number).and_then(Option::as_ref);
        let copy = |copy: &tradewind_common::holders::CopyHolder| Copy {
            server: copy.server.0,
            full: copy.full,
        };
        Shard {
            shard: number as u32,
            primary: holders.primary.map(|primary| primary.server.0),
            waits_for: Vec::new(),
            copies: holders.copies.iter().map(copy).collect(),
            bytes: told.map(|told| told.bytes),
            blocks: told.map(|told| told.blocks),
            version_min: told.map(|told| told.version_min),
            version_max: told.map(|told| told.version_max),
            pushed_bytes: told.map(|told| told.pushed_bytes),
            pulled_bytes: told.map(|told| told.pulled_bytes),
        }
    };
    holding.holders.iter().enumerate().map(shard).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use tradewind_proto::v1::{
        CopyHolder, GroupStatus, Holders, Placement, RankStatus, ServerEndpoint, ServerStatus,
        StatusReply,
    };

    use super::*;
    use tradewind_proto::v1::WaitingShard;

    /// Two shards, of which nobody answers for the second.
    pub(crate) fn standing() -> Standing {
        let endpoint = |server| ServerEndpoint {
            server,
            address: format!("127.0.0.1:400{server}"),
            incarnation: 1,
        };
        let copy = |server, full| CopyHolder {
            server,
            since: 3,
            full,
        };
        let holders = |primary, copies| Holders {
            primary,
            primary_since: 1,
            copies,
            ..Holders::default()
        };
        let holding = v1::Holding {
            generation: 12,
            servers: (0..3).map(endpoint).collect(),
            holders: vec![
                holders(Some(1), vec![copy(0, true), copy(2, false)]),
                holders(None, vec![]),
            ],
        };
        let rank = |rank| RankStatus {
            rank,
            life: 1,
            clock: 412,
            lease_left_ms: 9_800,
        };
        let group = |group, state: &str, ranks: u32| GroupStatus {
            group,
            size: 2,
            incarnation: 3,
            state: state.into(),
            clock: 412 - u64::from(group),
            lag: u64::from(group),
            lease_left_ms: 9_800,
            ranks: (0..ranks).map(rank).collect(),
            draining: false,
        };
        let server = |server, alive| ServerStatus {
            server,
            incarnation: 1,
            address: format!("127.0.0.1:400{server}"),
            alive,
            lease_left_ms: if alive { 9_100 } else { 0 },
        };
        let run = StatusReply {
            generation: 12,
            phase: "ready".into(),
            groups: vec![group(0, "live", 2), group(1, "gathering", 1)],
            placement: Some(Placement {
                bucket_bytes: None,
                shards: vec![0, 1],
                holding: Some(holding),
            }),
            servers: vec![server(0, true), server(1, true), server(2, false)],
            lost_updates: 7,
            lost_samples: 40,
            waiting: vec![WaitingShard {
                shard: 1,
                waits_for: vec!["server 2, incarnation 1 (silent for 12 s)".into()],
            }],
            coordinator: 2,
            ..StatusReply::default()
        };
        let told = ShardStatusReply {
            bytes: 3 << 20,
            blocks: 12,
            version_min: 410,
            version_max: 412,
            ..ShardStatusReply::default()
        };
        let mut standing = Standing {
            run: "r".into(),
            folder: "runs/r".into(),
            ..Standing::default()
        };
        let shards = vec![Some(told), None];
        standing.take_in(ClusterStatus { run, shards }).unwrap();
        standing
    }

    #[test]
    fn json_tells_who_holds_what() {
        let json = serde_json::to_value(standing()).unwrap();
        assert_eq!(json["phase"], "ready");
        assert_eq!(json["shards"][0]["primary"], 1);
        assert_eq!(json["shards"][0]["copies"][1]["full"], false);
        assert_eq!(json["shards"][1]["primary"], serde_json::Value::Null);
        assert_eq!(json["shards"][1]["bytes"], serde_json::Value::Null);
        let whom = "server 2, incarnation 1 (silent for 12 s)";
        assert_eq!(json["shards"][1]["waits_for"], serde_json::json!([whom]));
        assert_eq!(json["shards"][0]["waits_for"], serde_json::json!([]));
        assert_eq!(json["lost"]["updates"], 7);
        assert_eq!(json["groups"][1]["ranks"][0]["clock"], 412);
    }
}
