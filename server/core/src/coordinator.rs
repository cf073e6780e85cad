//! Coordinator: the servers of the fleet and the runs on it.
//!
//! Whoever drives it writes [`Coordinator::durable`] down whenever [`Coordinator::take_dirty`] says
//! so, and only then acts on outputs: nobody hears of what a successor would not know.

use tradewind_common::{GroupId, RunId, ServerId, ShardId};

mod journal;
mod owed;
mod ranks;
mod revocations;
mod runs;
mod servers;

use self::journal::Journal;
use self::owed::Owed;
use self::revocations::Revocations;
use self::runs::{Runs, WrittenRuns};
use super::ReplyTo;
use super::answer::{Answer, Refused};
use super::durable::{Change, Durable};
use super::event::{Event, EventKind, LEASE_RAN_OUT};
use super::fleet::Fleet;
use super::order::{NotCaptured, ShardFile, ShardReport};
pub use super::output::Output;
use super::run::Run;
use super::saved::Saved;

/// The servers of the fleet and the runs on it.
#[derive(Debug)]
pub struct Coordinator {
    fleet: Fleet,
    runs: Runs,
    journal: Journal,
    owed: Owed,
    revocations: Revocations,
}

impl Coordinator {
    /// A coordinator of a fleet of `servers` servers, at least 1, numbered from 0, whose leases
    /// last `lease_ms`. It takes snapshots if there is a folder for them.
    pub fn new(servers: u32, snapshots: bool, lease_ms: u64) -> Self {
        let mut journal = Journal::default();
        journal.touch();
        Self {
            fleet: Fleet::new(servers, lease_ms),
            runs: Runs::new(snapshots),
            journal,
            owed: Owed::default(),
            revocations: Revocations::default(),
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
        let written = WrittenRuns {
            runs: durable.runs,
            resuming: durable.resuming,
            passed: durable.passed,
        };
        let mut coordinator = Self {
            fleet: Fleet::recover(servers, lease_ms, durable.servers, now_ms),
            runs: Runs::recover(written, snapshots, now_ms),
            revocations: Revocations::recover(durable.revoked),
            ..Self::new(servers, snapshots, lease_ms)
        };
        coordinator.journal.set_now(now_ms);
        let runs = coordinator.runs().count();
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
        let WrittenRuns {
            runs,
            resuming,
            passed,
        } = self.runs.to_write();
        Durable {
            servers: self.fleet.known().clone(),
            runs,
            resuming,
            passed,
            revoked: self.revocations.to_write().clone(),
        }
    }

    /// All that has to be written down, in place of what was written before; from now on it is.
    pub fn take_durable(&mut self) -> Durable {
        self.take_change();
        self.durable()
    }

    /// What has changed since this or [`take_durable`](Self::take_durable) was last called, to be written
    /// down behind what was written then; from now on it is.
    pub fn take_change(&mut self) -> Change {
        let mut change = Change {
            servers: self.fleet.take_unwritten(),
            revoked: self.revocations.take_change(),
            ..Change::default()
        };
        self.runs.take_changes(&mut change);
        change
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

    /// The next join of the run resumes it.
    pub fn resume(&mut self, run: RunId, saved: Saved) -> Result<(), Refused> {
        self.runs.resume(run, saved)?;
        self.journal.touch();
        Ok(())
    }

    /// As [`resume`](Self::resume); answered when that is written down: whoever has heard of it may
    /// join at a successor.
    pub fn ask_to_resume(&mut self, run: RunId, saved: Saved, to: ReplyTo) {
        let answer = self.resume(run, saved).map(|()| Answer::Resumes);
        self.journal.reply(to, answer);
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
        self.journal.set_now(now_ms);
        let removed = self.runs.remove(name);
        if removed.is_ok() {
            self.tell_removed(name);
        }
        let answer = removed.map(|()| Answer::Removed);
        self.journal.reply(to, answer);
        self.drain();
    }

    fn tell_removed(&mut self, name: &RunId) {
        self.journal.touch();
        self.journal.push(Output::DropMarks(name.clone()));
        let mut event = Event::new(EventKind::RunRemoved, format!("run {name} is removed"));
        event.run = Some(name.clone());
        self.journal.tell(event);
        for server in self.fleet.up() {
            self.runs.tell(server, &mut self.journal);
        }
    }

    /// A server that holds a shard has followed an order, or has got further.
    pub fn report(
        &mut self,
        server: ServerId,
        name: &RunId,
        report: ShardReport,
        now_ms: u64,
    ) -> Result<(), Refused> {
        self.journal.set_now(now_ms);
        let run = self.runs.get_mut(name)?;
        if !self.fleet.is_up(server) {
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
        self.runs.tick(elapsed.given_up, &self.fleet, now_ms);
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
        self.runs.iter_mut().for_each(|run| run.forgive(gap_ms));
    }

    /// As after a lease in which no group has said that it holds data which were forgotten.
    #[cfg(test)]
    pub(super) fn settle(&mut self) {
        self.runs.iter_mut().for_each(Run::settle);
    }

    /// The next thing to do, oldest first; orders come last, so that what has happened meanwhile is in
    /// them: a server is told of a run once.
    pub fn poll_output(&mut self) -> Option<Output> {
        if let Some(output) = self.journal.poll() {
            return Some(output);
        }
        while let Some((run, server)) = self.owed.next(|| self.fleet.up()) {
            // One that has gone meanwhile registers anew, and is told everything.
            if let (Ok(run), true) = (self.runs.get_mut(&run), self.fleet.is_up(server)) {
                return Some(Output::Order(Box::new(run.order(server, &self.fleet))));
            }
        }
        None
    }

    /// A run, for the status page.
    pub fn run(&self, run: &RunId) -> Result<&Run, Refused> {
        self.runs.get(run)
    }

    /// Whether nothing of any run is left to be kept: nobody trains, and no snapshot is under way.
    pub fn is_idle(&self) -> bool {
        self.runs.iter().all(Run::is_idle)
    }

    /// All runs.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter()
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
        self.runs.get_mut(run)
    }

    /// Collects what runs want done, and which of them servers are to hear of.
    fn drain(&mut self) {
        self.runs.collect(&mut self.journal);
        self.runs.owe_orders(&mut self.owed);
        self.answer_revocations();
    }

    /// How many groups were looked at so far, for who measures: whatever happens to one group looks at few.
    pub fn groups_looked_at(&self) -> u64 {
        self.runs().map(Run::groups_looked_at).sum()
    }
}
