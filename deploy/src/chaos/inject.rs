//! Makes faults happen: signals to processes, cuts of connections.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rustix::process::Signal;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tradewind_proto::v1::StatusReply;
use tradewind_server::events::EventLog;

use super::ask::Ask;
use super::proxy::Net;
use super::schedule::{Fault, Kind};
use super::shared::{Injected, Shared};
use super::victim::{Situation, Told, Victim};
use crate::clock::{Clock, wall};
use crate::cluster::holding;
use crate::events::Event;
use crate::launch::{Member, Present, Roster};

/// Pause between two looks at what is due.
const LOOK: Duration = Duration::from_millis(50);

/// A fault that could not happen for so many seconds, because it would have been one too many, is
/// left out.
const WAITS: f64 = 20.0;

/// Of a slow process: how long it stands still, and how long it runs, in turn.
const STANDS: Duration = Duration::from_millis(160);
const RUNS: Duration = Duration::from_millis(40);

/// What the injector works with.
pub(super) struct Injector {
    pub(super) roster: Roster,
    pub(super) net: Net,
    pub(super) ask: Ask,
    pub(super) log: EventLog,
    pub(super) shared: Shared,
    /// See [`Situation::may_restore`].
    pub(super) may_restore: bool,
    pub(super) suffering: BTreeMap<Member, Suffering>,
    pub(super) active: JoinSet<Vec<Member>>,
}

/// What has been done to a member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suffering {
    /// Which life of it.
    life: u64,
    /// It is dead, and another life follows.
    killed: bool,
    /// It is left alone again.
    over: bool,
}

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
        loop {
            let now = clock.elapsed().as_secs_f64();
            let time_over = until.is_some_and(|until| now >= until);
            while let Some(due) = faults.next_if(|fault| fault.at <= now && !time_over) {
                waiting.push(due);
            }
            let before = waiting.len();
            waiting.retain(|fault| now - fault.at < WAITS && !time_over);
            self.shared.left_out(before - waiting.len());
            self.ended();
            let situation = self.situation(!waiting.is_empty()).await;
            waiting = self.hurt(situation, waiting, now);
            let all_over = self.active.is_empty() && waiting.is_empty();
            if all_over && (time_over || faults.peek().is_none()) {
                return;
            }
            sleep(LOOK).await;
        }
    }

    /// Hurts whom it may; gives back what has to wait.
    fn hurt(&mut self, mut situation: Situation, faults: Vec<Fault>, now: f64) -> Vec<Fault> {
        let mut waiting = Vec::new();
        for fault in faults {
            match situation.may_hurt(fault.victim) {
                Some(members) => {
                    situation.suffering.extend(&members);
                    self.inject(fault, &members, now);
                }
                None => waiting.push(fault),
            }
        }
        waiting
    }

    fn inject(&mut self, fault: Fault, members: &[Member], now: f64) {
        let text = match (fault.victim, members) {
            (Victim::Coordinator, [host]) => format!("{fault} ({host})"),
            _ => fault.to_string(),
        };
        self.shared.say(format!("{now:7.1}s  {text}"));
        let mut present: Vec<(Member, Present)> = Vec::new();
        for member in members {
            let Some(process) = self.roster.get(*member) else {
                continue;
            };
            let suffering = Suffering {
                life: process.life,
                killed: fault.kind == Kind::Kill,
                over: false,
            };
            self.suffering.insert(*member, suffering);
            present.push((*member, process));
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
        self.active.spawn(suffer(self.net.clone(), fault, present));
    }

    /// Notes which faults are over.
    fn ended(&mut self) {
        while let Some(ended) = self.active.try_join_next() {
            for member in ended.unwrap_or_default() {
                if let Some(suffering) = self.suffering.get_mut(&member) {
                    suffering.over = true;
                }
            }
        }
    }

    /// What is known now. The coordinator is asked where that is of use.
    async fn situation(&mut self, of_use: bool) -> Situation {
        let told = match of_use {
            true => self.ask.coordinator().await,
            false => None,
        };
        let (roster, status) = (&self.roster, told.as_ref().map(|(_, status)| status));
        self.suffering.retain(|member, suffering| {
            let process = roster.get(*member);
            !process.is_some_and(|process| is_well(*member, *suffering, &process, status))
        });
        Situation {
            present: self.roster.members().into_iter().collect(),
            suffering: self.suffering.keys().copied().collect(),
            told: told.and_then(|(host, status)| digest(host, &status)),
            may_restore: self.may_restore,
        }
    }
}

/// Whether a member has recovered from what was done to it: a server once the coordinator has
/// registered the process that runs.
fn is_well(
    member: Member,
    from: Suffering,
    process: &Present,
    status: Option<&StatusReply>,
) -> bool {
    let follows = !from.killed || process.life > from.life;
    let known = match member {
        Member::Rank { .. } => true,
        Member::Server(server) => status.is_some_and(|status| {
            let mut rows = status.servers.iter().filter(|row| row.server == server);
            rows.any(|row| row.alive && row.incarnation == process.life)
        }),
    };
    from.over && follows && known
}

fn digest(host: u32, status: &StatusReply) -> Option<Told> {
    let up = status.servers.iter().filter(|server| server.alive);
    let up: BTreeSet<u32> = up.map(|server| server.server).collect();
    Some(Told {
        host,
        ready: status.phase == "ready" && status.snapshot.is_some(),
        holders: holding(status).ok()?.holders,
        up,
    })
}

/// What happens to those who are hurt, to its end.
async fn suffer(net: Net, fault: Fault, victims: Vec<(Member, Present)>) -> Vec<Member> {
    let lasts = Duration::from_secs_f64(fault.lasts);
    let signal = |signal| {
        victims.iter().for_each(|(_, process)| {
            process.signal(signal);
        });
    };
    match fault.kind {
        Kind::Kill => signal(Signal::KILL),
        Kind::Stop => {
            signal(Signal::STOP);
            let _last = Last(&victims, &net);
            sleep(lasts).await;
        }
        Kind::Slow => {
            let _last = Last(&victims, &net);
            let turns = lasts.as_millis() / (STANDS + RUNS).as_millis();
            for _ in 0..turns.max(1) {
                signal(Signal::STOP);
                sleep(STANDS).await;
                signal(Signal::CONT);
                sleep(RUNS).await;
            }
        }
        Kind::Cut => {
            let _last = Last(&victims, &net);
            victims.iter().for_each(|(m, _)| net.cut(*m, fault.way));
            sleep(lasts).await;
        }
    }
    victims.iter().map(|(member, _)| *member).collect()
}

/// However a fault ends, nobody is left stopped or cut off.
struct Last<'a>(&'a [(Member, Present)], &'a Net);

impl Drop for Last<'_> {
    fn drop(&mut self) {
        for (member, process) in self.0 {
            process.signal(Signal::CONT);
            self.1.heal(*member);
        }
    }
}
