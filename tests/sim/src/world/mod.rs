//! World: virtual time, and the actors between which things happen.
//!
//! Each actor, and whoever looks on, is a value that owns what it changes, in a file of its own. What
//! happens comes into it through a method, and what it wants done comes out; [`World`] takes that to
//! the network, the disk or the agenda (`coordinating.rs`, `serving.rs`, `training.rs`), and lets
//! things fail (`faults.rs`).

mod agenda;
mod beginning;
mod coordinating;
mod coordinator;
mod disk;
mod event;
mod faults;
mod groups;
mod held;
mod marks;
mod mischief;
mod orders;
mod recorder;
mod recording;
mod running;
mod saboteur;
mod servers;
mod serving;
mod setup;
mod store;
mod training;
mod twist;
mod ways;
mod witness;

use tradewind_common::{GroupId, ShardId};
use tradewind_core::run::Run;

use crate::checker::{Checker, Rule, Violation};
use crate::group::Wake;
use crate::net::{Fate, Network};
use crate::party::Party;
use crate::report::Report;
use crate::scenario::{Sabotage, Scenario};
use crate::seeds::Failure;
use agenda::{Agenda, Happens};
use coordinator::Coordinators;
use disk::Disk;
use event::{Address, Done, Event, Process};
use groups::Groups;
use marks::Marks;
use mischief::Mischief;
use recorder::Recorder;
use running::Around;
use servers::Servers;
use setup::Setup;
use store::Store;
use witness::{Facts, Witness};

/// Virtual time that no run needs.
const END_US: u64 = 600_000_000;

/// Events that no run needs.
const EVENTS_MAX: u64 = 300_000;

/// How long after the end of a run losses may be told, microseconds: a coordinator may have to be
/// started for it.
const TOLD_LATE_US: u64 = 6_000_000;

/// One simulated run.
pub struct World {
    setup: Setup,
    agenda: Agenda,
    network: Network,
    disk: Disk,
    store: Store,
    marks: Marks,
    coordinators: Coordinators,
    servers: Servers,
    groups: Groups,
    mischief: Mischief,
    checker: Checker,
    witness: Witness,
    recorder: Recorder,
    /// What a coordinator has decided breaks a rule.
    broken: Option<Violation>,
    /// When all groups were done.
    ended_us: Option<u64>,
}

impl World {
    /// The world of a scenario, before anything has happened.
    pub fn new(scenario: Scenario) -> Self {
        let setup = Setup::new(scenario);
        let (scenario, common) = (&setup.scenario, &setup.common);
        let (seed, malformed_us) = (scenario.seed, scenario.malformed_every_us);
        let placement = common.placement.clone();
        let follows = setup.breaks(Sabotage::FollowsAnyLog);
        let mut world = Self {
            agenda: Agenda::default(),
            network: Network::new(scenario.network.clone(), seed),
            disk: Disk::new(seed),
            store: Store::default(),
            marks: Marks::default(),
            coordinators: Coordinators::default(),
            servers: Servers::default(),
            groups: Groups::new(seed),
            mischief: Mischief::new(seed, malformed_us, follows),
            recorder: Recorder::new(scenario, &placement),
            checker: Checker::new(&common.spec, &common.layout, placement, common.brought),
            witness: Witness::default(),
            broken: None,
            ended_us: None,
            setup,
        };
        world.set_up();
        for (index, planned) in world.setup.scenario.faults.iter().enumerate() {
            world.agenda.after(planned.at_us, Event::Fault(index));
        }
        if malformed_us > 0 {
            world.agenda.after(malformed_us, Event::Malformed);
        }
        world
    }

    /// The processes of the scenario as it is now begin.
    fn set_up(&mut self) {
        let scenario = &self.setup.scenario;
        self.agenda.after(0, Event::StartCoordinator);
        self.servers.enter(scenario.servers);
        for id in self.servers.ids() {
            self.agenda.after(0, Event::StartServer(id));
        }
        for (index, plan) in scenario.groups.clone().into_iter().enumerate() {
            self.begin_group(GroupId(index as u32), plan);
        }
    }

    /// Lets everything happen until all groups are done, or a rule is broken.
    pub fn run(mut self) -> Result<Report, Failure> {
        match self.run_to_end() {
            Ok(()) => {
                self.recorder.counts().kept_in_vain += self.witness.kept_in_vain();
                let mut report = self.recorder.finish(self.agenda.now_us());
                self.checker.totals(&mut report);
                Ok(report)
            }
            Err(violation) => Err(Failure {
                seed: self.setup.scenario.seed,
                at_us: self.agenda.now_us(),
                violation,
            }),
        }
    }

    fn run_to_end(&mut self) -> Result<(), Violation> {
        while !self.recorder.has_failed()
            && self.broken.is_none()
            && (!self.groups.are_done() || self.owes())
        {
            let Some(Happens { event, woken }) = self.agenda.advance() else {
                continue;
            };
            if let Some((Process::Coordinator(n), since_us)) = woken {
                self.coordinator_wakes(n, since_us);
            }
            let now_us = self.agenda.now_us();
            let events = self.recorder.happens(&event, now_us);
            let endless = now_us > END_US || events > EVENTS_MAX;
            let still_us = now_us - self.recorder.progress_us();
            let waits = self.ended_us.is_none();
            if endless || (waits && still_us > self.setup.stuck_us()) {
                return Err(Violation::new(Rule::Liveness, self.stuck()));
            }
            self.happen(event)?;
        }
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        if !self.recorder.has_failed() {
            self.check_told()?;
            self.checker.end()?;
        }
        self.recorder.check()
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Coordinator(n, told) => self.coordinator_hears(n, told),
            Event::Wrote(n) => self.wrote(n),
            Event::Looked(n) => self.looked(n),
            Event::StartCoordinator => self.start_coordinator(),
            Event::ReadState(n) => self.read_state(n),
            Event::Finish(n, manifest) => self.finish_snapshot(n, *manifest),
            Event::Delete(number) => self.disk.delete(number),
            Event::Server(life, done) => return self.server(life, done),
            Event::StartServer(id) => self.start_server(id),
            Event::Answered(to, call, answer, directory) => {
                return self.rank(to, |rank, common| {
                    rank.answered(call, answer, directory, common);
                });
            }
            Event::Reply(to, (life, shard), stream, result) => {
                if let Ok(reply) = &result {
                    let now_us = self.agenda.now_us();
                    self.recorder.answered((to, stream), reply, now_us);
                }
                let lives = self.servers.is_up(life);
                return self.rank(to, |rank, common| {
                    rank.replied((shard, stream, lives), result, common);
                });
            }
            Event::Wake(to, wake) => return self.rank(to, |rank, common| rank.wake(wake, common)),
            Event::StartRank(group, rank) => return self.start_rank(group, rank),
            Event::Fault(index) => self.fault(index),
            Event::Malformed => {
                self.agenda
                    .after(self.mischief.pause_us(), Event::Malformed);
                let onlookers = (&self.checker, &mut self.recorder);
                let now_us = self.agenda.now_us();
                return self.mischief.disturb(&mut self.servers, onlookers, now_us);
            }
        }
        Ok(())
    }

    // Who is told what others know.

    /// The servers, and what they find around them.
    fn servers(&mut self) -> (&mut Servers, Around<'_>) {
        let around = Around {
            now_us: self.agenda.now_us(),
            setup: &self.setup,
            disk: &self.disk,
            marks: &mut self.marks,
            checker: &mut self.checker,
            witness: &mut self.witness,
            recorder: &mut self.recorder,
        };
        (&mut self.servers, around)
    }

    /// The witness, what it looks into, and the coordinators.
    fn witness(&mut self) -> (&mut Witness, Facts<'_>, &Coordinators) {
        let facts = Facts {
            now_us: self.agenda.now_us(),
            setup: &self.setup,
            servers: &self.servers,
            disk: &self.disk,
            checker: &self.checker,
        };
        (&mut self.witness, facts, &self.coordinators)
    }

    // The network.

    /// Sends a message of a rank or to one: a call, a frame, or an answer.
    fn send(&mut self, from: Party, to: Party, message: Event) {
        match self.network.send(self.agenda.now_us(), from, to) {
            Fate::Arrives(at_us, again) => {
                if let Some(again_us) = again {
                    self.agenda.at(again_us, message.clone());
                }
                self.agenda.at(at_us, message);
            }
            // Calls are made again after a time; a heartbeat is followed by the next one.
            Fate::Lost(noticed_us) => match message {
                Event::Server(_, Done::Frame(rank, shard, stream, _))
                | Event::Reply(rank, (_, shard), stream, _) => {
                    let broken = Wake::Broken(shard, stream);
                    self.agenda.at(noticed_us, Event::Wake(rank, broken));
                }
                _ => {}
            },
        }
    }

    /// A frame reached nobody.
    fn lose_stream(&mut self, rank: Address, shard: ShardId, stream: u64) {
        let us = self.network.notice(self.agenda.now_us());
        let broken = Wake::Broken(shard, stream);
        self.agenda.at(us, Event::Wake(rank, broken));
    }

    // The end.

    /// A run that fails loudly: whether it may.
    fn failed(&mut self, reason: String) -> Result<(), Violation> {
        let (witness, facts, _) = self.witness();
        let Some(why) = witness.was_needless(&facts) else {
            self.recorder.fails(reason);
            return Ok(());
        };
        let text = format!("the run failed: {reason}; but {why}");
        Err(Violation::new(Rule::Liveness, text))
    }

    /// Whether the end has to wait: all groups are done, but not all that was lost is told.
    fn owes(&mut self) -> bool {
        let now_us = self.agenda.now_us();
        let since_us = *self.ended_us.get_or_insert(now_us);
        now_us < since_us + TOLD_LATE_US && self.check_told().is_err()
    }

    /// Compares what was lost with what the last coordinator tells of it.
    fn check_told(&self) -> Result<(), Violation> {
        let last = self.coordinators.last();
        let told = last.and_then(|(_, host)| host.told(self.setup.scenario.folder));
        self.witness.check_told(told, self.checker.missing())
    }

    fn stuck(&self) -> String {
        let since_us = self.recorder.progress_us();
        let host = self.acting().and_then(|n| self.coordinators.get(n));
        let run = host.and_then(|host| host.core().run(&self.setup.common.run).ok());
        let holders = |run: &Run| run.holders().cloned().collect::<Vec<_>>();
        let run = run.map(|run| (run.phase(), holders(run), run.view(), run.rows(0)));
        let ranks = self.groups.stands();
        format!("nothing has moved since {since_us} µs; ranks {ranks:?}; the coordinator: {run:?}")
    }
}
