//! Who is in a run, and when: scripts of what happens, line by line, with what comes of it.
//!
//! `join 0.1 b`: rank 1 of group 0 joins as process b. `await 0.1@2 [created]`, `beat 0.1@2` and
//! `leave 0.1@2`: calls of that rank in incarnation 2. `lease 0@2`: its group asks for data.
//! `ack 1 [saw 7] [complete]`: server 1 has followed the last view. `pass 50`: so many
//! milliseconds pass. `=>` is followed by the answers and the last view that went to the servers,
//! as `view <generation> <live groups @incarnation:start> + <joined groups> by <creator>`.

use std::collections::{BTreeMap, BTreeSet};

use tradewind_common::spec::ConsistencySpec;
use tradewind_common::{Clock, Generation, GroupId, Incarnation, Rank, RunId, ServerId};

use super::spec;
use crate::core::ReplyTo;
use crate::core::answer::{Answer, Refused};
use crate::core::coordinator::{Coordinator, Output, Server};
use crate::core::run::{Caller, Join};
use crate::core::view::{Acknowledge, View};

/// A coordinator, and who waits for its answers.
struct Desk {
    sizes: Vec<u32>,
    coordinator: Coordinator,
    run: RunId,
    now_ms: u64,
    generation: Generation,
    callers: BTreeMap<ReplyTo, String>,
    /// Servers whose shard is complete: it says so with every later acknowledgement.
    complete: BTreeSet<ServerId>,
}

impl Desk {
    fn new(sizes: &[u32], servers: u32) -> Self {
        let mut desk = Self {
            sizes: sizes.to_vec(),
            coordinator: Coordinator::new(servers),
            run: RunId::new("r").unwrap(),
            now_ms: 0,
            generation: Generation(0),
            callers: BTreeMap::new(),
            complete: BTreeSet::new(),
        };
        for id in 0..servers {
            desk.coordinator.register(ServerId(id), server(1)).unwrap();
        }
        desk
    }

    fn happen(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let to = ReplyTo(self.callers.len() as u64);
        self.callers.insert(to, words[1].into());
        let (run, now_ms) = (self.run.clone(), self.now_ms);
        let at_once = match words[0] {
            "join" => {
                let (group, rank) = words[1].split_once('.').unwrap();
                let join = Join {
                    group: GroupId(group.parse().unwrap()),
                    rank: Rank(rank.parse().unwrap()),
                    life: u64::from(words[2].as_bytes()[0]),
                    store_address: String::new(),
                };
                let spec = spec(&self.sizes, ConsistencySpec::Async);
                self.coordinator.join(run, spec, join, to, now_ms);
                None
            }
            "await" => {
                let created = words.contains(&"created");
                let caller = caller(words[1]);
                self.coordinator
                    .await_ready(&run, caller, created, to, now_ms);
                None
            }
            "beat" => {
                let beat = self
                    .coordinator
                    .heartbeat(&run, caller(words[1]), Clock(0), now_ms);
                Some(beat.map(|generation| format!("at {generation}")))
            }
            "leave" => {
                let left = self.coordinator.leave(&run, caller(words[1]), now_ms);
                Some(left.map(|()| "left".into()))
            }
            "lease" => {
                let Caller {
                    group, incarnation, ..
                } = caller(words[1]);
                let chunk = self
                    .coordinator
                    .lease_chunk(&run, (group, incarnation), &[], &[]);
                Some(chunk.map(|chunk| format!("chunk {}", chunk.number)))
            }
            "ack" => {
                let saw = words.iter().position(|w| *w == "saw").map(|i| words[i + 1]);
                let server = ServerId(words[1].parse().unwrap());
                if words.contains(&"complete") {
                    self.complete.insert(server);
                } else if words.contains(&"empty") {
                    self.complete.remove(&server);
                }
                let seen = Acknowledge {
                    generation: self.generation,
                    clock_seen: saw.map(|c| Clock(c.parse().unwrap())),
                    complete: self.complete.contains(&server),
                };
                let followed = self.coordinator.acknowledge(server, &run, seen, now_ms);
                followed.err().map(Err)
            }
            "pass" => {
                self.now_ms += words[1].parse::<u64>().unwrap();
                self.coordinator.tick(self.now_ms);
                None
            }
            "restart" => {
                let id = ServerId(words[1].parse().unwrap());
                self.coordinator.register(id, server(2)).unwrap();
                None
            }
            other => panic!("{other}?"),
        };
        let at_once = at_once.map(|result| format!("{} {}", words[1], said(result)));
        at_once
            .into_iter()
            .chain(self.outputs())
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn outputs(&mut self) -> Vec<String> {
        let (mut said_to, mut view) = (Vec::new(), None);
        while let Some(output) = self.coordinator.poll_output() {
            match output {
                Output::Reply(to, answer) => {
                    said_to.push(format!("{} {}", self.callers[&to], said(answer.map(word))));
                }
                Output::Order(order) => {
                    self.generation = order.view.generation;
                    view = Some(show(&order.view));
                }
            }
        }
        said_to.into_iter().chain(view).collect()
    }
}

fn server(incarnation: u64) -> Server {
    Server {
        incarnation: Incarnation(incarnation),
        address: String::new(),
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

fn word(answer: Answer) -> String {
    match answer {
        Answer::Joined { incarnation, .. } => format!("joined as {incarnation}"),
        Answer::Create => "create".into(),
        Answer::Ready { start, .. } => format!("start at {start}"),
    }
}

/// An answer, or the name of the refusal.
fn said(answer: Result<String, Refused>) -> String {
    let name = |refused: Refused| {
        let text = match refused {
            Refused::Refusal(refusal) => format!("{refusal:?}"),
            other => format!("{other:?}"),
        };
        let end = text.find(['(', ' ']).unwrap_or(text.len());
        format!("refused {}", &text[..end])
    };
    answer.unwrap_or_else(name)
}

fn show(view: &View) -> String {
    let live = view
        .live
        .iter()
        .map(|(g, (life, start))| format!("{g}@{life}:{start} "));
    let joined = view.joined.iter().map(|(g, life)| format!("{g}@{life} "));
    let creator = match view.creator {
        None => "nobody".into(),
        Some((_, Incarnation(0))) => "none yet".into(),
        Some((group, life)) => format!("{group}@{life}"),
    };
    let (live, joined) = (live.collect::<String>(), joined.collect::<String>());
    format!("view {} {live}+ {joined}by {creator}", view.generation)
}

/// Plays a script; prints what would have been right.
fn check(sizes: &[u32], servers: u32, script: &str) {
    let mut desk = Desk::new(sizes, servers);
    let mut wrong = false;
    let mut played = String::new();
    for line in script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        let (command, want) = line.split_once("=>").unwrap_or((line, ""));
        let got = desk.happen(command);
        wrong |= got != want.trim();
        played += &format!("        {} => {got}\n", command.trim());
    }
    assert!(!wrong, "it went differently:\n{played}");
}

#[test]
fn forming_waits_for_all_ranks_all_groups_and_all_servers() {
    check(
        &[2, 1],
        2,
        "
        join 0.0 a =>
        join 1.0 a => view 2 + 1@1 by 1@1
        ack 0 =>
        await 1.0@1 =>
        ack 1 => 1.0 joined as 1, 1.0@1 create
        join 0.1 b => view 3 + 0@1 1@1 by 1@1
        ack 0 =>
        ack 1 => 0.0 joined as 1, 0.1 joined as 1
        await 0.0@1 =>
        await 0.1@1 =>
        await 1.0@1 created =>
        ack 0 complete =>
        ack 1 complete => view 5 0@1:0 1@1:0 + by nobody
        ack 0 complete =>
        ack 1 complete => 0.0@1 start at 0, 0.1@1 start at 0, 1.0@1 start at 0
        ",
    );
}

#[test]
fn a_creator_that_dies_is_followed_by_another() {
    check(
        &[1, 1],
        1,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        join 1.0 b => view 3 + 0@1 1@1 by 0@1
        ack 0 => 0.0 joined as 1, 1.0 joined as 1
        await 0.0@1 => 0.0@1 create
        await 1.0@1 =>
        pass 60 =>
        beat 1.0@1 => 1.0@1 at 3
        pass 60 => view 5 + 1@1 by 1@1
        ack 0 => 1.0@1 create
        beat 0.0@1 => 0.0@1 refused NotLive
        ",
    );
}

#[test]
fn a_new_life_is_fenced_and_starts_past_the_highest_clock() {
    check(
        &[1, 1],
        2,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        join 1.0 b => view 3 + 0@1 1@1 by 0@1
        ack 0 =>
        ack 1 => 0.0 joined as 1, 1.0 joined as 1
        await 0.0@1 => 0.0@1 create
        await 1.0@1 =>
        ack 0 complete =>
        ack 1 complete => view 5 0@1:0 1@1:0 + by nobody
        ack 0 =>
        ack 1 => 1.0@1 start at 0
        join 0.0 c => 0.0 refused GroupRunning
        pass 60 =>
        beat 1.0@1 => 1.0@1 at 5
        pass 60 => view 6 1@1:0 + by nobody
        join 0.0 c => view 7 1@1:0 + 0@2 by nobody
        await 0.0@2 =>
        await 0.0@1 => 0.0@1 refused StaleIncarnation
        beat 0.0@1 => 0.0@1 refused StaleIncarnation
        ack 0 saw 7 =>
        ack 1 saw 8 => 0.0 joined as 2, view 8 0@2:9 1@1:0 + by nobody
        ack 0 saw 9 =>
        ack 1 => 0.0@2 start at 9
        ",
    );
}

#[test]
fn a_group_that_leaves_or_dies_gives_its_data_back() {
    check(
        &[1, 1],
        1,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        join 1.0 b => view 3 + 0@1 1@1 by 0@1
        ack 0 complete => 0.0 joined as 1, 1.0 joined as 1, view 5 0@1:0 1@1:0 + by nobody
        ack 0 complete =>
        lease 0@1 => 0@1 chunk 0
        lease 1@1 => 1@1 chunk 1
        leave 0.0@1 => 0.0@1 left, view 6 1@1:0 + by nobody
        leave 0.0@1 => 0.0@1 left
        lease 0@1 => 0@1 refused NotLive
        pass 120 => view 7 + by nobody
        join 0.0 c => view 8 + 0@2 by nobody
        ack 0 => 0.0 joined as 2, view 9 0@2:0 + by nobody
        ack 0 =>
        lease 0@2 => 0@2 chunk 0
        leave 0.0@1 => 0.0@1 refused StaleIncarnation
        ",
    );
}

#[test]
fn the_start_grace_ends_the_wait_for_groups_that_do_not_come() {
    check(
        &[1, 1],
        1,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 complete => 0.0 joined as 1, view 3 + 0@1 by nobody
        await 0.0@1 =>
        ack 0 complete =>
        pass 90 =>
        beat 0.0@1 => 0.0@1 at 3
        pass 90 => view 4 0@1:0 + by nobody
        ack 0 => 0.0@1 start at 0
        join 1.0 b => view 5 0@1:0 + 1@1 by nobody
        ack 0 saw 3 => 1.0 joined as 1, view 6 0@1:0 1@1:4 + by nobody
        await 1.0@1 =>
        ack 0 => 1.0@1 start at 4
        ",
    );
}

#[test]
fn what_is_repeated_is_answered_again_and_what_cannot_be_is_refused() {
    check(
        &[2],
        1,
        "
        join 7.0 a => 7.0 refused UnknownGroup
        join 0.2 a => 0.2 refused UnknownRank
        beat 0.0@1 => 0.0@1 refused NotLive
        join 0.0 a =>
        join 0.0 b => 0.0 refused GroupRunning
        beat 0.0@0 => 0.0@0 refused StaleIncarnation
        await 0.0@0 => 0.0@0 refused StaleIncarnation
        join 0.1 c => view 2 + 0@1 by 0@1
        join 0.0 b => 0.0 refused GroupRunning
        join 0.0 d => 0.0 refused GroupRunning
        ack 0 => 0.0 joined as 1, 0.1 joined as 1
        join 0.1 c => 0.1 joined as 1
        await 0.0@1 => 0.0@1 create
        await 0.0@1 => 0.0@1 create
        await 0.0@1 created =>
        await 0.1@2 => 0.1@2 refused StaleIncarnation
        restart 0 => 0.0@1 refused Failed, view 2 + 0@1 by none yet
        await 0.0@1 => 0.0@1 refused Failed
        beat 0.0@1 => 0.0@1 refused Failed
        ",
    );
}

#[test]
fn a_shard_that_has_lost_its_values_fails_the_run() {
    check(
        &[1],
        1,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 => 0.0 joined as 1
        await 0.0@1 => 0.0@1 create
        await 0.0@1 created =>
        ack 0 complete => view 4 0@1:0 + by nobody
        ack 0 => 0.0@1 start at 0
        ack 0 empty =>
        beat 0.0@1 => 0.0@1 refused Failed
        ",
    );
}

#[test]
fn a_rank_whose_sibling_has_left_is_not_lost() {
    check(
        &[2],
        1,
        "
        join 0.0 a =>
        join 0.1 b => view 2 + 0@1 by 0@1
        ack 0 complete => 0.0 joined as 1, 0.1 joined as 1, view 4 0@1:0 + by nobody
        leave 0.0@1 => 0.0@1 left, view 5 + by nobody
        beat 0.1@1 => 0.1@1 at 5
        leave 0.1@1 => 0.1@1 left
        ",
    );
}
