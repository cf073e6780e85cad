//! Decides which processes of a run are started again, which are killed, and who hosts the
//! coordinator. A value: what happens goes in with `now`, what shall be done is polled out.
//!
//! `tradewind run` has one for all processes of a run, a task of Slurm one for the process that it has
//! started; what differs between them is in [`Rules`].
//!
//! A process is killed only when it is silent: a server that answers no ping for a lease, a rank
//! whose lease the coordinator says has run out, or that has left its group and does not come back.
//! A slow one is left alone, and so is one that was cut off and will come back by itself.

mod hosting;
mod supervised;
#[cfg(test)]
mod tests;
mod words;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tradewind_common::exit::Exit;

use hosting::Hosting;
use supervised::{MemberState, Supervised};
use tradewind_folder::member::Member;
pub use words::{Action, Death, Notice, Progress, Rules, Silence};

/// A process that has died more often than this without progress in between is given up.
const DEATHS_MAX: u32 = 5;

/// If nobody has looked for so long, the launcher itself was asleep, and knows nothing of others.
const ASLEEP_MS: u64 = 1_000;

/// A rank that has run for so long and was never in its group is told once.
pub(crate) const NEVER_JOINED_MS: u64 = 60_000;

/// What somebody can do who is told so.
pub(crate) const WHY_NOT_JOINED: &str =
    "its log says what it does; a script joins with tradewind.join() and rank.optimizer()";

/// Keeps the processes of a run going.
#[derive(Debug)]
pub struct Supervisor {
    rules: Rules,
    members: BTreeMap<Member, Supervised>,
    hosting: Hosting,
    /// A rank has ended well, so the budget is applied and none is needed any more.
    applied: bool,
    /// When the first rank of a group has ended well.
    ended_ms: BTreeMap<u32, u64>,
    /// Until then the coordinator may take for silent whom it could not hear while it was asleep.
    unsure_until_ms: u64,
    looked_ms: u64,
    over: bool,
    /// All are to end, and nobody is started again.
    ending: bool,
    actions: VecDeque<Action>,
}

impl Supervisor {
    /// All have been started, servers listen, and server 0 hosts the coordinator.
    pub fn new(
        rules: Rules,
        members: impl IntoIterator<Item = (Member, u64)>,
        now_ms: u64,
    ) -> Self {
        let up = |(member, life)| (member, Supervised::up(life, now_ms));
        Self {
            rules,
            members: members.into_iter().map(up).collect(),
            hosting: Hosting::at(0),
            applied: false,
            ended_ms: BTreeMap::new(),
            unsure_until_ms: 0,
            looked_ms: now_ms,
            over: false,
            ending: false,
            actions: VecDeque::new(),
        }
    }

    /// What shall be done next.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Whether everybody has done its part.
    pub fn all_done(&self) -> bool {
        self.members
            .values()
            .all(|known| known.state == MemberState::Done)
    }

    /// Whether every rank has done its part.
    pub fn ranks_done(&self) -> bool {
        let rank = |(member, _): &(&Member, &Supervised)| matches!(member, Member::Rank { .. });
        let mut ranks = self.members.iter().filter(rank);
        ranks.all(|(_, known)| known.state == MemberState::Done)
    }

    /// Whether that is because their groups have left, and not because the budget is applied.
    pub fn all_left(&self) -> bool {
        self.ranks_done() && !self.applied
    }

    /// A process has ended.
    pub fn handle_death(&mut self, member: Member, death: &Death, now_ms: u64) {
        let applied = self.applied;
        let Some(known) = self.members.get_mut(&member) else {
            return;
        };
        if known.state == MemberState::Done {
            return;
        }
        if self.ending {
            known.state = MemberState::Done;
            return;
        }
        if known.renews {
            known.renew(now_ms);
            return self.look(now_ms);
        }
        let rank = matches!(member, Member::Rank { .. });
        let said = death.status.and_then(Exit::of);
        if !rank && self.rules.servers_finish && said == Some(Exit::Done) {
            known.state = MemberState::Done;
            return;
        }
        if let Member::Rank { group, .. } = member
            && said == Some(Exit::Done)
        {
            known.state = MemberState::Done;
            self.applied = true;
            self.ended_ms.entry(group).or_insert(now_ms);
            return;
        }
        if said == Some(Exit::Left) {
            known.state = MemberState::Done;
            // It was shut out, and others stand in for it.
            if let Member::Server(server) = member {
                self.hosting.died(server, &death.how);
            }
            return;
        }
        let how = known.killed.take().unwrap_or_else(|| death.how.clone());
        if let Some(exit) = said.filter(|exit| rank && exit.lasts()) {
            return self.give_up(member, death.how.clone(), exit);
        }
        if rank && applied {
            known.state = MemberState::Done;
            let text = format!("{member} {how}; the budget is applied, so nobody takes its place");
            return self.tell("process_died", text, member, true);
        }
        if let Member::Server(server) = member {
            self.hosting.died(server, &how);
        }
        self.start_again(member, how, now_ms);
        self.look(now_ms);
    }

    /// All processes shall end, and nobody takes their places. May be said again.
    pub fn handle_end(&mut self) {
        self.ending = true;
        for (member, known) in &mut self.members {
            match known.state {
                MemberState::Down { .. } => known.state = MemberState::Done,
                MemberState::Begun | MemberState::Starting | MemberState::Up => {
                    self.actions
                        .push_back(Action::Terminate { member: *member });
                }
                MemberState::Done => {}
            }
        }
    }

    /// Another process shall begin in the place of this one, which has done nothing wrong.
    pub fn handle_renewal(&mut self, member: Member) {
        if let Some(known) = self.members.get_mut(&member)
            && matches!(known.state, MemberState::Starting | MemberState::Up)
        {
            known.renews = true;
            self.actions.push_back(Action::Terminate { member });
        }
    }

    /// Training shall end as it is: no rank is needed any more.
    pub fn handle_enough(&mut self) {
        self.applied = true;
        for (member, known) in &mut self.members {
            if matches!(member, Member::Rank { .. }) && known.state != MemberState::Done {
                known.state = MemberState::Done;
                self.actions.push_back(Action::Kill { member: *member });
            }
        }
    }

    /// The server that hosts the coordinator, as far as is known.
    pub fn host(&self) -> Option<u32> {
        self.hosting.host()
    }

    /// A group is to stop for good while others go on: it is killed, and nobody takes its place.
    pub fn handle_stop(&mut self, stopped: u32) {
        let mut ranks = Vec::new();
        for (member, known) in &mut self.members {
            if matches!(member, Member::Rank { group, .. } if *group == stopped)
                && known.state != MemberState::Done
            {
                known.state = MemberState::Done;
                ranks.push(*member);
            }
        }
        for member in ranks {
            self.actions.push_back(Action::Kill { member });
            let text = format!("{member} stops for good, as stragglers.profile says");
            self.tell("stopped", text, member, true);
        }
    }

    /// A process has been started; a server does not listen yet.
    pub fn handle_started(&mut self, member: Member, now_ms: u64) {
        let Some(known) = self.members.get_mut(&member) else {
            return;
        };
        known.started(matches!(member, Member::Server(_)), now_ms);
        let text = format!("{member} {}; restarted", known.how);
        self.tell("process_restarted", text, member, true);
    }

    /// A process could not be started.
    pub fn handle_not_started(&mut self, member: Member, why: &str, now_ms: u64) {
        if let Member::Server(server) = member {
            self.hosting.died(server, why);
        }
        self.start_again(member, format!("could not be started: {why}"), now_ms);
    }

    /// A server listens.
    pub fn handle_listening(&mut self, server: u32, now_ms: u64) {
        if let Some(known) = self.members.get_mut(&Member::Server(server)) {
            known.is_up(now_ms);
        }
        self.look(now_ms);
    }

    /// A server has answered a ping, and said whether it hosts the coordinator.
    pub fn handle_pong(&mut self, server: u32, number: u64, coordinates: bool, now_ms: u64) {
        let known = self.members.get_mut(&Member::Server(server));
        let Some(known) =
            known.filter(|known| known.state == MemberState::Up && known.number == number)
        else {
            return;
        };
        let silent_ms = now_ms.saturating_sub(known.heard_ms);
        known.heard_ms = now_ms;
        let Some(silence) = self.rules.silence else {
            return;
        };
        if self.hosting.is_at(server) && silent_ms > silence.doze_ms() {
            self.unsure_until_ms = now_ms + silence.doze_ms();
        }
        self.hosting
            .said(server, coordinates, silence.lease_ms, now_ms);
    }

    /// A server that was asked to host the coordinator has answered, or could not be asked.
    pub fn handle_hosted(&mut self, server: u32, number: u64, hosts: bool, now_ms: u64) {
        let present = |known: &Supervised| known.state == MemberState::Up && known.number == number;
        let there = self
            .members
            .get(&Member::Server(server))
            .is_some_and(present);
        if let Some(text) = self.hosting.answered(server, there && hosts, now_ms) {
            self.tell("coordinator_moved", text, Member::Server(server), true);
        }
        self.look(now_ms);
    }

    /// The coordinator said at `at_ms` that a rank's lease has run out.
    pub fn handle_silent(&mut self, group: u32, rank: u32, at_ms: u64) {
        let member = Member::Rank { group, rank };
        let Some(Silence { lease_ms, .. }) = self.rules.silence else {
            return;
        };
        // If it was a mistake the rank comes back by itself, and if not it stays away.
        if at_ms <= self.unsure_until_ms {
            return;
        }
        let Some(known) = self.members.get(&member) else {
            return;
        };
        // A process that began later cannot have been silent for a lease: it was another one.
        if known.state == MemberState::Up && known.started_ms + lease_ms <= at_ms {
            self.kill(member, format!("was silent for its lease of {lease_ms} ms"));
        }
    }

    /// The coordinator told which ranks are in their groups.
    pub fn handle_present(&mut self, present: &BTreeSet<(u32, u32)>, now_ms: u64) {
        let away_ms = self.rules.silence.map(|silence| silence.away_ms);
        let mut away = Vec::new();
        for (member, known) in &mut self.members {
            let Member::Rank { group, rank } = *member else {
                continue;
            };
            if known.state != MemberState::Up {
                continue;
            }
            if present.contains(&(group, rank)) {
                known.present_since_ms.get_or_insert(now_ms);
                known.heard_ms = now_ms;
            } else if let Some(ms) = away_ms
                && known.present_since_ms.is_some()
                && now_ms.saturating_sub(known.heard_ms) >= ms
            {
                away.push((*member, ms));
            }
        }
        for (member, ms) in away {
            self.kill(member, format!("was out of its group for {ms} ms"));
        }
    }

    /// A group has finished a clock at `at_ms`: progress of those that were there.
    pub fn handle_clock(&mut self, group: u32, at_ms: u64) {
        let Progress::Clocks { lease_ms } = self.rules.progress else {
            return;
        };
        for (member, known) in &mut self.members {
            let had_part = match member {
                Member::Server(_) => known.up_ms.is_some_and(|up| up + lease_ms <= at_ms),
                Member::Rank { group: of, .. } => {
                    *of == group && known.present_since_ms.is_some_and(|since| since <= at_ms)
                }
            };
            if had_part {
                known.deaths = 0;
            }
        }
    }

    /// Time has passed; comes many times in a lease.
    pub fn tick(&mut self, now_ms: u64) {
        let gap = now_ms.saturating_sub(self.looked_ms);
        self.looked_ms = now_ms;
        if gap >= ASLEEP_MS {
            // What others said meanwhile could not be heard.
            self.members
                .values_mut()
                .for_each(|known| known.forgive(gap));
            self.hosting.forgive(gap);
        }
        if let Some(silence) = self.rules.silence {
            self.kill_silent(silence, now_ms);
            self.tell_never_joined(now_ms);
        }
        self.look(now_ms);
    }

    /// Tells of ranks that run and do not join: nothing is wrong with one that reads its data for so long, but
    /// a script may have forgotten to.
    fn tell_never_joined(&mut self, now_ms: u64) {
        let mut never = Vec::new();
        for (member, known) in &mut self.members {
            if matches!(member, Member::Rank { .. })
                && known.state == MemberState::Up
                && known.present_since_ms.is_none()
                && !known.told_never_joined
                && now_ms.saturating_sub(known.started_ms) >= NEVER_JOINED_MS
            {
                known.told_never_joined = true;
                never.push(*member);
            }
        }
        for member in never {
            let seconds = NEVER_JOINED_MS / 1000;
            let text = format!(
                "{member} has run for {seconds} s and has not joined its group: {WHY_NOT_JOINED}"
            );
            self.tell("not_joined", text, member, true);
        }
    }

    /// Kills servers that do not answer, and ranks that have outlived their groups.
    fn kill_silent(&mut self, silence: Silence, now_ms: u64) {
        let Silence {
            lease_ms,
            ping_ms,
            away_ms,
            listen_ms,
        } = silence;
        let mut silent = Vec::new();
        for (member, known) in &self.members {
            if !matches!(member, Member::Server(_)) {
                continue;
            }
            let heard = now_ms.saturating_sub(known.heard_ms);
            match known.state {
                MemberState::Up if heard >= ping_ms + lease_ms => {
                    silent.push((*member, format!("answered no ping for {lease_ms} ms")));
                }
                MemberState::Starting if heard >= listen_ms => {
                    silent.push((*member, format!("did not listen after {listen_ms} ms")));
                }
                MemberState::Up
                | MemberState::Starting
                | MemberState::Begun
                | MemberState::Done
                | MemberState::Down { .. } => {}
            }
        }
        let late = |group: &u32| {
            let ended = self.ended_ms.get(group);
            ended.is_some_and(|ended| now_ms.saturating_sub(*ended) >= away_ms)
        };
        for (member, known) in &self.members {
            // The coordinator expects nothing of a group that has left.
            if let Member::Rank { group, .. } = member
                && known.state == MemberState::Up
                && late(group)
            {
                silent.push((*member, "did not end when its group had".to_owned()));
            }
        }
        for (member, why) in silent {
            self.kill(member, why);
        }
    }

    /// Starts what is due, and finds a host for the coordinator.
    fn look(&mut self, now_ms: u64) {
        if self.over || self.ending {
            return;
        }
        let servers = self
            .members
            .iter()
            .filter_map(|(member, known)| match member {
                Member::Server(server) if known.state == MemberState::Up => {
                    Some((*server, known.number))
                }
                _ => None,
            });
        let up: Vec<(u32, u64)> = servers.collect();
        if self.rules.finds_host
            && let Some((server, life)) = self.hosting.ask(&up, now_ms)
        {
            self.actions.push_back(Action::Host { server, life });
        }
        for (member, known) in &mut self.members {
            if !matches!(known.state, MemberState::Down { until_ms } if until_ms <= now_ms) {
                continue;
            }
            known.number += 1;
            known.state = MemberState::Begun;
            let coordinate = match member {
                Member::Server(server) => {
                    self.rules.finds_host && self.hosting.begins_at(*server, up.is_empty())
                }
                Member::Rank { .. } => false,
            };
            self.actions.push_back(Action::Start {
                member: *member,
                life: known.number,
                coordinate,
            });
        }
    }

    fn kill(&mut self, member: Member, why: String) {
        if let Some(known) = self.members.get_mut(&member)
            && known.killed.is_none()
        {
            let text = format!("{member} {why}: killed");
            known.killed = Some(format!("{why} and was killed"));
            self.tell("process_killed", text, member, false);
            self.actions.push_back(Action::Kill { member });
        }
    }

    /// The member is down, and started again after a while, unless that has been of no use.
    fn start_again(&mut self, member: Member, how: String, now_ms: u64) {
        let Some(known) = self.members.get_mut(&member) else {
            return;
        };
        if let Progress::Uptime { ms } = self.rules.progress
            && now_ms.saturating_sub(known.started_ms) > ms
        {
            known.deaths = 0;
        }
        let pause_ms = known.down(how, now_ms);
        let (deaths, how) = (known.deaths, known.how.clone());
        let waits = pause_ms > 0 && deaths <= DEATHS_MAX;
        let text = if waits {
            let seconds = pause_ms / 1000;
            format!("{member} {how}, {deaths} times without progress; next try in {seconds} s")
        } else {
            format!("{member} {how}")
        };
        self.tell("process_died", text, member, waits);
        if deaths > DEATHS_MAX {
            let why = format!("{how}, {deaths} times without progress");
            self.give_up(member, why, Exit::Failed);
        }
    }

    fn give_up(&mut self, member: Member, why: String, exit: Exit) {
        self.tell("gave_up", format!("{member} {why}"), member, false);
        self.actions.push_back(Action::GiveUp { member, why, exit });
        self.over = true;
    }

    fn tell(&mut self, kind: &'static str, text: String, member: Member, show: bool) {
        let life = self.members.get(&member).map_or(0, |known| known.number);
        self.actions.push_back(Action::Tell(Notice {
            kind,
            text,
            member,
            life,
            show,
        }));
    }
}
