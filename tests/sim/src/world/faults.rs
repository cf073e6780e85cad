//! What fails, when its time has come.

use tradewind_common::loss::Loss;
use tradewind_common::{GroupId, Incarnation, Rank, ServerId, ShardId};

use super::World;
use super::event::{Address, Event, Life, Process, Told};
use super::server::Running;
use crate::checker::Violation;
use crate::party::Party;
use crate::scenario::{Fault, LEASE_MS, Scenario};

/// A fault that was left out is tried again after so long, this often.
const AGAIN_US: u64 = 150_000;

impl World {
    pub(super) fn fault(&mut self, index: usize) -> Result<(), Violation> {
        let fault = self.scenario.faults[index].fault.clone();
        let now_us = self.now_us;
        self.say(|| format!("{fault:?}"));
        match fault {
            Fault::KillRank {
                group,
                rank,
                down_us,
                loud,
            } => self.kill_rank(GroupId(group), Rank(rank), down_us, loud),
            Fault::KillGroup {
                group,
                down_us,
                loud,
            } => {
                for rank in 0..self.scenario.groups[group as usize].size {
                    self.kill_rank(GroupId(group), Rank(rank), down_us, loud);
                }
            }
            Fault::HangRank {
                group,
                rank,
                for_us,
            } => {
                let (group, rank) = (GroupId(group), Rank(rank));
                if let Some(process) = self.groups[&group].group.ranks.get(&rank) {
                    let life = process.life();
                    let address = Address { group, rank, life };
                    self.sleep(Process::Rank(address), for_us);
                    self.report.counts.ranks_hung += 1;
                }
            }
            Fault::KillServer {
                server,
                down_us,
                loud,
            } => self.kill_server(ServerId(server), down_us, loud),
            Fault::HangServer { server, for_us } => {
                if let Some(up) = &self.servers[&ServerId(server)].up {
                    self.report.counts.servers_hung += 1;
                    self.sleep(Process::Server(up.life), for_us);
                }
            }
            Fault::BreakBond { server } => {
                let id = ServerId(server);
                let up = self.servers[&id].up.as_ref();
                let bonded = up.and_then(|up| Some((up.life, up.bond?.number)));
                if let Some((life, number)) = bonded {
                    self.break_bond(life, number);
                }
            }
            Fault::KillCoordinator { down_us, loud } => {
                if let Some(n) = self.acting() {
                    self.report.counts.coordinators_killed += 1;
                    self.end_coordinator(n, loud);
                    self.after(down_us, Event::StartCoordinator);
                }
            }
            Fault::HangCoordinator { for_us } => {
                // Whoever finds it silent breaks its bond, and is missed when it wakes.
                if let Some(n) = self.acting() {
                    self.report.counts.coordinators_hung += 1;
                    self.sleep(Process::Coordinator(n), for_us);
                }
            }
            Fault::RivalCoordinator => self.start_coordinator(),
            Fault::Cut {
                side,
                other,
                for_us,
            } => {
                self.report.counts.cuts += 1;
                self.network.cut(&side, other.as_deref(), now_us + for_us);
            }
            Fault::SlowDisk { for_us, by_us } => self.disk.slow(now_us + for_us, by_us),
            Fault::FailDisk { for_us } => self.disk.fail(now_us + for_us),
            Fault::Damage => {
                let damaged = self.disk.damage();
                self.report.counts.damaged += u64::from(damaged);
            }
            Fault::BadDisk { for_us, one_in } => self.disk.fail_some(now_us + for_us, one_in),
            Fault::OldListings { for_us, by_us } => {
                self.disk.age_listings(now_us + for_us, by_us);
                self.store.age_listings(now_us + for_us, by_us);
            }
            Fault::SlowWay {
                from,
                to,
                for_us,
                by_us,
            } => {
                let way = [from, to].map(|server| Party::Server(ServerId(server)));
                self.report.counts.slowed += 1;
                self.network.slow((way[0], way[1]), by_us, now_us + for_us);
            }
            Fault::MuteCopy { server, for_us } => self.mute(ServerId(server), for_us),
            Fault::Attach { plan } => self.ask_for(index, Told::Attach(plan)),
            Fault::Drain { group } => self.ask_for(index, Told::Drain(GroupId(group))),
            Fault::Resume { servers, groups } => {
                let Some(mut saved) = self.disk.resumable() else {
                    self.after(AGAIN_US, Event::Fault(index));
                    return Ok(());
                };
                self.witness.told_before = Loss {
                    updates: saved.manifest.lost,
                    samples: saved.manifest.lost_samples,
                };
                let lineages = self.marks.values().map(|mark| mark.lineage);
                saved.recorded = lineages.max().unwrap_or_default();
                self.resume = Some(saved);
                self.scenario.servers = servers;
                self.scenario.groups = groups;
                self.begin_again();
            }
        }
        Ok(())
    }

    /// A person asks the coordinator for something, once there is one.
    fn ask_for(&mut self, index: usize, told: Told) {
        match self.acting() {
            Some(n) => self.after(0, Event::Coordinator(n, told)),
            None => self.after(AGAIN_US, Event::Fault(index)),
        }
    }

    /// The coordinator that is to be found, if it is up.
    fn acting(&self) -> Option<u64> {
        let at = self.store.address;
        at.filter(|n| self.coordinators.contains_key(n))
    }

    fn sleep(&mut self, process: Process, for_us: u64) {
        let until = (self.now_us, self.now_us + for_us);
        self.asleep.insert(process, until);
    }

    pub(super) fn kill_rank(&mut self, id: GroupId, rank: Rank, down_us: Option<u64>, loud: bool) {
        let Some(seat) = self.groups[&id].seats.get(&rank) else {
            return;
        };
        if seat.done || !self.end_rank(id, rank, loud) {
            return;
        }
        self.report.counts.ranks_killed += 1;
        match down_us {
            Some(down_us) => self.after(down_us, Event::StartRank(id, rank)),
            None => {
                let member = self.groups.get_mut(&id).expect("a configured group");
                member.seats.get_mut(&rank).expect("looked up above").done = true;
            }
        }
    }

    pub(super) fn start_server(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(&id).filter(|s| s.up.is_none()) else {
            return;
        };
        server.lives += 1;
        let life = Life {
            server: id,
            incarnation: Incarnation(server.lives),
        };
        server.up = Some(Running::new(life));
        self.connect(life);
    }

    fn kill_server(&mut self, id: ServerId, down_us: Option<u64>, loud: bool) {
        let up = self.servers[&id].up.is_some();
        if !up {
            return;
        }
        self.report.counts.servers_killed += 1;
        self.end_server(id, loud);
        // Somebody has to be left to keep copies; and most of them, for otherwise it may be the
        // coordinator that is cut off, and it waits for the others.
        let left = self
            .servers
            .values()
            .filter(|server| server.lives > 0)
            .count() as u32;
        let gone = self.gone.len() as u32;
        // Before that is written down, all servers are needed.
        let placed = self.checker.last_primary(ShardId(0)).is_some();
        match down_us {
            None if placed
                && left - gone > self.scenario.replication
                && 2 * (left - gone - 1) > left =>
            {
                self.gone.insert(id);
            }
            _ => self.after(down_us.unwrap_or(200_000), Event::StartServer(id)),
        }
    }

    fn end_server(&mut self, id: ServerId, loud: bool) {
        let server = self.servers.get_mut(&id).expect("a configured server");
        let Some(up) = server.up.take() else { return };
        self.ended(up.life);
        self.checker.dropped(id, None);
        self.server_died(up.life, loud);
        let quick_us = self.network.notice(self.now_us);
        let us = if loud {
            quick_us
        } else {
            self.now_us + LEASE_MS * 2_000
        };
        self.streams_broke(id, us);
    }

    /// Everything ends, and the run is resumed with what the scenario says now.
    fn begin_again(&mut self) {
        self.report.counts.resumed += 1;
        let all: Vec<u64> = self.coordinators.keys().copied().collect();
        for n in all.into_iter().chain(std::mem::take(&mut self.reading)) {
            self.end_coordinator(n, true);
        }
        for id in self.servers.keys().copied().collect::<Vec<_>>() {
            self.end_server(id, true);
        }
        let ranks = self.groups.iter().flat_map(|(id, member)| {
            let ranks = member.group.ranks.keys();
            ranks.map(|rank| (*id, *rank))
        });
        for (id, rank) in ranks.collect::<Vec<_>>() {
            self.end_rank(id, rank, true);
        }
        self.queue
            .retain(|_, event| matches!(event, Event::Malformed));
        self.gone.clear();
        let scenario: &Scenario = &self.scenario;
        self.common.spec = scenario.spec();
        let placement =
            tradewind_common::placement::Placement::by_bytes(&self.common.layout, scenario.servers);
        self.common.placement = std::sync::Arc::new(placement);
        let servers = scenario.servers;
        self.servers.retain(|id, _| id.0 < servers);
        let groups = scenario.groups.len() as u32;
        self.groups.retain(|id, _| id.0 < groups);
        for (id, member) in &mut self.groups {
            let size = self.scenario.groups[id.0 as usize].size;
            member.seats.retain(|rank, _| rank.0 < size);
        }
        self.checker
            .resumed(&self.common.spec, self.common.placement.clone());
        self.store.forget_states();
        self.progress_us = self.now_us;
        self.set_up();
    }

    /// A server's side of what a hanging coordinator is to it: silent for too long.
    pub(super) fn silent(&self, n: u64) -> bool {
        let asleep = self.asleep.get(&Process::Coordinator(n));
        asleep.is_some_and(|(since_us, until_us)| {
            *until_us > self.now_us && self.now_us - since_us > LEASE_MS * 2_000
        })
    }
}
