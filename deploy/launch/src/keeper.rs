//! Keeps the processes of a run going: tells the supervisor what happens and does what it decides.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rustix::io::Errno;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tradewind_common::exit::Exit;
use tradewind_common::identity::Identity;
use tradewind_common::record::StepRecord;
use tradewind_common::run_files;
use tradewind_process::{Supervised, supervise};
use tradewind_proto::v1::StatusReply;
use tradewind_server::events::EventLog;

use super::LISTEN;
use super::board::RunBoard;
use super::finished::{Finished, Judged};
use super::local::{LaunchContext, Local};
use super::ping::{Heard, follow, host, ping};
use super::supervisor::{Action, Death, Notice, Progress, Rules, Silence, Supervisor};
use tradewind_folder::clock::{Clock, wall};
use tradewind_folder::cluster::Access;
use tradewind_folder::events::{ENDING, Event, Events, lost_rank};
use tradewind_folder::failure::Failure;
use tradewind_folder::lines::Metrics;
use tradewind_folder::member::Member;
use tradewind_folder::member::ProcessEnd;
use tradewind_folder::rotation::Rotation;

/// What was heard and has not been looked at; who speaks waits.
const HEARD_MAX: usize = 256;

/// A longer exception is in the log alone.
const EXCEPTION_BYTES_MAX: usize = 300;

/// The processes of a run, and whoever is asked about them.
#[derive(Debug)]
pub struct Keeper<'a> {
    local: Local<'a>,
    supervisor: Supervisor,
    context: LaunchContext<'a>,
    access: Access,
    /// The right to have a server host the coordinator.
    as_server: Access,
    clock: Clock,
    log: EventLog,
    events: Events,
    metrics: Metrics,
    board: RunBoard,
    rotation: Rotation,
    to: Sender<Heard>,
    heard: Receiver<Heard>,
    pings: BTreeMap<u32, Supervised>,
    follower: Supervised,
    /// Scripts of which it is not yet known what their end means.
    finished: Finished,
    /// How the last process of each member that has died ended.
    ended: BTreeMap<Member, ProcessEnd>,
    /// What the coordinator said last, and when.
    status: Option<(u64, StatusReply)>,
    /// `processes.json` could not be written, and that was said.
    unwritten: bool,
    /// That all groups leave is what is wanted.
    is_ending: bool,
}

/// What was found by looking.
#[derive(Debug, Default)]
pub struct Found {
    /// Exchanges that groups have finished.
    pub records: Vec<StepRecord>,
    /// Lines for people.
    pub messages: Vec<String>,
    /// Why the run cannot go on.
    pub failure: Option<Failure>,
    /// The budget is applied, and every rank has ended.
    pub done: bool,
}

impl<'a> Keeper<'a> {
    /// Starts all processes of a run. Must be called on the thread that lives longest, in a runtime.
    pub fn start(context: LaunchContext<'a>, clock: Clock) -> anyhow::Result<Self> {
        let path = context.folder.path();
        let access = context.secrets.access(&Identity::Person(None))?;
        let as_server = context.secrets.access(&Identity::Server(None))?;
        let log = EventLog::open(path)?;
        // What a previous launcher left is known.
        let mut events = Events::of(path, &context.config.name);
        events.fresh()?;
        let mut metrics = Metrics::new(context.folder.file(run_files::METRICS));
        metrics.fresh()?;
        let mut local = Local::new(context);
        local.start_all()?;
        let liveness = &context.config.liveness;
        let lease_ms = liveness.lease_ms;
        let rules = Rules {
            progress: Progress::Clocks { lease_ms },
            silence: Some(Silence {
                lease_ms,
                ping_ms: liveness.heartbeat_ms,
                away_ms: lease_ms + liveness.retry_ms,
                listen_ms: LISTEN.as_millis() as u64,
            }),
            finds_host: true,
            servers_finish: false,
        };
        let (to, heard) = channel(HEARD_MAX);
        let pause = Duration::from_millis(liveness.heartbeat_ms);
        let name = context.config.name.clone();
        let following = follow(access.clone(), path.to_owned(), name, pause, to.clone());
        let follower = supervise("the questions to the coordinator", following);
        let mut keeper = Self {
            supervisor: Supervisor::new(rules, local.lives(), clock.now_ms()),
            local,
            context,
            access,
            as_server,
            clock,
            log,
            events,
            metrics,
            board: RunBoard::new(context.config, path),
            rotation: Rotation::new(path, path),
            to,
            heard,
            pings: BTreeMap::new(),
            follower,
            finished: Finished::default(),
            ended: BTreeMap::new(),
            status: None,
            unwritten: false,
            is_ending: false,
        };
        for server in 0..context.config.cluster.servers {
            keeper.ping(server);
        }
        Ok(keeper)
    }

    /// The right to ask the servers.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// What the coordinator said last.
    pub fn status(&self) -> Option<&StatusReply> {
        Some(&self.status.as_ref()?.1)
    }

    /// Takes in what has happened since the last look, and acts on it.
    pub fn look(&mut self) -> anyhow::Result<Found> {
        let mut found = Found::default();
        for (member, ended) in self.local.deaths()? {
            if ended.success && self.is_script(member) {
                self.finished.add(member, ended);
            } else {
                self.has_died(member, ended.status, ended);
            }
        }
        for server in self.local.listening() {
            self.supervisor
                .handle_listening(server, self.clock.now_ms());
            self.ping(server);
            self.write_down(&mut found);
        }
        while let Ok(heard) = self.heard.try_recv() {
            self.hear(heard);
        }
        found.records = self.metrics.fresh()?;
        found.messages.extend(self.board.take(&found.records));
        for record in &found.records {
            let at_ms = self.at_ms(record.wall);
            self.supervisor.handle_clock(record.group, at_ms);
            let stragglers = &self.context.config.stragglers;
            if let Some(dying) = stragglers.dying
                && stragglers.dead(dying.group, record.samples_applied)
            {
                self.supervisor.handle_stop(dying.group.0);
            }
        }
        for event in self.events.fresh()? {
            self.take_in(&event, &mut found);
        }
        found.messages.extend(self.rotation.look());
        self.supervisor.tick(self.clock.now_ms());
        self.act(&mut found);
        let failed = self.status().filter(|status| !status.failure.is_empty());
        if let Some(status) = failed {
            found
                .failure
                .get_or_insert_with(|| Failure::of_status(status));
        }
        let left = self.supervisor.all_left();
        found.done = self.supervisor.ranks_done() && !left;
        if left && !self.is_ending {
            let text = "every group has left before train.samples were applied; `tradewind run CONFIG --resume` goes on from the last snapshot";
            found
                .failure
                .get_or_insert_with(|| Failure::of_run(text.into()));
        }
        Ok(found)
    }

    /// Ends the ranks; the servers stay.
    pub fn end_training(&mut self) {
        self.supervisor.handle_enough();
    }

    /// The run ends, as it was `interrupted` or `asked to terminate`, and groups may be asked to leave:
    /// that none is left is no failure then.
    pub fn expect_leaving(&mut self, by: &str) {
        self.is_ending = true;
        let (run, text) = (&self.context.config.name, format!("the run ends: {by}"));
        self.log.write(&Event::of_run(wall(), ENDING, text, run));
    }

    /// Ends all processes: the coordinator before the other servers, so that it does not tell of their end as of a
    /// fault.
    pub fn stop(&mut self) {
        if let Some(host) = self.supervisor.host() {
            self.local.stop_ranks_and(host);
        }
        self.local.stop();
    }

    fn is_script(&self, member: Member) -> bool {
        matches!(member, Member::Rank { .. }) && self.context.config.is_script()
    }

    /// `status` is what its end means.
    fn has_died(&mut self, member: Member, status: Option<i32>, ended: ProcessEnd) {
        let how = match raised(&ended).filter(|_| self.is_script(member)) {
            Some(why) => format!("{} ({why})", ended.how),
            None => ended.how.clone(),
        };
        let now_ms = self.clock.now_ms();
        self.ended.insert(member, ended);
        self.supervisor
            .handle_death(member, &Death { status, how }, now_ms);
    }

    /// A moment of the machine's clock by the launcher's.
    fn at_ms(&self, then: f64) -> u64 {
        let ago_ms = ((wall() - then) * 1000.0).max(0.0) as u64;
        self.clock.now_ms().saturating_sub(ago_ms)
    }

    fn hear(&mut self, heard: Heard) {
        let now_ms = self.clock.now_ms();
        match heard {
            Heard::Pong {
                server,
                life,
                coordinates,
            } => self
                .supervisor
                .handle_pong(server, life, coordinates, now_ms),
            Heard::Hosted {
                server,
                life,
                hosts,
            } => self.supervisor.handle_hosted(server, life, hosts, now_ms),
            Heard::Status(status) => {
                for judged in self.finished.hear(status.as_deref()) {
                    let Judged {
                        member,
                        ended,
                        exit,
                    } = judged;
                    self.has_died(member, Some(exit.number().into()), ended);
                }
                let Some(status) = status else { return };
                let ranks = status.groups.iter().flat_map(|group| {
                    let ranks = group.ranks.iter();
                    ranks.map(|rank| (group.group, rank.rank))
                });
                let present: BTreeSet<(u32, u32)> = ranks.collect();
                self.supervisor.handle_present(&present, now_ms);
                self.hear_of_silence(&status);
                self.status = Some((now_ms, *status));
            }
        }
    }

    /// Events are in the file sooner, unless the disk is full. A run is told of its own alone.
    fn hear_of_silence(&mut self, status: &StatusReply) {
        let Some((then_ms, before)) = &self.status else {
            return;
        };
        if before.coordinator != status.coordinator {
            return;
        }
        let known = before.events.last().map_or(0, |event| event.number);
        for event in status.events.iter().filter(|event| event.number > known) {
            let lost = lost_rank(&event.kind, &event.text, event.group, event.rank);
            if let Some(lost) = lost.filter(|lost| lost.silent) {
                // It happened later than that.
                let (group, rank) = (lost.group, lost.rank);
                self.supervisor.handle_silent(group, rank, *then_ms);
            }
        }
    }

    fn take_in(&mut self, event: &Event, found: &mut Found) {
        if let Some(lost) = event.lost_rank() {
            let (group, rank) = (lost.group, lost.rank);
            if lost.silent {
                let at_ms = self.at_ms(event.wall);
                self.supervisor.handle_silent(group, rank, at_ms);
            } else if self.local.runs(Member::Rank { group, rank }) {
                // One whose process has died is told of when it is started again.
                found.messages.push(event.text.clone());
            }
        } else if event.is_shown() {
            found.messages.push(event.text.clone());
        }
    }

    /// Does what the supervisor wants, and tells it what came of it.
    fn act(&mut self, found: &mut Found) {
        while let Some(action) = self.supervisor.poll_action() {
            let now_ms = self.clock.now_ms();
            match action {
                Action::Tell(notice) => self.tell(notice, found),
                Action::Kill { member } => self.local.kill(member),
                Action::Terminate { member } => self.local.terminate(member),
                Action::Host { server, life } => self.ask_to_host(server, life),
                Action::Start {
                    member,
                    life,
                    coordinate,
                } => match self.local.start(member, life, coordinate) {
                    Ok(()) => {
                        self.supervisor.handle_started(member, now_ms);
                        self.write_down(found);
                    }
                    Err(error) => {
                        let why = reason(&error);
                        // How a previous process of its ended is not why it is given up.
                        self.ended.remove(&member);
                        self.supervisor.handle_not_started(member, &why, now_ms);
                    }
                },
                Action::GiveUp { member, why, .. } => {
                    let failure = match self.ended.remove(&member) {
                        Some(ended) => ended.because(why).into(),
                        None => Failure::of_member(member, why),
                    };
                    found.failure.get_or_insert(failure);
                }
            }
        }
    }

    fn tell(&self, notice: Notice, found: &mut Found) {
        let Notice {
            kind,
            text,
            member,
            life,
            show,
        } = notice;
        if show {
            found.messages.push(text.clone());
        }
        let run = &self.context.config.name;
        self.log
            .write(&Event::of(wall(), kind, text, member, life).in_run(run));
    }

    /// Pings the present process of a server, and no previous one.
    fn ping(&mut self, server: u32) {
        let Some((life, address)) = self.local.address(server) else {
            return;
        };
        let liveness = &self.context.config.liveness;
        let times = (
            Duration::from_millis(liveness.heartbeat_ms),
            Duration::from_millis(liveness.lease_ms),
        );
        let whom = (server, life, address);
        let asking = ping(self.access.clone(), whom, times, self.to.clone());
        let task = supervise(format!("the pings of server {server}"), asking);
        if let Some(previous) = self.pings.insert(server, task) {
            previous.abort();
        }
    }

    fn ask_to_host(&mut self, server: u32, life: u64) {
        let address = self.local.address(server).filter(|(of, _)| *of == life);
        let Some((_, address)) = address else {
            let now_ms = self.clock.now_ms();
            return self.supervisor.handle_hosted(server, life, false, now_ms);
        };
        let whom = (server, life, address);
        let servers = self.context.config.cluster.servers;
        let asking = host(self.as_server.clone(), whom, servers, self.to.clone());
        supervise(format!("the question to server {server}"), asking);
    }

    fn write_down(&mut self, found: &mut Found) {
        let written = self.local.write_down();
        if let Err(error) = &written
            && !self.unwritten
        {
            found.messages.push(format!("{error:#}; the run goes on"));
        }
        self.unwritten = written.is_err();
    }
}

impl Drop for Keeper<'_> {
    fn drop(&mut self) {
        self.follower.abort();
        self.pings.values().for_each(Supervised::abort);
    }
}

/// The exception with which a script has ended: Python writes it in the last line.
fn raised(ended: &ProcessEnd) -> Option<&str> {
    let failed = ended.status == Some(i32::from(Exit::Failed.number()));
    let traceback = ended.tail.contains("  File \"");
    let last = ended.tail.lines().last()?;
    (failed && traceback && last.len() <= EXCEPTION_BYTES_MAX).then_some(last)
}

/// Why a process could not be started. Where the machine has run out of something, that is said.
fn reason(error: &anyhow::Error) -> String {
    let errno = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<std::io::Error>())
        .and_then(Errno::from_io_error);
    let out_of = match errno {
        Some(Errno::AGAIN) => "; the machine, or its user, has no more processes to give",
        Some(Errno::NOMEM) => "; the machine has no more memory",
        Some(Errno::MFILE | Errno::NFILE) => "; too many files are open",
        Some(Errno::NOSPC | Errno::DQUOT) => "; the disk is full",
        _ => "",
    };
    format!("{error:#}{out_of}")
}
