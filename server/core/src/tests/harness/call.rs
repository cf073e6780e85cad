//! What a line of a script does.

use tradewind_common::holders::Holders;
use tradewind_common::loss::Loss;
use tradewind_common::{Clock, Generation, GroupId, Incarnation, Rank, ServerId, ShardId};

use super::show::show_holders;
use super::{Harness, at};
use crate::ReplyTo;
use crate::answer::Refused;
use crate::mark::Lacking;
use crate::order::{NotCaptured, ShardFile, ShardReport};
use crate::run::{Beat, Beaten, Caller, Join};
use crate::view::Acknowledge;

impl Harness {
    pub(super) fn call(&mut self, words: &[&str], to: ReplyTo) -> Option<Result<String, Refused>> {
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
                    if !same {
                        self.views.remove(&server());
                    }
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
                Some(Ok(show_holders(
                    &run.holders().cloned().collect::<Vec<_>>(),
                )))
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
        let generation = number("at").map_or(order.view.generation(), Generation);
        let held: Vec<(ShardId, Holders)> = (0..)
            .map(ShardId)
            .zip(order.holders.clone())
            .filter(|(_, holders)| holders.role(server).is_some())
            .filter(|(shard, _)| number("of").is_none_or(|of| of == u64::from(shard.0)))
            .collect();
        for (shard, holders) in held {
            self.saw = self.saw.max(number("saw").map(Clock));
            // Of the lineage before the one that it has restored.
            let leads = holders.primary.is_some();
            let before = Generation(holders.lineage.0.saturating_sub(u64::from(leads)));
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
                    stalled: holders
                        .copies
                        .iter()
                        .filter(|copy| number("stalled") == Some(u64::from(copy.server.0)))
                        .map(|copy| (copy.server, copy.since))
                        .collect(),
                },
                restored: number("restored"),
                damaged: if words.contains(&"damaged") {
                    vec!["snapshot 9: a bit has flipped".into()]
                } else {
                    vec![]
                },
                lost: number("lacks").map_or(Lacking::default(), |updates| Lacking {
                    loss: Loss {
                        updates,
                        samples: 2 * updates,
                    },
                    told_of: number("told").map_or(before, Generation),
                }),
                failure: words.contains(&"failed").then(|| "no snapshot".into()),
            };
            self.reports.insert((server, shard), report.clone());
            self.coordinator
                .report(server, &self.run, report, self.now_ms)?;
        }
        Ok(())
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
