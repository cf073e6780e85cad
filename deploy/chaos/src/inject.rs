//! Makes faults happen: signals to processes, cuts of connections, disks that are full.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rustix::process::Signal;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tradewind_server::events::EventLog;

use super::proxy::Net;
use super::schedule::{Fault, FaultKind};
use super::shared::{Injected, Shared};
use super::victim::Victim;
use tradewind_folder::clock::{Clock, wall};
use tradewind_folder::events::Event;
use tradewind_launch::{Member, Present, Roster};

/// Pause between two looks at what is due.
const LOOK: Duration = Duration::from_millis(20);

/// A fault whose victim was not there for so many seconds is left out; and one that waits until
/// everything is whole again.
const WAITS: f64 = 5.0;
const WAITS_FOR_WHOLE: f64 = 60.0;

/// How long everything has to be well before the next fault, where they come one at a time, seconds:
/// what has just happened may not have been seen yet.
const WELL: f64 = 1.5;

/// Nobody is killed more often than so many times in so many seconds: the launcher gives up whom it
/// has started again and again without progress.
const KILLS_MAX: usize = 2;
const KILLS_WITHIN: f64 = 20.0;

/// Of a slow process: how long it stands still, and how long it runs, in turn.
const STANDS: Duration = Duration::from_millis(160);
const RUNS: Duration = Duration::from_millis(40);

/// What the injector works with.
pub(super) struct Injector {
    pub(super) roster: Roster,
    pub(super) net: Net,
    pub(super) log: EventLog,
    pub(super) shared: Shared,
    /// The next fault waits until what the one before has done is mended.
    pub(super) one_at_a_time: bool,
    pub(super) active: JoinSet<Active>,
    /// What goes on at whom.
    pub(super) going_on: BTreeMap<Member, Vec<FaultKind>>,
    /// When each was killed lately, by the clock of the faults.
    pub(super) kills: BTreeMap<Member, Vec<f64>>,
    /// Since when everything is well, by the clock of the faults, where they come one at a time.
    pub(super) well_since: Option<f64>,
}

/// A fault that has been made to happen, and at whom.
pub(super) type Active = (FaultKind, Vec<Member>);

impl Injector {
    /// Lets faults happen as they are due, until there are no more, or `until` (in seconds) is
    /// reached; and ends them.
    pub(super) async fn run(
        &mut self,
        clock: Clock,
        faults: impl Iterator<Item = Fault>,
        until: Option<f64>,
    ) {
        let mut faults = faults.peekable();
        let mut waiting: Vec<Fault> = Vec::new();
        let waits = match self.one_at_a_time {
            true => WAITS_FOR_WHOLE,
            false => WAITS,
        };
        loop {
            let now = clock.elapsed().as_secs_f64();
            let time_over = until.is_some_and(|until| now >= until);
            while let Some(due) = faults.next_if(|fault| fault.at <= now && !time_over) {
                waiting.push(due);
            }
            let before = waiting.len();
            waiting.retain(|fault| now - fault.at < waits && !time_over);
            self.shared.left_out(before - waiting.len());
            self.ended();
            self.look_whether_well(now);
            waiting.retain(|fault| !self.hurt(*fault, now));
            let all_over = self.active.is_empty() && waiting.is_empty();
            if all_over && (time_over || faults.peek().is_none()) {
                return;
            }
            sleep(LOOK).await;
        }
    }

    fn look_whether_well(&mut self, now: f64) {
        let well = self.active.is_empty() && self.shared.known().whole;
        self.well_since = well.then(|| self.well_since.unwrap_or(now));
    }

    /// Hurts whoever is meant and there; says whether it has.
    fn hurt(&mut self, fault: Fault, now: f64) -> bool {
        if self.one_at_a_time && self.well_since.is_none_or(|since| now - since < WELL) {
            return false;
        }
        let present: BTreeSet<Member> = self.roster.members().into_iter().collect();
        let members = self.shared.known().members(fault.victim, &present);
        let clashes = |member: &Member| {
            let going_on = self.going_on.get(member).into_iter().flatten();
            { going_on }.any(|kind| kind.clashes(fault.kind))
        };
        if members.is_empty() || members.iter().any(clashes) {
            return false;
        }
        if fault.kind == FaultKind::Kill && !self.may_kill(&members, now) {
            return false;
        }
        self.inject(fault, &members, now);
        self.well_since = None;
        true
    }

    /// Whether none of them has been killed too often lately; they are killed then.
    fn may_kill(&mut self, members: &[Member], now: f64) -> bool {
        let too_often = members.iter().any(|member| {
            let kills = self.kills.entry(*member).or_default();
            kills.retain(|at| now - at < KILLS_WITHIN);
            kills.len() >= KILLS_MAX
        });
        if !too_often {
            let of = members.iter();
            of.for_each(|member| self.kills.entry(*member).or_default().push(now));
        }
        !too_often
    }

    fn inject(&mut self, fault: Fault, members: &[Member], now: f64) {
        let text = match (fault.victim, members) {
            (Victim::Coordinator | Victim::Primary(_), [host]) => format!("{fault} ({host})"),
            _ => fault.to_string(),
        };
        self.shared.say(format!("{now:7.1}s  {text}"));
        let mut present: Vec<(Member, Present)> = Vec::new();
        for member in members {
            if let Some(process) = self.roster.get(*member) {
                self.going_on.entry(*member).or_default().push(fault.kind);
                present.push((*member, process));
            }
        }
        let wall = wall();
        if let Some((member, process)) = present.first() {
            let event = Event::of(wall, "fault_injected", text, *member, process.life);
            self.log.write(&event);
        }
        self.shared.injected(Injected {
            fault,
            wall,
            members: members.to_vec(),
        });
        let tools = (self.net.clone(), self.roster.clone(), self.shared.clone());
        self.active.spawn(suffer(tools, fault, present));
    }

    /// Notes which faults are over.
    fn ended(&mut self) {
        while let Some(ended) = self.active.try_join_next() {
            let (kind, members) = ended.unwrap_or((FaultKind::Kill, Vec::new()));
            for member in members {
                if let Some(going_on) = self.going_on.get_mut(&member)
                    && let Some(at) = going_on.iter().position(|other| *other == kind)
                {
                    going_on.swap_remove(at);
                }
            }
        }
    }
}

/// What happens to those who are hurt, to its end.
async fn suffer(
    (net, roster, shared): (Net, Roster, Shared),
    fault: Fault,
    victims: Vec<(Member, Present)>,
) -> Active {
    let lasts = Duration::from_secs_f64(fault.lasts);
    let signal = |signal| {
        victims.iter().for_each(|(_, process)| {
            process.signal(signal);
        });
    };
    let last = Last {
        victims: &victims,
        kind: fault.kind,
        net: &net,
        roster: &roster,
        shared: &shared,
    };
    match fault.kind {
        FaultKind::Kill => signal(Signal::KILL),
        FaultKind::Stop => {
            last.silence();
            signal(Signal::STOP);
            sleep(lasts).await;
        }
        FaultKind::Slow => {
            let turns = lasts.as_millis() / (STANDS + RUNS).as_millis();
            for _ in 0..turns.max(1) {
                signal(Signal::STOP);
                sleep(STANDS).await;
                signal(Signal::CONT);
                sleep(RUNS).await;
            }
        }
        FaultKind::Cut => {
            last.silence();
            victims.iter().for_each(|(m, _)| net.cut(*m, fault.way));
            sleep(lasts).await;
        }
        FaultKind::Full => {
            victims.iter().for_each(|(m, _)| roster.set_full(*m, true));
            sleep(lasts).await;
        }
    }
    drop(last);
    (fault.kind, victims.iter().map(|(m, _)| *m).collect())
}

/// However a fault ends, nobody is left stopped, cut off or without a disk.
struct Last<'a> {
    victims: &'a [(Member, Present)],
    kind: FaultKind,
    net: &'a Net,
    roster: &'a Roster,
    shared: &'a Shared,
}

impl Last<'_> {
    fn silence(&self) {
        for (member, _) in self.victims {
            if let Member::Server(server) = member {
                let stopped = self.kind == FaultKind::Stop;
                self.shared.silenced(*server, wall(), stopped);
            }
        }
    }
}

impl Drop for Last<'_> {
    fn drop(&mut self) {
        for (member, process) in self.victims {
            match self.kind {
                FaultKind::Kill => {}
                FaultKind::Stop | FaultKind::Slow => {
                    process.signal(Signal::CONT);
                }
                FaultKind::Cut => self.net.heal(*member),
                FaultKind::Full => self.roster.set_full(*member, false),
            }
            if let (Member::Server(server), FaultKind::Stop | FaultKind::Cut) = (member, self.kind)
            {
                self.shared
                    .heard(*server, wall(), self.kind == FaultKind::Stop);
            }
        }
    }
}
