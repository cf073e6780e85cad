//! A coordinator under a script of what happens, line by line, with what comes of it.
//!
//! Ranks: `join 0.1 b`: rank 1 of group 0 joins as process b. `await 0.1@2 [created]`, `beat 0.1@2
//! [7]`, `lost 0.1@2`, `leave 0.1@2 [done 4]`: that rank in incarnation 2 calls, its connection breaks.
//! `lease 0@2 [done 4] [holds 5]`: its group asks for data.
//!
//! `remove`: the run is forgotten. `attach 2+1`: groups of two and of one rank are added. `drain 0 1`, `drain all`: groups are asked to
//! leave.
//!
//! Servers: `up 1 [life 2]` registers, `down 1` is cut off, `live 1` beats. `ack 1 [saw 7]
//! [complete|empty] [of 1] [full 2 [since 4]] [stalled 2] [restored 1 [lacks 3]] [damaged] [failed]
//! [at 5]`: server 1 has followed the last order in everything that it holds, or in shard 1; server 2
//! has a full copy, or confirms nothing; snapshot 1 is restored, without 3 updates.
//!
//! Snapshots: `shot a` asks for one, `captured 1 [passed 7] [failed]`, `written [failed]`.
//! `pass 50`: so many milliseconds pass. `events` prints what has happened since it was last asked,
//! `holders` who holds what.
//!
//! `=>` is followed by the answers and the last order that went to servers: `view <generation>
//! <live groups @incarnation:start> + <joined groups> by <creator>`, then what has changed of the
//! holders (`shard:primary@since+copy@since* ^lineage`, `*` for full; `shard:->heir@since?candidate`
//! while nobody answers), shards to restore and to capture.

use std::collections::{BTreeMap, BTreeSet};

use tradewind_common::spec::{ConsistencySpec, RunSpec};
use tradewind_common::{Clock, Generation, GroupId, Incarnation, RunId, ServerId, ShardId};

mod call;
mod outcome;
mod script;
mod show;

pub(super) use self::script::{check, play};
use self::show::{said, show_holders, show_view};
use super::spec;
use crate::ReplyTo;
use crate::coordinator::Coordinator;
use crate::durable::Durable;
use crate::order::{Order, Server, ShardReport};
use crate::run::Run;
use crate::saved::ManifestData;
use crate::view::View;

/// Length of a server's lease.
pub(super) const SERVER_LEASE_MS: u64 = 1_000;

/// A coordinator, and who waits for its answers.
pub(super) struct Harness {
    pub(super) spec: RunSpec,
    pub(super) coordinator: Coordinator,
    pub(super) manifests: Vec<ManifestData>,
    /// Servers beat by themselves.
    pub(super) keep_servers: bool,
    servers: u32,
    folder: bool,
    run: RunId,
    now_ms: u64,
    order: Option<Box<Order>>,
    /// The last order to each server.
    told: BTreeMap<ServerId, Box<Order>>,
    /// What each server has followed of membership.
    views: BTreeMap<ServerId, View>,
    /// By call: who, and the words of those that wait.
    callers: BTreeMap<ReplyTo, String>,
    waiting: BTreeMap<ReplyTo, String>,
    /// Servers whose shards are complete: they say so with every later acknowledgement.
    complete: BTreeSet<ServerId>,
    up: BTreeMap<ServerId, Incarnation>,
    lives: BTreeMap<ServerId, Incarnation>,
    reports: BTreeMap<(ServerId, ShardId), ShardReport>,
    written: String,
    heard: u64,
    /// Whoever has answered for a shard, and since when.
    primaries: BTreeSet<(ShardId, ServerId, Generation)>,
    saw: Option<Clock>,
    /// Who was told to create.
    pub(super) creators: BTreeSet<String>,
    lives_seen: BTreeMap<GroupId, Incarnation>,
}

impl Harness {
    /// A fleet whose servers have registered, every two on a host.
    pub(super) fn new(spec: RunSpec, servers: u32, folder: bool) -> Self {
        let coordinator = Coordinator::new(servers, folder, SERVER_LEASE_MS);
        Self::with(spec, servers, folder, coordinator)
    }

    pub(super) fn with(
        spec: RunSpec,
        servers: u32,
        folder: bool,
        coordinator: Coordinator,
    ) -> Self {
        let mut harness = Self {
            spec,
            coordinator,
            manifests: Vec::new(),
            keep_servers: false,
            servers,
            folder,
            run: RunId::new("r").unwrap(),
            now_ms: 0,
            order: None,
            callers: BTreeMap::new(),
            waiting: BTreeMap::new(),
            complete: BTreeSet::new(),
            up: BTreeMap::new(),
            lives: BTreeMap::new(),
            reports: BTreeMap::new(),
            written: String::new(),
            heard: 0,
            told: BTreeMap::new(),
            views: BTreeMap::new(),
            primaries: BTreeSet::new(),
            saw: None,
            creators: BTreeSet::new(),
            lives_seen: BTreeMap::new(),
        };
        for id in 0..servers {
            harness.happen(&format!("up {id}"));
        }
        harness
    }

    /// What comes of a line.
    pub(super) fn happen(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let to = ReplyTo(self.callers.len() as u64);
        let who = words.get(1).copied().unwrap_or_default();
        self.callers.insert(to, who.into());
        if matches!(
            words[0],
            "join" | "await" | "shot" | "attach" | "drain" | "remove"
        ) {
            self.waiting.insert(to, line.into());
        }
        let at_once = self.call(&words, to);
        self.write_down();
        let at_once = at_once.map(|result| format!("{who} {}", said(result)).trim().to_string());
        let at_once = at_once.into_iter();
        at_once.chain(self.outputs()).collect::<Vec<_>>().join(", ")
    }

    /// What has changed is written down before it is acted on, and nothing that has changed is
    /// forgotten. It goes the way of files: what changes is written behind what was written before.
    pub(super) fn write_down(&mut self) {
        let durable = serde_json::to_string(&self.coordinator.durable()).unwrap();
        let same = plain(&self.written) == plain(&durable);
        assert!(
            self.coordinator.take_dirty() | self.coordinator.take_leased() || same,
            "a change is not written down"
        );
        let change = serde_json::to_string(&self.coordinator.take_change()).unwrap();
        self.written = match self.written.is_empty() {
            true => durable.clone(),
            false => {
                let mut written: Durable = serde_json::from_str(&self.written).unwrap();
                written
                    .change(serde_json::from_str(&change).unwrap())
                    .unwrap();
                serde_json::to_string(&written).unwrap()
            }
        };
        assert_eq!(
            plain(&self.written),
            plain(&durable),
            "a change is not told: {change}"
        );
    }

    /// The coordinator dies, and another goes on with what was written down: servers register
    /// again and say what they said last, callers that wait call again. Nothing comes of it.
    pub(super) fn recover(&mut self) -> Result<(), String> {
        let durable: Durable = serde_json::from_str(&self.written).unwrap();
        let before = self.picture();
        self.coordinator = Coordinator::recover(
            self.servers,
            self.folder,
            SERVER_LEASE_MS,
            durable,
            self.now_ms,
        );
        // Every lease was written down.
        self.coordinator.settle();
        for (id, life) in self.up.clone() {
            self.coordinator
                .register(id, at(id, life), self.now_ms)
                .unwrap();
        }
        for ((server, _), report) in self.reports.clone() {
            if self.up.contains_key(&server) {
                let run = self.run.clone();
                let _ = self.coordinator.report(server, &run, report, self.now_ms);
            }
        }
        for (to, line) in self.waiting.clone() {
            let words: Vec<&str> = line.split_whitespace().collect();
            self.call(&words, to);
        }
        self.heard = 0;
        self.write_down();
        let told = self.order.is_some();
        let mut outputs = self.outputs();
        if !told {
            self.order = None;
        }
        outputs.retain(|said| !said.starts_with("view") && !said.starts_with("manifest"));
        self.heard = self
            .coordinator
            .recent_events()
            .last()
            .map_or(0, |e| e.number);
        let after = self.picture();
        if outputs.is_empty() && before == after {
            return Ok(());
        }
        Err(format!("{outputs:?}\n{before}\n{after}"))
    }

    /// Whether a rank waits to join.
    pub(super) fn joins(&self, rank: &str) -> bool {
        let join = format!("join {rank} ");
        self.waiting.values().any(|line| line.starts_with(&join))
    }

    /// Whether a server is there.
    pub(super) fn is_up(&self, server: u32) -> bool {
        self.up.contains_key(&ServerId(server))
    }

    /// The run, once it has been joined.
    pub(super) fn run(&self) -> Option<&Run> {
        self.coordinator.run(&self.run).ok()
    }

    fn picture(&self) -> String {
        let Ok(run) = self.coordinator.run(&self.run) else {
            return String::new();
        };
        let holders: Vec<_> = run.holders().cloned().collect();
        let (phase, view) = (run.phase(), run.view());
        format!("{phase:?} {} {}", show_view(&view), show_holders(&holders))
    }
}

/// A server and its place.
pub(super) fn at(id: ServerId, incarnation: Incarnation) -> Server {
    Server {
        incarnation,
        address: format!("server-{id}"),
        host: format!("host-{}", id.0 / 2),
    }
}

/// A run of groups of these sizes.
pub(super) fn run_of(sizes: &[u32]) -> RunSpec {
    let mut spec = spec(sizes, ConsistencySpec::Async);
    spec.faults.reform_grace_ms = 50;
    spec
}

/// Without what is not worth a write: what a rank says with every beat, and that every shard knows of a
/// group which may push, as servers say again.
fn plain(written: &str) -> String {
    let written = written.replace("\"entered\":true", "\"entered\":false");
    let mut pieces = written.split("{\"Admitting\":");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (_, rest) = piece.split_once('}').expect("it is JSON");
        plain += "\"Live\"";
        plain += rest;
    }
    plain
}
