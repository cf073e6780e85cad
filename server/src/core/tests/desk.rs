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
//! [complete|empty] [of 1] [full 2 [since 4]] [lost 3] [restored 1] [damaged] [failed] [at 5]`:
//! server 1 has followed the last order in everything that it holds, or in shard 1; server 2 has a
//! full copy.
//!
//! Snapshots: `shot a` asks for one, `captured 1 [passed 7] [failed]`, `written [failed]`.
//! `pass 50`: so many milliseconds pass. `events` prints what has happened since it was last asked,
//! `holders` who holds what.
//!
//! `=>` is followed by the answers and the last order that went to servers: `view <generation>
//! <live groups @incarnation:start> + <joined groups> by <creator>`, then what has changed of the
//! holders (`shard:primary@since+copy@since* ^lineage`, `*` for full), shards to restore and to
//! capture.

use std::collections::{BTreeMap, BTreeSet};

use tradewind_common::holders::{CopyHolder, Holders};
use tradewind_common::spec::{ConsistencySpec, RunSpec};
use tradewind_common::{Clock, Generation, GroupId, Incarnation, Rank, RunId, ServerId, ShardId};

mod show;

use self::show::{said, show, show_holders, show_view, word};
use super::spec;
use crate::core::ReplyTo;
use crate::core::answer::{Answer, Refused};
use crate::core::coordinator::{Coordinator, Output};
use crate::core::durable::{Durable, ManifestData};
use crate::core::order::{NotCaptured, Order, Server, ShardFile, ShardReport};
use crate::core::run::{Beat, Beaten, Caller, Join, Run};
use crate::core::view::Acknowledge;

/// Length of a server's lease.
pub(super) const SERVER_LEASE_MS: u64 = 1_000;

/// A coordinator, and who waits for its answers.
pub(super) struct Desk {
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

impl Desk {
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
        let mut desk = Self {
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
            primaries: BTreeSet::new(),
            saw: None,
            creators: BTreeSet::new(),
            lives_seen: BTreeMap::new(),
        };
        for id in 0..servers {
            desk.happen(&format!("up {id}"));
        }
        desk
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

    fn call(&mut self, words: &[&str], to: ReplyTo) -> Option<Result<String, Refused>> {
        let (run, now_ms) = (self.run.clone(), self.now_ms);
        let after = |name| words.iter().position(|w| *w == name).map(|i| words[i + 1]);
        let number = |name| after(name).map(|text| text.parse::<u64>().unwrap());
        let server = || ServerId(words[1].parse().unwrap());
        let coordinator = &mut self.coordinator;
        match words[0] {
            "join" => {
                let (group, rank) = words[1].split_once('.').unwrap();
                let join = Join {
                    group: GroupId(group.parse().unwrap()),
                    rank: Rank(rank.parse().unwrap()),
                    life: u64::from(words[2].as_bytes()[0]),
                    store_address: format!("store-{rank}{}", words[2]),
                };
                coordinator.join(run, self.spec.clone(), join, to, now_ms);
                None
            }
            "await" => {
                let created = words.contains(&"created");
                coordinator.await_ready(&run, caller(words[1]), created, to, now_ms);
                None
            }
            "beat" => {
                let clock = Clock(words.get(2).map_or(0, |clock| clock.parse().unwrap()));
                let speed = number("speed").unwrap_or(0) as f64;
                let beat = Beat {
                    clock,
                    steps_per_second: speed,
                };
                let beaten = coordinator.heartbeat(&run, caller(words[1]), beat, now_ms);
                let text = |beaten: Beaten| {
                    let leave = if beaten.leave { " and leave" } else { "" };
                    match beaten.steps_per_second_max {
                        0.0 => format!("at {}{leave}", beaten.generation),
                        fastest => format!("at {} fastest {fastest}{leave}", beaten.generation),
                    }
                };
                Some(beaten.map(text))
            }
            "lost" => {
                coordinator.rank_lost(&run, caller(words[1]), now_ms);
                None
            }
            "leave" => {
                let finished = number("done").into_iter().collect::<Vec<_>>();
                let left = coordinator.leave(&run, caller(words[1]), &finished, now_ms);
                Some(left.map(|()| "left".into()))
            }
            "lease" => {
                let caller = caller(words[1]);
                let owner = (caller.group, caller.incarnation);
                let list = |name| number(name).into_iter().collect::<Vec<_>>();
                let chunk = coordinator.lease_chunk(&run, owner, &list("done"), &list("holds"));
                Some(chunk.map(|chunk| format!("chunk {}", chunk.number)))
            }
            "up" => {
                let life = Incarnation(number("life").unwrap_or(1));
                let registered = coordinator.register(server(), at(server(), life), now_ms);
                let same = self.lives.insert(server(), life) == Some(life);
                if registered.is_ok() {
                    self.up.insert(server(), life);
                }
                if !same {
                    self.complete.remove(&server());
                    self.reports.retain(|(of, _), _| *of != server());
                }
                registered.err().map(Err)
            }
            "down" => {
                let life = self.up.remove(&server()).unwrap();
                self.reports.retain(|(of, _), _| *of != server());
                coordinator.server_lost(server(), life, now_ms);
                None
            }
            "live" => {
                let life = self.up[&server()];
                let beat = coordinator.server_beat(server(), life, now_ms);
                beat.err().map(Err)
            }
            "ack" => self.acknowledge(server(), words).err().map(Err),
            "attach" => {
                let sizes = words[1].split('+').map(|size| size.parse().unwrap());
                coordinator.attach(&run, &sizes.collect::<Vec<_>>(), to, now_ms);
                None
            }
            "drain" => {
                let groups = words[1..].iter().filter(|word| **word != "all");
                let groups: Vec<_> = groups.map(|id| GroupId(id.parse().unwrap())).collect();
                coordinator.ask_to_leave(&run, &groups, to, now_ms);
                None
            }
            "remove" => {
                coordinator.remove(&run, to, now_ms);
                None
            }
            "shot" => {
                coordinator.snapshot(&run, to, now_ms);
                None
            }
            "captured" => {
                let captures = self.told.get(&server())?.capture.clone();
                let mut captures = captures.into_iter();
                captures.find_map(|capture| {
                    let result = match number("passed") {
                        Some(clock) => Err(NotCaptured::Passed(Clock(clock))),
                        None if words.contains(&"failed") => {
                            Err(NotCaptured::Failed("disk full".into()))
                        }
                        None => Ok(file(capture.shard, capture.at_clock)),
                    };
                    let (shard, number) = (capture.shard, capture.number);
                    let coordinator = &mut self.coordinator;
                    let taken = coordinator.captured(server(), &run, shard, number, result, now_ms);
                    taken.err().map(Err)
                })
            }
            "written" => {
                let number = self.manifests.last().expect("a manifest").number;
                let failed = words.contains(&"failed");
                let result = if failed { Err("full".into()) } else { Ok(()) };
                coordinator.written(&run, number, result, now_ms);
                None
            }
            "pass" => {
                self.now_ms += words[1].parse::<u64>().unwrap();
                for (id, life) in self.up.iter().filter(|_| self.keep_servers) {
                    let _ = coordinator.server_beat(*id, *life, self.now_ms);
                }
                coordinator.tick(self.now_ms);
                None
            }
            "events" => Some(Ok(self.events())),
            "holders" => {
                let run = self.coordinator.run(&self.run).unwrap();
                Some(Ok(show_holders(run.holders())))
            }
            other => panic!("{other}?"),
        }
    }

    fn acknowledge(&mut self, server: ServerId, words: &[&str]) -> Result<(), Refused> {
        let after = |name| words.iter().position(|w| *w == name).map(|i| words[i + 1]);
        let number = |name| after(name).map(|text| text.parse::<u64>().unwrap());
        if words.contains(&"complete") {
            self.complete.insert(server);
        } else if words.contains(&"empty") {
            self.complete.remove(&server);
        }
        let Some(order) = &self.order else {
            return Ok(());
        };
        let generation = number("at").map_or(order.view.generation, Generation);
        let held: Vec<(ShardId, Holders)> = (0..)
            .map(ShardId)
            .zip(order.holders.clone())
            .filter(|(_, holders)| holders.role(server).is_some())
            .filter(|(shard, _)| number("of").is_none_or(|of| of == u64::from(shard.0)))
            .collect();
        for (shard, holders) in held {
            self.saw = self.saw.max(number("saw").map(Clock));
            let full = number("full").map(|copy| ServerId(copy as u32));
            let full = holders.copies.iter().filter(|c| Some(c.server) == full);
            let report = ShardReport {
                shard,
                seen: Acknowledge {
                    generation,
                    clock_seen: number("saw").map(Clock),
                    complete: self.complete.contains(&server),
                    full: full
                        .map(|copy| (copy.server, number("since").map_or(copy.since, Generation)))
                        .collect(),
                    lost: number("lost").unwrap_or(0),
                },
                restored: number("restored"),
                damaged: if words.contains(&"damaged") {
                    vec!["snapshot 9: a bit has flipped".into()]
                } else {
                    vec![]
                },
                failure: words.contains(&"failed").then(|| "no snapshot".into()),
            };
            self.reports.insert((server, shard), report.clone());
            self.coordinator
                .report(server, &self.run, report, self.now_ms)?;
        }
        Ok(())
    }

    /// What has changed is written down before it is acted on, and nothing that has changed is
    /// forgotten.
    pub(super) fn write_down(&mut self) {
        let durable = serde_json::to_string(&self.coordinator.durable()).unwrap();
        // What a rank says with every beat is not worth a write.
        let without = |text: &str| text.replace("\"entered\":true", "\"entered\":false");
        let same = without(&self.written) == without(&durable);
        assert!(
            self.coordinator.take_dirty() | self.coordinator.take_leased() || same,
            "a change is not written down"
        );
        self.written = durable;
    }

    fn outputs(&mut self) -> Vec<String> {
        let (mut said_to, mut manifest) = (Vec::new(), None);
        let (mut orders, mut last) = (BTreeMap::<ServerId, Box<Order>>::new(), None);
        let mut before = self.order.clone();
        while let Some(output) = self.coordinator.poll_output() {
            match output {
                Output::Reply(to, answer) => {
                    self.waiting.remove(&to);
                    if answer == Ok(Answer::Create) {
                        self.creators.insert(self.callers[&to].clone());
                    }
                    let answer = said(answer.map(|answer| word(&answer)));
                    said_to.push(format!("{} {answer}", self.callers[&to]).trim().into());
                }
                Output::Order(order) => {
                    last = Some(order.server);
                    self.told.insert(order.server, order.clone());
                    orders.insert(order.server, order);
                }
                Output::Runs(server, runs) => {
                    if !runs.contains(&self.run) && self.told.remove(&server).is_some() {
                        said_to.push(format!("server {server} forgets"));
                        before = None;
                    }
                }
                Output::Event(_) => {}
                Output::Manifest(data) => {
                    manifest = Some(format!("manifest {}", data.number));
                    self.manifests.push(*data);
                }
                Output::Delete { number, .. } => said_to.push(format!("delete {number}")),
            }
        }
        // Together the orders of a generation say what each server has to do.
        let mut changed = last.and_then(|last| orders.remove(&last));
        if let Some(order) = &mut changed {
            for other in orders.values() {
                if other.view.generation == order.view.generation {
                    order.capture.extend(&other.capture);
                    order.restore.extend(&other.restore);
                }
            }
        }
        if let Some(order) = &changed {
            self.keeps_the_rules(before.as_deref(), order);
        }
        let shown = changed.as_ref().map(|order| show(before.as_deref(), order));
        self.order = changed.or(before);
        said_to.into_iter().chain(manifest).chain(shown).collect()
    }

    /// What must hold of every order, whatever has happened.
    fn keeps_the_rules(&mut self, before: Option<&Order>, order: &Order) {
        for (shard, holders) in (0..).map(ShardId).zip(&order.holders) {
            let servers: BTreeSet<ServerId> = holders.servers().collect();
            assert_eq!(servers.len(), holders.servers().count(), "each once");
            let Some(primary) = holders.primary else {
                continue;
            };
            let new = self
                .primaries
                .insert((shard, primary.server, primary.since));
            let Some(before) = before.filter(|before| new && before.view.ready()) else {
                continue;
            };
            let was = &before.holders[shard.0 as usize];
            let full = |copy: &&CopyHolder| copy.full && copy.server == primary.server;
            assert!(
                was.lineage < holders.lineage || was.copies.iter().any(|copy| full(&copy)),
                "shard {shard} went to a server without all its values"
            );
        }
        let view = &order.view;
        for (group, (life, start)) in &view.live {
            let was = before.and_then(|before| before.view.live.get(group));
            let passed = self.saw.is_some_and(|saw| saw >= *start);
            assert!(
                was == Some(&(*life, *start)) || !passed,
                "a clock comes twice"
            );
        }
        let live = view.live.iter().map(|(group, (life, _))| (group, life));
        for (group, life) in view.joined.iter().chain(live) {
            let known = self.lives_seen.entry(*group).or_default();
            assert!(life >= known, "a life comes again");
            *known = *life;
        }
    }

    fn events(&mut self) -> String {
        let new = self
            .coordinator
            .recent_events()
            .filter(|e| e.number > self.heard);
        let words: Vec<&str> = new.map(|event| event.kind.word()).collect();
        self.heard = self
            .coordinator
            .recent_events()
            .last()
            .map_or(0, |e| e.number);
        words.join(" ")
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
        let (phase, view, holders) = (run.phase(), run.view(), run.holders());
        format!("{phase:?} {} {}", show_view(&view), show_holders(holders))
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

/// A file of a snapshot in which `clock` is the next to be decided.
fn file(shard: ShardId, clock: Option<Clock>) -> ShardFile {
    ShardFile {
        name: format!("shard-{shard}"),
        bytes: 1,
        digest: "d".into(),
        versions: (1, 2),
        samples: (3, 4),
        clock_next: clock.unwrap_or_default(),
    }
}

/// `0.1@2`, or `0@2` for rank 0.
fn caller(text: &str) -> Caller {
    let (who, incarnation) = text.split_once('@').unwrap();
    let (group, rank) = who.split_once('.').unwrap_or((who, "0"));
    Caller {
        group: GroupId(group.parse().unwrap()),
        incarnation: Incarnation(incarnation.parse().unwrap()),
        rank: Rank(rank.parse().unwrap()),
    }
}

/// A run of groups of these sizes.
pub(super) fn run_of(sizes: &[u32]) -> RunSpec {
    let mut spec = spec(sizes, ConsistencySpec::Async);
    spec.faults.reform_grace_ms = 50;
    spec
}

fn lines(script: &str) -> impl Iterator<Item = &str> {
    script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
}

/// Plays a script; prints what would have been right.
pub(super) fn play(desk: &mut Desk, script: &str) {
    let mut wrong = false;
    let mut played = String::new();
    for line in lines(script) {
        let (command, want) = line.split_once("=>").unwrap_or((line, ""));
        let got = desk.happen(command);
        let mark = if got == want.trim() { ' ' } else { '!' };
        wrong |= mark == '!';
        played += &format!("{mark}       {} => {got}\n", command.trim());
    }
    assert!(!wrong, "it went differently:\n{played}");
}

/// Plays a script, and again with a coordinator that dies after every line.
pub(super) fn check(new: impl Fn() -> Desk, script: &str) {
    play(&mut new(), script);
    let mut desk = new();
    for line in lines(script) {
        let (command, want) = line.split_once("=>").unwrap_or((line, ""));
        let got = desk.happen(command);
        let words = command.trim_start();
        if !words.starts_with("events") {
            assert_eq!(got, want.trim(), "of {line:?} after recovery");
        }
        if let Err(other) = desk.recover() {
            panic!("recovered after {line:?} it goes on differently:\n{other}");
        }
    }
}
