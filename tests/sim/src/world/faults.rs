//! What fails, when its time has come.

use tradewind_common::loss::Loss;
use tradewind_common::{GroupId, Rank, ServerId, ShardId};
use tradewind_core::saved::Saved;

use super::World;
use super::event::{Event, Process, Told};
use crate::party::Party;
use crate::scenario::{Fault, GroupPlan};

/// A fault that was left out is tried again after so long, this often.
const AGAIN_US: u64 = 150_000;

/// Until a server comes back that was to be gone for good, but is needed.
const NEEDED_US: u64 = 200_000;

impl World {
    pub(super) fn fault(&mut self, index: usize) {
        let fault = self.setup.scenario.faults[index].fault.clone();
        let now_us = self.agenda.now_us();
        self.recorder.say(now_us, || format!("{fault:?}"));
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
                for rank in 0..self.setup.scenario.groups[group as usize].size {
                    self.kill_rank(GroupId(group), Rank(rank), down_us, loud);
                }
            }
            Fault::HangRank {
                group,
                rank,
                for_us,
            } => {
                if let Some(address) = self.groups.address(GroupId(group), Rank(rank)) {
                    self.agenda.sleep(Process::Rank(address), for_us);
                    self.recorder.counts().ranks_hung += 1;
                }
            }
            Fault::KillServer {
                server,
                down_us,
                loud,
            } => self.kill_server(ServerId(server), down_us, loud),
            Fault::HangServer { server, for_us } => {
                if let Some(life) = self.servers.life(ServerId(server)) {
                    self.recorder.counts().servers_hung += 1;
                    self.agenda.sleep(Process::Server(life), for_us);
                }
            }
            Fault::BreakBond { server } => {
                let life = self.servers.life(ServerId(server));
                let bond = life.and_then(|life| self.servers.bond(life));
                if let (Some(life), Some(bond)) = (life, bond) {
                    self.break_bond(life, bond.number);
                }
            }
            Fault::KillCoordinator { down_us, loud } => {
                if let Some(n) = self.acting() {
                    self.recorder.counts().coordinators_killed += 1;
                    self.end_coordinator(n, loud);
                    self.agenda.after(down_us, Event::StartCoordinator);
                }
            }
            Fault::HangCoordinator { for_us } => {
                // Whoever finds it silent breaks its bond, and is missed when it wakes.
                if let Some(n) = self.acting() {
                    self.recorder.counts().coordinators_hung += 1;
                    self.agenda.sleep(Process::Coordinator(n), for_us);
                }
            }
            Fault::RivalCoordinator => self.start_coordinator(),
            Fault::Cut {
                side,
                other,
                for_us,
            } => {
                self.recorder.counts().cuts += 1;
                let until_us = now_us + for_us;
                self.network.cut(&side, other.as_deref(), until_us);
            }
            Fault::SlowDisk { for_us, by_us } => self.disk.slow(now_us + for_us, by_us),
            Fault::FailDisk { for_us } => self.disk.fail(now_us + for_us),
            Fault::Damage => {
                let damaged = self.disk.damage();
                self.recorder.counts().damaged += u64::from(damaged);
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
                self.recorder.counts().slowed += 1;
                self.network.slow((way[0], way[1]), by_us, now_us + for_us);
            }
            Fault::MuteCopy { server, for_us } => {
                self.recorder.counts().muted += 1;
                let until_us = for_us.map_or(u64::MAX, |for_us| now_us + for_us);
                self.servers.mute(ServerId(server), until_us);
            }
            Fault::Attach { plan } => self.ask_for(index, Told::Attach(plan)),
            Fault::Drain { group } => self.ask_for(index, Told::Drain(GroupId(group))),
            Fault::Resume { servers, groups } => match self.disk.resumable() {
                Some(saved) => self.resume(saved, servers, groups),
                None => self.agenda.after(AGAIN_US, Event::Fault(index)),
            },
        }
    }

    /// A person asks the coordinator for something, once there is one.
    fn ask_for(&mut self, index: usize, told: Told) {
        match self.acting() {
            Some(n) => self.agenda.after(0, Event::Coordinator(n, told)),
            None => self.agenda.after(AGAIN_US, Event::Fault(index)),
        }
    }

    fn kill_server(&mut self, id: ServerId, down_us: Option<u64>, loud: bool) {
        if self.servers.life(id).is_none() {
            return;
        }
        self.recorder.counts().servers_killed += 1;
        self.end_server(id, loud);
        // Before that is written down, all servers are needed.
        let placed = self.checker.last_primary(ShardId(0)).is_some();
        let replication = self.setup.scenario.replication;
        let for_good = down_us.is_none() && placed && self.servers.lose(id, replication);
        if !for_good {
            let down_us = down_us.unwrap_or(NEEDED_US);
            self.agenda.after(down_us, Event::StartServer(id));
        }
    }

    /// Everything ends, and the run is resumed from a snapshot, on so many servers and with these groups.
    fn resume(&mut self, mut saved: Saved, servers: u32, groups: Vec<GroupPlan>) {
        self.recorder.counts().resumed += 1;
        self.witness.resumes(Loss {
            updates: saved.manifest.lost,
            samples: saved.manifest.lost_samples,
        });
        saved.recorded = self.marks.last_lineage();
        self.coordinators.resume(saved);
        for n in self.coordinators.all() {
            self.end_coordinator(n, true);
        }
        for id in self.servers.ids() {
            self.end_server(id, true);
        }
        for rank in self.groups.up() {
            self.end_rank(rank.group, rank.rank, true);
        }
        self.agenda
            .keep_only(|event| matches!(event, Event::Malformed));
        let sizes: Vec<u32> = groups.iter().map(|plan| plan.size).collect();
        self.setup.resume(servers, groups);
        self.servers.resume(servers);
        self.groups.resume(&sizes);
        let common = &self.setup.common;
        self.checker.resumed(&common.spec, common.placement.clone());
        self.store.forget_states();
        self.recorder.progresses(self.agenda.now_us());
        self.set_up();
    }
}
