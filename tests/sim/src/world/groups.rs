//! The ranks: their processes, and where they meet.

use std::collections::BTreeMap;

use rand_distr::{Distribution, LogNormal};
use tradewind_common::{Clock, GroupId, Incarnation, Rank};

use super::World;
use super::event::{Address, Done, Event, Told};
use crate::checker::{Rule, Violation};
use crate::group::{Call, Common, Group, Out, Process, Wake};
use crate::party::Party;
use crate::scenario::GroupPlan;

/// σ of the logarithm of a step's time.
const STEP_SPREAD: f64 = 0.3;

/// How long ranks take to meet.
const MEET_US: u64 = 200;

/// Until a process that has ended is started again.
const RESTART_US: u64 = 5_000;

/// A group through its lives.
#[derive(Debug, Default)]
pub(super) struct Member {
    pub(super) group: Group,
    pub(super) seats: BTreeMap<Rank, Seat>,
}

/// A rank through its processes.
#[derive(Debug, Default)]
pub(super) struct Seat {
    pub(super) lives: u64,
    numbers: u64,
    /// It has left, or died for good.
    pub(super) done: bool,
}

impl Member {
    /// Whether nobody of it will come again.
    pub(super) fn done(&self) -> bool {
        self.seats.values().all(|seat| seat.done)
    }
}

impl World {
    /// The groups of the scenario as it is now begin.
    pub(super) fn start_groups(&mut self) {
        for (index, plan) in self.scenario.groups.clone().iter().enumerate() {
            let id = GroupId(index as u32);
            self.groups.entry(id).or_default();
            for rank in (0..plan.size).map(Rank) {
                let member = self.groups.get_mut(&id).expect("entered above");
                member.seats.entry(rank).or_default().done = false;
                self.after(plan.start_us, Event::StartRank(id, rank));
            }
        }
    }

    /// A group may join on top of the others: its ranks start.
    pub(super) fn attached(&mut self, id: GroupId, plan: GroupPlan) {
        // Numbers that were given to whoever did not hear of it stay without a group.
        let groups = &mut self.scenario.groups;
        groups.resize((id.0 as usize + 1).max(groups.len()), plan);
        let member = self.groups.entry(id).or_default();
        for rank in (0..plan.size).map(Rank) {
            member.seats.entry(rank).or_default();
        }
        for rank in (0..plan.size).map(Rank) {
            self.after(plan.start_us, Event::StartRank(id, rank));
        }
    }

    pub(super) fn start_rank(&mut self, id: GroupId, rank: Rank) -> Result<(), Violation> {
        let Some(member) = self.groups.get_mut(&id) else {
            return Ok(());
        };
        let seat = member.seats.get_mut(&rank).expect("a configured rank");
        if seat.done || member.group.ranks.contains_key(&rank) {
            return Ok(());
        }
        seat.lives += 1;
        self.report.counts.rank_restarts += u64::from(seat.lives > 1);
        let life = (seat.lives << 16) | (u64::from(id.0) << 8) | u64::from(rank.0);
        let process = Process::start(id, rank, life, seat.numbers);
        member.group.ranks.insert(rank, process);
        let address = Address {
            group: id,
            rank,
            life,
        };
        self.rank(address, |_, _| ())
    }

    /// A rank's process ends. A `loud` end resets its connections.
    pub(super) fn end_rank(&mut self, id: GroupId, rank: Rank, loud: bool) -> bool {
        let member = self.groups.get_mut(&id).expect("a configured group");
        let Some(process) = member.group.ranks.remove(&rank) else {
            return false;
        };
        let seat = member.seats.get_mut(&rank).expect("a configured rank");
        seat.numbers = process.numbers();
        if process.incarnation() == Incarnation(0) || process.leaving() {
            return true;
        }
        let caller = process.caller();
        self.desert(id, rank, process.incarnation(), loud);
        let cut = |world: &mut Self| {
            let (group, now_us) = (Party::Group(id), world.now_us);
            world.network.cut_until(now_us, group, Party::Coordinator)
        };
        if loud
            && cut(self).is_none()
            && let Some(n) = self.store.address
        {
            let us = self.network.notice(self.now_us);
            self.at(us, Event::Coordinator(n, Told::RankLost(caller)));
        }
        true
    }

    /// A rank is not in a life of its group any more; its peers notice when their connections
    /// break, or are told by the coordinator.
    fn desert(&mut self, id: GroupId, rank: Rank, life: Incarnation, loud: bool) {
        let member = self.groups.get_mut(&id).expect("a configured group");
        let peers = member.group.desert(rank, life);
        if !loud {
            return;
        }
        for peer in peers {
            let address = self.address(id, peer).expect("it is up");
            let us = self.network.notice(self.now_us);
            self.at(us, Event::Wake(address, Wake::Deserted(life)));
        }
    }

    fn address(&self, id: GroupId, rank: Rank) -> Option<Address> {
        let process = self.groups[&id].group.ranks.get(&rank)?;
        Some(Address {
            group: id,
            rank,
            life: process.life(),
        })
    }

    /// Lets a rank act, if that process of it still is, and does what it wants done.
    pub(super) fn rank(
        &mut self,
        address: Address,
        act: impl FnOnce(&mut Process, &Common),
    ) -> Result<(), Violation> {
        let Some(member) = self.groups.get_mut(&address.group) else {
            return Ok(());
        };
        let process = member.group.ranks.get_mut(&address.rank);
        let Some(process) = process.filter(|process| process.life() == address.life) else {
            return Ok(());
        };
        act(process, &self.common);
        for out in std::mem::take(&mut process.outs) {
            self.perform(address, out)?;
        }
        Ok(())
    }

    fn perform(&mut self, from: Address, out: Out) -> Result<(), Violation> {
        let (id, rank) = (from.group, from.rank);
        match out {
            Out::Frame(server, shard, stream, push) => {
                if let Some(recording) = &mut self.recording {
                    recording.sent((from, stream), &push, self.now_us);
                }
                let up = self.servers.get(&server).and_then(|s| s.up.as_ref());
                match up.map(|up| up.life) {
                    Some(life) => {
                        let frame = Done::Frame(from, shard, stream, push);
                        let event = Event::Server(life, frame);
                        self.send(Party::Group(id), Party::Server(server), event);
                    }
                    None => self.lose_stream(from, shard, stream),
                }
            }
            Out::Call(number, call) => self.make_call(from, number, call),
            Out::Wake(after_us, wake) => self.after(after_us, Event::Wake(from, wake)),
            Out::Compute => self.compute(from),
            Out::Meet(meeting, summary) => {
                let member = self.groups.get_mut(&id).expect("a configured group");
                if let Some(met) = member.group.meet(rank, meeting, summary) {
                    let incarnation = member.group.ranks[&rank].incarnation();
                    for rank in met.ranks {
                        let wake = Wake::Met(incarnation, meeting, met.outcome);
                        // One that was done may have ended.
                        if let Some(address) = self.address(id, rank) {
                            self.after(MEET_US, Event::Wake(address, wake));
                        }
                    }
                    if let Some(clock) = met.ticked {
                        self.ticked(id, incarnation, clock)?;
                    }
                    self.dies(met.outcome.seen.samples);
                }
            }
            Out::Abandon(life) => self.desert(id, rank, life, true),
            Out::Took(life, block, version, values) => {
                self.checker.took(life, block, version, &values)?;
            }
            Out::Exit => {
                self.end_rank(id, rank, true);
                self.after(RESTART_US, Event::StartRank(id, rank));
            }
            Out::Left(asked) => {
                self.report.counts.drained += u64::from(asked);
                self.end_rank(id, rank, false);
                let member = self.groups.get_mut(&id).expect("a configured group");
                let seat = member.seats.get_mut(&rank).expect("a configured rank");
                seat.done = true;
            }
            Out::Failed(reason) => return self.failed(reason),
            Out::Unexpected(text) => return Err(Violation::new(Rule::Liveness, text)),
        }
        Ok(())
    }

    fn make_call(&mut self, from: Address, number: u64, call: Call) {
        let at = self.store.address;
        let Some(n) = at.filter(|n| self.coordinators.contains_key(n)) else {
            return;
        };
        let event = Event::Coordinator(n, Told::Call(from, number, call));
        self.send(Party::Group(from.group), Party::Coordinator, event);
    }

    fn ticked(
        &mut self,
        id: GroupId,
        incarnation: Incarnation,
        clock: Clock,
    ) -> Result<(), Violation> {
        self.progress_us = self.now_us;
        *self.report.clocks.entry(id).or_default() += 1;
        self.checker.ticked((id, incarnation), clock)
    }

    /// The group whose time has come dies without a word, and for good.
    fn dies(&mut self, samples_applied: u64) {
        let Some(dying) = self.scenario.stragglers.dying else {
            return;
        };
        if samples_applied >= dying.at_samples {
            for rank in 0..self.scenario.groups[dying.group.0 as usize].size {
                self.kill_rank(dying.group, Rank(rank), None, false);
            }
        }
    }

    /// The steps of a group's ranks take about as long as each other.
    fn compute(&mut self, from: Address) {
        let plan = self.scenario.groups.get(from.group.0 as usize);
        let median = plan.map_or(10_000, |plan| plan.step_us) as f64;
        let step = LogNormal::new(median.ln(), STEP_SPREAD).expect("a finite spread");
        let process = &self.groups[&from.group].group.ranks[&from.rank];
        let Clock(clock) = process.clock();
        let stragglers = &self.scenario.stragglers;
        let slowness = stragglers.factor(from.group, from.rank, clock);
        let step_us = (step.sample(&mut self.pace) * slowness) as u64;
        let computed = Wake::Computed(process.incarnation());
        self.after(step_us, Event::Wake(from, computed));
    }

    /// Ranks that had streams to a server that died notice.
    pub(super) fn streams_broke(&mut self, server: tradewind_common::ServerId, us: u64) {
        let mut there = Vec::new();
        for (id, member) in &self.groups {
            for (rank, process) in &member.group.ranks {
                if process.servers().any(|of| of == server) {
                    there.push(Address {
                        group: *id,
                        rank: *rank,
                        life: process.life(),
                    });
                }
            }
        }
        for address in there {
            let later_us = us + self.network.between(0, 5_000);
            self.at(later_us, Event::Wake(address, Wake::ServerGone(server)));
        }
    }
}
