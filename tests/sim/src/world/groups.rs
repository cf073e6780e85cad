//! The groups: the processes of their ranks, through their lives.

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, LogNormal};
use tradewind_client::core::session::Summary;
use tradewind_common::{Clock, GroupId, Incarnation, Rank, ServerId};

use super::event::Address;
use super::setup::Setup;
use crate::group::{Common, Group, Meeting, Met, Out, Process, Wake};
use crate::random_stream;

/// σ of the logarithm of a step's time.
const STEP_SPREAD: f64 = 0.3;

/// Median time of a step of a group that the scenario does not know, microseconds.
const STEP_US: u64 = 10_000;

/// The groups that there are.
#[derive(Debug)]
pub(super) struct Groups {
    members: BTreeMap<GroupId, Member>,
    pace: ChaCha8Rng,
}

/// A group through its lives.
#[derive(Debug, Default)]
struct Member {
    group: Group,
    ranks: BTreeMap<Rank, Configured>,
}

/// A configured rank through its processes.
#[derive(Debug, Default)]
struct Configured {
    /// Processes that it has had.
    processes: u64,
    /// What they have numbered.
    numbers: u64,
    /// It has left, or died for good.
    done: bool,
}

impl Groups {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            members: BTreeMap::new(),
            pace: random_stream(seed, 3),
        }
    }

    /// A group of so many ranks, which are to be started.
    pub(super) fn enter(&mut self, id: GroupId, size: u32) {
        let member = self.members.entry(id).or_default();
        for rank in (0..size).map(Rank) {
            member.ranks.entry(rank).or_default();
        }
    }

    /// The run is resumed with groups of these sizes: all their ranks are to be started again.
    pub(super) fn resume(&mut self, sizes: &[u32]) {
        self.members.retain(|id, _| (id.0 as usize) < sizes.len());
        for (id, member) in &mut self.members {
            let size = sizes[id.0 as usize];
            member.ranks.retain(|rank, _| rank.0 < size);
            member.ranks.values_mut().for_each(|rank| rank.done = false);
        }
    }

    /// Whether nobody will come again.
    pub(super) fn are_done(&self) -> bool {
        let mut ranks = self.members.values().flat_map(|m| m.ranks.values());
        ranks.all(|rank| rank.done)
    }

    /// Whether a rank will not come again.
    pub(super) fn is_done(&self, id: GroupId, rank: Rank) -> bool {
        let configured = self.members.get(&id).and_then(|m| m.ranks.get(&rank));
        configured.is_none_or(|rank| rank.done)
    }

    /// A rank does not come again.
    pub(super) fn finish(&mut self, id: GroupId, rank: Rank) {
        self.configured(id, rank).done = true;
    }

    fn configured(&mut self, id: GroupId, rank: Rank) -> &mut Configured {
        let member = self.members.get_mut(&id).expect("a configured group");
        member.ranks.get_mut(&rank).expect("a configured rank")
    }

    /// Starts a process of a rank that has none, unless it is done; whether it had one before.
    pub(super) fn start(&mut self, id: GroupId, rank: Rank) -> Option<(Address, bool)> {
        let member = self.members.get_mut(&id)?;
        let configured = member.ranks.get_mut(&rank).expect("a configured rank");
        if configured.done || member.group.ranks.contains_key(&rank) {
            return None;
        }
        configured.processes += 1;
        let processes = configured.processes;
        let life = (processes << 16) | (u64::from(id.0) << 8) | u64::from(rank.0);
        let process = Process::start(id, rank, life, configured.numbers);
        member.group.ranks.insert(rank, process);
        let address = Address {
            group: id,
            rank,
            life,
        };
        Some((address, processes > 1))
    }

    /// The process of a rank ends; what it was.
    pub(super) fn end(&mut self, id: GroupId, rank: Rank) -> Option<Process> {
        let member = self.members.get_mut(&id)?;
        let process = member.group.ranks.remove(&rank)?;
        self.configured(id, rank).numbers = process.numbers();
        Some(process)
    }

    /// A rank is not in a life of its group any more; who is left there.
    pub(super) fn desert(&mut self, id: GroupId, rank: Rank, life: Incarnation) -> Vec<Address> {
        let member = self.members.get_mut(&id).expect("a configured group");
        let peers = member.group.desert(rank, life).into_iter();
        peers.filter_map(|peer| self.address(id, peer)).collect()
    }

    /// The process of a rank, if it is up.
    pub(super) fn address(&self, id: GroupId, rank: Rank) -> Option<Address> {
        let process = self.members.get(&id)?.group.ranks.get(&rank)?;
        Some(Address {
            group: id,
            rank,
            life: process.life(),
        })
    }

    /// Lets a rank act, if that process of it still is; what it wants done.
    pub(super) fn act(
        &mut self,
        at: Address,
        common: &Common,
        act: impl FnOnce(&mut Process, &Common),
    ) -> Vec<Out> {
        let member = self.members.get_mut(&at.group);
        let process = member.and_then(|member| member.group.ranks.get_mut(&at.rank));
        let Some(process) = process.filter(|process| process.life() == at.life) else {
            return Vec::new();
        };
        act(process, common);
        std::mem::take(&mut process.outs)
    }

    /// A rank waits for the others of its life; that life, and what came of it, if all have met.
    pub(super) fn meet(
        &mut self,
        at: Address,
        meeting: Meeting,
        summary: Option<Summary>,
    ) -> Option<(Incarnation, Met)> {
        let member = self.members.get_mut(&at.group)?;
        let met = member.group.meet(at.rank, meeting, summary)?;
        Some((member.group.ranks[&at.rank].incarnation(), met))
    }

    /// How long a step takes that a rank begins, and what it wakes to then. The steps of a group's ranks
    /// take about as long as each other.
    pub(super) fn compute(&mut self, from: Address, setup: &Setup) -> (u64, Wake) {
        let plan = setup.scenario.groups.get(from.group.0 as usize);
        let median = plan.map_or(STEP_US, |plan| plan.step_us) as f64;
        let step = LogNormal::new(median.ln(), STEP_SPREAD).expect("a finite spread");
        let process = &self.members[&from.group].group.ranks[&from.rank];
        let Clock(clock) = process.clock();
        let stragglers = &setup.scenario.stragglers;
        let slowness = stragglers.factor(from.group, from.rank, clock);
        let step_us = (step.sample(&mut self.pace) * slowness) as u64;
        (step_us, Wake::Computed(process.incarnation()))
    }

    /// The ranks that are up.
    pub(super) fn up(&self) -> Vec<Address> {
        let ranks = self.processes();
        ranks.map(|(address, _)| address).collect()
    }

    /// Those that have streams to a server.
    pub(super) fn streaming_to(&self, server: ServerId) -> Vec<Address> {
        let ranks = self.processes();
        let there = ranks.filter(|(_, process)| process.servers().any(|of| of == server));
        there.map(|(address, _)| address).collect()
    }

    fn processes(&self) -> impl Iterator<Item = (Address, &Process)> {
        self.members.iter().flat_map(|(id, member)| {
            member.group.ranks.iter().map(|(rank, process)| {
                let address = Address {
                    group: *id,
                    rank: *rank,
                    life: process.life(),
                };
                (address, process)
            })
        })
    }

    /// Where those stand that are not done, for a person.
    pub(super) fn stands(&self) -> Vec<String> {
        let ranks = self.members.iter().flat_map(|(id, member)| {
            let open = member.ranks.iter().filter(|(_, rank)| !rank.done);
            open.map(move |(rank, _)| {
                let process = member.group.ranks.get(rank);
                format!("{id}/{}: {:?}", rank.0, process.map(|p| p.stands()))
            })
        });
        ranks.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_has_one_process_at_a_time() {
        let (id, rank) = (GroupId(0), Rank(0));
        let mut groups = Groups::new(1);
        groups.enter(id, 1);
        let (first, again) = groups.start(id, rank).expect("nobody is up");
        assert!(!again && groups.start(id, rank).is_none());
        assert!(groups.end(id, rank).is_some());
        let (second, again) = groups.start(id, rank).expect("nobody is up");
        assert!(again && second.life != first.life);
        assert!(!groups.are_done());
        groups.finish(id, rank);
        groups.end(id, rank);
        assert!(groups.are_done() && groups.start(id, rank).is_none());
        groups.resume(&[1]);
        assert!(!groups.are_done());
    }
}
