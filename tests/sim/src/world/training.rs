//! What ranks want done, and what happens to them: they start, meet, ask, end.

use tradewind_common::{GroupId, Incarnation, Rank, ServerId};

use super::World;
use super::event::{Address, Done, Event, Told};
use crate::checker::{Rule, Violation};
use crate::group::{Call, Common, Met, Out, Process, Wake};
use crate::party::Party;
use crate::scenario::GroupPlan;

/// How long ranks take to meet.
const MEET_US: u64 = 200;

/// Until a process that has ended is started again.
const RESTART_US: u64 = 5_000;

/// How much later ranks notice, one than another, that a server died, at most.
const NOTICE_US: u64 = 5_000;

impl World {
    /// The ranks of a group begin.
    pub(super) fn begin_group(&mut self, id: GroupId, plan: GroupPlan) {
        self.groups.enter(id, plan.size);
        for rank in (0..plan.size).map(Rank) {
            let start = Event::StartRank(id, rank);
            self.agenda.after(plan.start_us, start);
        }
    }

    pub(super) fn start_rank(&mut self, id: GroupId, rank: Rank) -> Result<(), Violation> {
        let Some((address, again)) = self.groups.start(id, rank) else {
            return Ok(());
        };
        self.recorder.counts().rank_restarts += u64::from(again);
        self.rank(address, |_, _| ())
    }

    /// A rank's process ends, if there is one. A `loud` end resets its connections.
    pub(super) fn end_rank(&mut self, id: GroupId, rank: Rank, loud: bool) -> bool {
        let Some(process) = self.groups.end(id, rank) else {
            return false;
        };
        if process.incarnation() == Incarnation(0) || process.leaving() {
            return true;
        }
        self.desert(id, rank, process.incarnation(), loud);
        let now_us = self.agenda.now_us();
        let (here, there) = (Party::Group(id), Party::Coordinator);
        if loud
            && self.network.cut_until(now_us, here, there).is_none()
            && let Some(n) = self.store.address()
        {
            let us = self.network.notice(now_us);
            let lost = Told::RankLost(process.caller());
            self.agenda.at(us, Event::Coordinator(n, lost));
        }
        true
    }

    /// A rank's process is killed, and started again after a while if it is not for good.
    pub(super) fn kill_rank(&mut self, id: GroupId, rank: Rank, down_us: Option<u64>, loud: bool) {
        if self.groups.is_done(id, rank) || !self.end_rank(id, rank, loud) {
            return;
        }
        self.recorder.counts().ranks_killed += 1;
        match down_us {
            Some(down_us) => self.agenda.after(down_us, Event::StartRank(id, rank)),
            None => self.groups.finish(id, rank),
        }
    }

    /// A rank is not in a life of its group any more; its peers notice when their connections
    /// break, or are told by the coordinator.
    fn desert(&mut self, id: GroupId, rank: Rank, life: Incarnation, loud: bool) {
        let peers = self.groups.desert(id, rank, life);
        for peer in peers.into_iter().filter(|_| loud) {
            let us = self.network.notice(self.agenda.now_us());
            let deserted = Event::Wake(peer, Wake::Deserted(life));
            self.agenda.at(us, deserted);
        }
    }

    /// Ranks that had streams to a server that died notice.
    pub(super) fn streams_broke(&mut self, server: ServerId, us: u64) {
        for rank in self.groups.streaming_to(server) {
            let later_us = us + self.network.between(0, NOTICE_US);
            let gone = Event::Wake(rank, Wake::ServerGone(server));
            self.agenda.at(later_us, gone);
        }
    }

    /// Lets a rank act, if that process of it still is, and does what it wants done.
    pub(super) fn rank(
        &mut self,
        address: Address,
        act: impl FnOnce(&mut Process, &Common),
    ) -> Result<(), Violation> {
        for out in self.groups.act(address, &self.setup.common, act) {
            self.do_for_rank(address, out)?;
        }
        Ok(())
    }

    fn do_for_rank(&mut self, from: Address, out: Out) -> Result<(), Violation> {
        let (id, rank) = (from.group, from.rank);
        match out {
            Out::Frame(server, shard, stream, push) => {
                let now_us = self.agenda.now_us();
                self.recorder.sent((from, stream), &push, now_us);
                match self.servers.life(server) {
                    Some(life) => {
                        let frame = Done::Frame(from, shard, stream, push);
                        let event = Event::Server(life, frame);
                        self.send(Party::Group(id), Party::Server(server), event);
                    }
                    None => self.lose_stream(from, shard, stream),
                }
            }
            Out::Call(number, call) => self.make_call(from, number, call),
            Out::Wake(after_us, wake) => self.agenda.after(after_us, Event::Wake(from, wake)),
            Out::Compute => {
                let (step_us, computed) = self.groups.compute(from, &self.setup);
                self.agenda.after(step_us, Event::Wake(from, computed));
            }
            Out::Meet(meeting, summary) => {
                if let Some((life, met)) = self.groups.meet(from, meeting, summary) {
                    self.met(id, life, &met)?;
                }
            }
            Out::Abandon(life) => self.desert(id, rank, life, true),
            Out::Took(life, block, version, values) => {
                self.checker.took(life, block, version, &values)?;
            }
            Out::Exit => {
                self.end_rank(id, rank, true);
                self.agenda.after(RESTART_US, Event::StartRank(id, rank));
            }
            Out::Left(asked) => {
                self.recorder.counts().drained += u64::from(asked);
                self.end_rank(id, rank, false);
                self.groups.finish(id, rank);
            }
            Out::Failed(reason) => return self.failed(reason),
            Out::Unexpected(text) => return Err(Violation::new(Rule::Liveness, text)),
        }
        Ok(())
    }

    fn make_call(&mut self, from: Address, number: u64, call: Call) {
        if let Some(n) = self.acting() {
            let event = Event::Coordinator(n, Told::Call(from, number, call));
            self.send(Party::Group(from.group), Party::Coordinator, event);
        }
    }

    /// All ranks of a life of a group have met.
    fn met(&mut self, id: GroupId, life: Incarnation, met: &Met) -> Result<(), Violation> {
        for rank in &met.ranks {
            // One that was done may have ended.
            if let Some(address) = self.groups.address(id, *rank) {
                let wake = Wake::Met(life, met.meeting, met.outcome);
                self.agenda.after(MEET_US, Event::Wake(address, wake));
            }
        }
        if let Some(clock) = met.ticked {
            self.recorder.ticked(id, self.agenda.now_us());
            self.checker.ticked((id, life), clock)?;
        }
        self.dies(met.outcome.seen.samples);
        Ok(())
    }

    /// The group whose time has come dies without a word, and for good.
    fn dies(&mut self, samples_applied: u64) {
        let Some(dying) = self.setup.scenario.stragglers.dying else {
            return;
        };
        if samples_applied >= dying.at_samples {
            for rank in 0..self.setup.scenario.groups[dying.group.0 as usize].size {
                self.kill_rank(dying.group, Rank(rank), None, false);
            }
        }
    }
}
