//! Coordinator: the servers of the fleet and the runs on it.
//!
//! Whoever drives it writes [`Coordinator::durable`] down whenever [`Coordinator::take_dirty`] says
//! so, and only then acts on outputs: nobody hears of what a successor would not know.

use std::collections::BTreeMap;

use tradewind_common::{GroupId, RunId, ServerId, ShardId};

mod create;
mod journal;
mod ranks;
mod servers;

use self::journal::Journal;
use super::ReplyTo;
use super::answer::{Answer, Refused};
use super::durable::Durable;
use super::event::{Event, EventKind, LEASE_RAN_OUT};
use super::fleet::Fleet;
use super::order::{NotCaptured, ShardFile, ShardReport};
pub use super::output::Output;
use super::refusal::Refusal;
use super::run::Run;
use super::saved::{Passed, Saved};

/// The servers of the fleet and the runs on it.
#[derive(Debug)]
pub struct Coordinator {
    fleet: Fleet,
    /// Whether there is a folder for snapshots.
    snapshots: bool,
    runs: BTreeMap<RunId, Run>,
    /// Runs that go on from a snapshot when they are joined.
    resuming: BTreeMap<RunId, Saved>,
    passed: Passed,
    journal: Journal,
}

impl Coordinator {
    /// A coordinator of a fleet of `servers` servers, at least 1, numbered from 0, whose leases
    /// last `lease_ms`. It takes snapshots if there is a folder for them.
    pub fn new(servers: u32, snapshots: bool, lease_ms: u64) -> Self {
        let mut journal = Journal::default();
        journal.touch();
        Self {
            fleet: Fleet::new(servers, lease_ms),
            snapshots,
            runs: BTreeMap::new(),
            resuming: BTreeMap::new(),
            passed: Passed::default(),
            journal,
        }
    }

    /// Goes on for a coordinator that is no more. Servers and ranks have one lease to show up.
    pub fn recover(
        servers: u32,
        snapshots: bool,
        lease_ms: u64,
        durable: Durable,
        now_ms: u64,
    ) -> Self {
        let mut coordinator = Self {
            fleet: Fleet::recover(servers, lease_ms, durable.servers, now_ms),
            runs: durable
                .runs
                .into_iter()
                .map(|(name, run)| (name, Run::recover(run, snapshots, now_ms)))
                .collect(),
            resuming: durable.resuming,
            passed: durable.passed,
            ..Self::new(servers, snapshots, lease_ms)
        };
        coordinator.journal.set_now(now_ms);
        let runs = coordinator.runs.len();
        let text = format!("a coordinator has taken over, with {runs} runs");
        coordinator
            .journal
            .tell(Event::new(EventKind::Coordinator, text));
        coordinator.drain();
        coordinator
    }

    /// The same in the process of a server: what that one says is no sign that the coordinator reaches
    /// others.
    #[must_use]
    pub fn hosted_by(mut self, server: ServerId) -> Self {
        self.fleet.hosted_by(server);
        self
    }

    /// What has to be written down before outputs are acted on.
    pub fn durable(&self) -> Durable {
        Durable {
            servers: self.fleet.known().clone(),
            runs: self
                .runs
                .iter()
                .map(|(name, run)| (name.clone(), run.to_write()))
                .collect(),
            resuming: self.resuming.clone(),
            passed: self.passed,
        }
    }

    /// Whether something was decided, since this was last asked, that has to be written down before
    /// it is acted on.
    pub fn take_dirty(&mut self) -> bool {
        self.journal.take_dirty()
    }

    /// Whether data were leased since this was last asked. What is written of that survives the
    /// coordinator's process, but need not survive its host: some samples would be seen twice.
    pub fn take_leased(&mut self) -> bool {
        self.journal.take_leased()
    }

    /// Adds groups of so many ranks each; answered with the number of the first.
    pub fn attach(&mut self, run: &RunId, sizes: &[u32], to: ReplyTo, now_ms: u64) {
        match self.run_mut(run, now_ms) {
            Ok(run) => run.attach(sizes, to),
            Err(refused) => self.journal.reply(to, Err(refused)),
        }
        self.drain();
    }

    /// Asks groups to leave; where none is named, all of them and whoever comes later.
    pub fn ask_to_leave(&mut self, run: &RunId, groups: &[GroupId], to: ReplyTo, now_ms: u64) {
        match self.run_mut(run, now_ms) {
            Ok(run) => run.drain(groups, to, now_ms),
            Err(refused) => self.journal.reply(to, Err(refused)),
        }
        self.drain();
    }

    /// Forgets a run that is over, or that nobody has joined since it was to go on.
    pub fn remove(&mut self, name: &RunId, to: ReplyTo, now_ms: u64) {
        let idle = match self.run_mut(name, now_ms).map(|run| run.is_idle()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Refused::StillTrains(name.clone())),
            Err(_) if self.resuming.contains_key(name) => Ok(()),
            Err(unknown) => Err(unknown),
        };
        if idle.is_ok() {
            self.forget(name);
        }
        let answer = idle.map(|()| Answer::Removed);
        self.journal.reply(to, answer);
        self.drain();
    }

    fn forget(&mut self, name: &RunId) {
        self.resuming.remove(name);
        if let Some(run) = self.runs.remove(name) {
            self.passed = run.passed().max(self.passed);
        }
        self.journal.touch();
        self.journal.push(Output::DropMarks(name.clone()));
        let mut event = Event::new(EventKind::RunRemoved, format!("run {name} is removed"));
        event.run = Some(name.clone());
        self.journal.tell(event);
        let servers: Vec<ServerId> = self.fleet.up().collect();
        servers
            .into_iter()
            .for_each(|server| self.tell_runs(server));
    }

    fn tell_runs(&mut self, server: ServerId) {
        let runs = self.runs.keys().cloned().collect();
        self.journal.push(Output::Runs(server, runs));
    }

    /// A server that holds a shard has followed an order, or has got further.
    pub fn report(
        &mut self,
        server: ServerId,
        name: &RunId,
        report: ShardReport,
        now_ms: u64,
    ) -> Result<(), Refused> {
        let up = self.fleet.is_up(server);
        let run = self.run_mut(name, now_ms)?;
        if !up {
            return Err(Refused::NotRegistered(server));
        }
        let (given, current) = (report.seen.generation, run.generation());
        if given > current {
            let run = name.clone();
            return Err(Refused::GenerationAhead {
                run,
                given,
                current,
            });
        }
        let run = self.runs.get_mut(name).expect("it was found above");
        run.report(server, report, &self.fleet, now_ms);
        self.drain();
        Ok(())
    }

    /// A server has written its part of a snapshot, or could not.
    pub fn captured(
        &mut self,
        server: ServerId,
        run: &RunId,
        shard: ShardId,
        number: u64,
        result: Result<ShardFile, NotCaptured>,
        now_ms: u64,
    ) -> Result<(), Refused> {
        if !self.fleet.is_up(server) {
            return Err(Refused::NotRegistered(server));
        }
        let run = self.run_mut(run, now_ms)?;
        run.captured(server, shard, number, result, now_ms);
        self.drain();
        Ok(())
    }

    /// Somebody asks for a snapshot; answered when it is whole.
    pub fn snapshot(&mut self, run: &RunId, to: ReplyTo, now_ms: u64) {
        match self.run_mut(run, now_ms) {
            Ok(run) => run.snapshot(to, now_ms),
            Err(refused) => self.journal.reply(to, Err(refused)),
        }
        self.drain();
    }

    /// The manifest of a snapshot is on disk, or why it is not.
    pub fn written(&mut self, run: &RunId, number: u64, result: Result<(), String>, now_ms: u64) {
        if let Ok(run) = self.run_mut(run, now_ms) {
            run.written(number, result, now_ms);
        }
        self.drain();
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ms: u64) {
        self.journal.set_now(now_ms);
        let elapsed = self.fleet.elapse(now_ms);
        for (server, incarnation) in elapsed.lost {
            self.lose((server, incarnation), LEASE_RAN_OUT, false);
        }
        for run in self.runs.values_mut() {
            if elapsed.given_up || run.is_unsettled() {
                run.place(None, &self.fleet, now_ms);
            }
            run.tick(now_ms);
        }
        if elapsed.given_up {
            self.journal.touch();
        }
        self.drain();
    }

    /// Whether what was decided can be written down has changed; the status page shows it at once,
    /// though outputs wait.
    pub fn disk(&mut self, text: String) {
        self.journal.tell(Event::new(EventKind::Disk, text));
    }

    /// The coordinator itself was held up for so long, and heard nobody: what was silent meanwhile
    /// need not have been.
    pub fn forgive(&mut self, gap_ms: u64) {
        self.fleet.forgive(gap_ms);
        for run in self.runs.values_mut() {
            run.forgive(gap_ms);
        }
    }

    /// As after a lease in which no group has said that it holds data which were forgotten.
    #[cfg(test)]
    pub(super) fn settle(&mut self) {
        self.runs.values_mut().for_each(Run::settle);
    }

    /// The next thing to do, oldest first.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.journal.poll()
    }

    /// A run, for the status page.
    pub fn run(&self, run: &RunId) -> Result<&Run, Refused> {
        self.runs
            .get(run)
            .ok_or_else(|| Refusal::UnknownRun(run.clone()).into())
    }

    /// Whether nothing of any run is left to be kept: nobody trains, and no snapshot is under way.
    pub fn is_idle(&self) -> bool {
        self.runs.values().all(Run::is_idle)
    }

    /// All runs.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.values()
    }

    /// The servers.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// What happened last, oldest first; at most [`EVENTS_MAX`](super::event::EVENTS_MAX).
    pub fn recent_events(&self) -> impl Iterator<Item = &Event> {
        self.journal.recent()
    }

    fn run_mut(&mut self, run: &RunId, now_ms: u64) -> Result<&mut Run, Refused> {
        self.journal.set_now(now_ms);
        self.runs
            .get_mut(run)
            .ok_or_else(|| Refusal::UnknownRun(run.clone()).into())
    }

    /// Collects what runs want done, in the order in which it came up.
    fn collect(&mut self) {
        for run in self.runs.values_mut() {
            self.journal.collect(run.take_changes());
        }
    }

    /// Collects what runs want done, and tells servers what has come of it.
    fn drain(&mut self) {
        self.collect();
        for run in self.runs.values_mut() {
            if run.take_order_due() {
                let orders = self.fleet.up().map(|server| run.order(server, &self.fleet));
                let orders = orders.map(|order| Output::Order(Box::new(order)));
                orders.for_each(|order| self.journal.push(order));
            }
        }
    }
}
