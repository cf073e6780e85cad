//! A person takes back certificates: of a group, of one of its ranks, of a server, or of a person. That holds once every
//! server keeps it that may be there; whoever has asked hears it then.

use std::collections::BTreeMap;

use tradewind_common::identity::Identity;
use tradewind_common::{RunId, ServerId};

use super::{Coordinator, Output};
use crate::ReplyTo;
use crate::answer::{Answer, Refused};
use crate::event::{Event, EventKind};
use crate::fleet::{Fleet, Presence};
use crate::revoked::{REVOKED_MAX, Revoked, RevokedIdentities};

/// Callers that may wait for servers.
const WAITING_MAX: usize = 64;

/// What is revoked, and who has heard of it.
#[derive(Debug, Default)]
pub(super) struct Revocations {
    revoked: Revoked,
    unwritten: bool,
    /// How many of them each server keeps, by its own word in its present life.
    kept: BTreeMap<ServerId, usize>,
    /// Who waits, and until so many are kept.
    waiting: Vec<(ReplyTo, usize)>,
}

impl Revocations {
    /// As a former coordinator has written them down. Who has waited there asks again.
    pub(super) fn recover(revoked: Revoked) -> Self {
        Self {
            revoked,
            ..Self::default()
        }
    }

    /// Whatever is to be written down.
    pub(super) fn to_write(&self) -> &Revoked {
        &self.revoked
    }

    /// All of it if any has changed since this was last asked; from now on it is written down.
    pub(super) fn take_change(&mut self) -> Option<Revoked> {
        std::mem::take(&mut self.unwritten).then(|| self.revoked.clone())
    }

    /// Another life of a server, or another connection of it, begins: it is told all of it.
    pub(super) fn registered(&mut self, server: ServerId) -> Option<Output> {
        self.kept.remove(&server);
        let all = &self.revoked.identities;
        (!all.is_empty()).then(|| Output::Revoked(server, all.clone()))
    }

    /// Whether a server's certificates are taken back.
    pub(super) fn is_server_revoked(&self, server: ServerId) -> bool {
        let server = Identity::Server(Some(server));
        self.revoked.identities.contains(&server)
    }

    /// Adds these; which of them are new.
    fn add(&mut self, who: RevokedIdentities) -> Vec<Identity> {
        let all = &mut self.revoked.identities;
        let fresh: Vec<_> = who.into_iter().filter(|one| !all.contains(one)).collect();
        all.extend(fresh.iter().cloned());
        self.unwritten |= !fresh.is_empty();
        fresh
    }

    /// Who need not wait any more.
    fn take_held(&mut self, fleet: &Fleet) -> Vec<(ReplyTo, Answer)> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let revoked = &self.revoked.identities;
        // Of a server that is shut out itself nothing is expected.
        let is_revoked = |server: ServerId| revoked.contains(&Identity::Server(Some(server)));
        let lacking = |count: usize, kept: &BTreeMap<ServerId, usize>| {
            let known = fleet.known().keys().copied();
            let known = known.filter(|server| !is_revoked(*server));
            let lacks = known.filter(|server| kept.get(server).is_none_or(|kept| *kept < count));
            let given_up = |server: &ServerId| fleet.presence(*server) == Some(Presence::GivenUp);
            lacks.partition::<Vec<_>, _>(given_up)
        };
        let mut held = Vec::new();
        self.waiting.retain(|(to, count)| {
            let (without, awaited) = lacking(*count, &self.kept);
            if awaited.is_empty() {
                held.push((*to, Answer::Revoked { without }));
            }
            !awaited.is_empty()
        });
        held
    }
}

impl Coordinator {
    /// The same in a fleet whose processes have certificates of this authority, or none. What was revoked of another
    /// one's says nothing of these.
    #[must_use]
    pub fn under(mut self, authority: Option<String>) -> Self {
        let revoked = &mut self.revocations.revoked;
        if revoked.authority != authority {
            *revoked = Revoked {
                authority,
                ..Revoked::default()
            };
            self.revocations.unwritten = true;
            self.journal.touch();
        }
        self
    }

    /// Who is revoked.
    pub fn revoked(&self) -> &RevokedIdentities {
        &self.revocations.revoked.identities
    }

    /// Shuts somebody out for good: groups and ranks of this run, servers and people of the fleet. Their certificates
    /// are revoked. Groups are asked to leave, also those whose rank it is: none trains without one. A server counts as
    /// gone. Answered when every server that may be there says that it keeps it; repeated, it waits for that again.
    pub fn revoke(&mut self, run: &RunId, who: RevokedIdentities, to: ReplyTo, now_ms: u64) {
        if let Err(refused) = self.try_revoke(run, who, now_ms) {
            self.journal.reply(to, Err(refused));
        } else {
            let count = self.revoked().len();
            self.revocations.waiting.push((to, count));
        }
        self.drain();
    }

    fn try_revoke(
        &mut self,
        name: &RunId,
        who: RevokedIdentities,
        now_ms: u64,
    ) -> Result<(), Refused> {
        self.journal.set_now(now_ms);
        if self.revocations.revoked.authority.is_none() {
            return Err(Refused::WithoutTls);
        }
        let waiting = self.revocations.waiting.len();
        if waiting == WAITING_MAX {
            return Err(Refused::TooManyWaiting(waiting));
        }
        if self.revoked().union(&who).count() > REVOKED_MAX {
            return Err(Refused::TooManyRevoked);
        }
        let mut groups = Vec::new();
        for one in &who {
            match one {
                Identity::Rank { group, rank, .. } => groups.push((*group, *rank)),
                Identity::Server(server) => {
                    server.map_or(Ok(()), |server| self.fleet.can_do_without(server))?;
                }
                Identity::Person(_) => {}
            }
        }
        if !groups.is_empty() {
            self.run_mut(name, now_ms)?.shut_out(&groups, now_ms)?;
        }
        let fresh = self.revocations.add(who);
        if fresh.is_empty() {
            return Ok(());
        }
        self.journal.touch();
        for one in fresh {
            self.journal.tell(told(&one));
            if let Identity::Server(Some(server)) = one
                && let Some(life) = self.fleet.incarnation(server)
            {
                self.lose((server, life), "it is shut out", false);
            }
        }
        for server in self.fleet.up() {
            let all = self.revocations.revoked.identities.clone();
            self.journal.push(Output::Revoked(server, all));
        }
        Ok(())
    }

    /// A server keeps so many of what is revoked.
    ///
    /// # Errors
    /// If it is not registered.
    pub fn keeps_revoked(
        &mut self,
        server: ServerId,
        count: usize,
        now_ms: u64,
    ) -> Result<(), Refused> {
        self.journal.set_now(now_ms);
        if !self.fleet.is_up(server) {
            return Err(Refused::NotRegistered(server));
        }
        let kept = self.revocations.kept.entry(server).or_default();
        *kept = count.max(*kept);
        self.drain();
        Ok(())
    }

    /// Answers those whose revocations hold.
    pub(super) fn answer_revocations(&mut self) {
        for (to, answer) in self.revocations.take_held(&self.fleet) {
            self.journal.reply(to, Ok(answer));
        }
    }
}

/// What is told of one that is shut out.
fn told(one: &Identity) -> Event {
    match one {
        Identity::Rank {
            run,
            group,
            rank: None,
        } => {
            let text =
                format!("group {group} is shut out: the certificates of its ranks are revoked");
            let mut event = Event::new(EventKind::GroupRevoked, text).group(*group);
            event.run = Some(run.clone());
            event
        }
        Identity::Rank { run, group, .. } => {
            let text = format!(
                "{one} is shut out: its certificates are revoked, and its group is asked to leave"
            );
            let mut event = Event::new(EventKind::CertificateRevoked, text).group(*group);
            event.run = Some(run.clone());
            event
        }
        Identity::Server(server) => {
            let text = format!("{one} is shut out: its certificates are revoked");
            let event = Event::new(EventKind::CertificateRevoked, text);
            match server {
                Some(server) => event.server(*server),
                None => event,
            }
        }
        Identity::Person(_) => {
            let text = format!("{one} is shut out: the certificates of this name are revoked");
            Event::new(EventKind::CertificateRevoked, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use tradewind_common::spec::ConsistencySpec;
    use tradewind_common::{GroupId, Incarnation, Rank};

    use super::*;
    use crate::durable::Durable;
    use crate::order::Server;
    use crate::run::Join;
    use crate::tests::spec;

    const LEASE_MS: u64 = 1_000;

    type Told = Vec<(u32, usize)>;
    type Answers = Vec<(u64, Result<Answer, Refused>)>;

    /// Who joins.
    const JOIN: ReplyTo = ReplyTo(0);

    fn run() -> RunId {
        RunId::new("r").unwrap()
    }

    fn server(life: u64) -> Server {
        Server {
            incarnation: Incarnation(life),
            address: "127.0.0.1:1".into(),
            host: String::new(),
        }
    }

    /// Servers 0 and 1, and a run of three groups that nobody has joined but group 0.
    fn fleet() -> Coordinator {
        let mut fleet = Coordinator::new(2, false, LEASE_MS).under(Some("a".into()));
        for id in 0..2 {
            fleet.register(ServerId(id), server(1), 0).unwrap();
        }
        let join = Join {
            group: GroupId(0),
            rank: Rank(0),
            life: 1,
            store_address: String::new(),
        };
        let spec = spec(&[1, 1, 1], ConsistencySpec::Async);
        fleet.join(run(), spec, join, JOIN, 0);
        fleet
    }

    fn group(run: &str, group: u32) -> Identity {
        Identity::Rank {
            run: RunId::new(run).unwrap(),
            group: GroupId(group),
            rank: None,
        }
    }

    fn rank(group: u32, rank: u32) -> Identity {
        Identity::Rank {
            run: run(),
            group: GroupId(group),
            rank: Some(Rank(rank)),
        }
    }

    fn server_of(number: u32) -> Identity {
        Identity::Server(Some(ServerId(number)))
    }

    fn revoke(fleet: &mut Coordinator, groups: &[u32], to: u64) {
        let groups = groups.iter().map(|number| group("r", *number));
        fleet.revoke(&run(), groups.collect(), ReplyTo(to), 0);
    }

    /// Who was told how many are revoked, and who was answered what.
    fn outputs(fleet: &mut Coordinator) -> (Told, Answers) {
        let (mut told, mut answers) = (Vec::new(), Vec::new());
        while let Some(output) = fleet.poll_output() {
            match output {
                Output::Revoked(server, groups) => told.push((server.0, groups.len())),
                // The rank's is nobody's business here.
                Output::Reply(to, answer) if to != JOIN => answers.push((to.0, answer)),
                _ => {}
            }
        }
        (told, answers)
    }

    fn held(without: &[u32]) -> Result<Answer, Refused> {
        let without = without.iter().copied().map(ServerId).collect();
        Ok(Answer::Revoked { without })
    }

    #[test]
    fn it_holds_once_every_server_keeps_it_that_may_be_there() {
        let mut fleet = fleet();
        let _ = outputs(&mut fleet);
        revoke(&mut fleet, &[1], 7);
        assert_eq!(outputs(&mut fleet), (vec![(0, 1), (1, 1)], vec![]));
        fleet.keeps_revoked(ServerId(0), 1, 0).unwrap();
        assert_eq!(outputs(&mut fleet), (vec![], vec![]));
        fleet.keeps_revoked(ServerId(1), 1, 0).unwrap();
        assert_eq!(outputs(&mut fleet), (vec![], vec![(7, held(&[]))]));
        // Asked again, it says so again, and nobody is told anew.
        revoke(&mut fleet, &[1], 8);
        assert_eq!(outputs(&mut fleet), (vec![], vec![(8, held(&[]))]));
        // What was kept of one says nothing of the next.
        revoke(&mut fleet, &[2], 9);
        fleet.keeps_revoked(ServerId(0), 2, 0).unwrap();
        fleet.keeps_revoked(ServerId(1), 1, 0).unwrap();
        assert_eq!(outputs(&mut fleet).1, vec![]);
        // Another life of a server has heard of nothing, and is told before all else.
        fleet.register(ServerId(1), server(2), 0).unwrap();
        assert_eq!(outputs(&mut fleet), (vec![(1, 2)], vec![]));
        fleet.keeps_revoked(ServerId(1), 2, 0).unwrap();
        assert_eq!(outputs(&mut fleet).1, [(9, held(&[]))]);
    }

    #[test]
    fn a_server_that_is_gone_is_waited_for_until_it_is_given_up_and_then_named() {
        let mut fleet = fleet();
        fleet.server_lost(ServerId(1), Incarnation(1), 0);
        revoke(&mut fleet, &[1], 7);
        fleet.keeps_revoked(ServerId(0), 1, 0).unwrap();
        assert_eq!(outputs(&mut fleet).1, vec![]);
        fleet
            .server_beat(ServerId(0), Incarnation(1), LEASE_MS / 2)
            .unwrap();
        fleet.tick(LEASE_MS + 1);
        assert_eq!(outputs(&mut fleet).1, [(7, held(&[1]))]);
    }

    #[test]
    fn a_rank_is_shut_out_by_its_own_name_and_its_group_leaves() {
        let mut fleet = fleet();
        let _ = outputs(&mut fleet);
        fleet.revoke(&run(), [rank(1, 0)].into(), ReplyTo(7), 0);
        assert_eq!(outputs(&mut fleet).0, [(0, 1), (1, 1)]);
        assert_eq!(*fleet.revoked(), [rank(1, 0)].into());
        let row = |fleet: &Coordinator, group| {
            let join = Join {
                group: GroupId(group),
                rank: Rank(0),
                life: 1,
                store_address: String::new(),
            };
            let mut fleet = Coordinator::recover(
                2,
                false,
                LEASE_MS,
                serde_json::from_str(&serde_json::to_string(&fleet.durable()).unwrap()).unwrap(),
                0,
            );
            let spec = spec(&[1, 1, 1], ConsistencySpec::Async);
            fleet.join(run(), spec, join, ReplyTo(9), 0);
            outputs(&mut fleet).1.pop()
        };
        let left = row(&fleet, 1);
        assert_eq!(left, Some((9, Err(Refused::Drained(GroupId(1))))));
        assert!(row(&fleet, 2).is_none_or(|(_, answer)| answer.is_ok()));
    }

    #[test]
    fn a_server_that_is_shut_out_is_gone_and_does_not_come_back() {
        let mut fleet = fleet().hosted_by(ServerId(0));
        let _ = outputs(&mut fleet);
        fleet.revoke(&run(), [server_of(1)].into(), ReplyTo(7), 0);
        // Nobody waits for it: the other one has to say that it keeps it.
        assert_eq!(outputs(&mut fleet), (vec![(0, 1)], vec![]));
        assert!(!fleet.fleet.is_up(ServerId(1)));
        fleet.keeps_revoked(ServerId(0), 1, 0).unwrap();
        assert_eq!(outputs(&mut fleet).1, [(7, held(&[]))]);
        let refused = Refused::RevokedServer(ServerId(1));
        for life in [1, 2] {
            let came = fleet.register(ServerId(1), server(life), 0);
            assert_eq!(came, Err(refused.clone()));
        }
        let beat = fleet.server_beat(ServerId(1), Incarnation(1), 0);
        assert_eq!(beat, Err(Refused::NotRegistered(ServerId(1))));
        // A lease later its place is anybody's.
        fleet
            .server_beat(ServerId(0), Incarnation(1), LEASE_MS / 2)
            .unwrap();
        fleet.tick(LEASE_MS + 1);
        let presence = fleet.fleet.presence(ServerId(1));
        assert_eq!(presence, Some(Presence::GivenUp));
        // Asked again, it holds.
        fleet.revoke(&run(), [server_of(1)].into(), ReplyTo(8), 0);
        assert_eq!(outputs(&mut fleet).1, [(8, held(&[]))]);
        // A successor knows it too.
        let written = serde_json::to_string(&fleet.durable()).unwrap();
        let written = serde_json::from_str(&written).unwrap();
        let mut next = Coordinator::recover(2, false, LEASE_MS, written, 0).under(Some("a".into()));
        assert_eq!(next.register(ServerId(1), server(3), 0), Err(refused));
    }

    #[test]
    fn what_is_revoked_outlives_the_coordinator_and_not_the_authority() {
        let mut fleet = fleet();
        let mut written: Durable = fleet.take_durable();
        revoke(&mut fleet, &[1], 7);
        assert!(fleet.take_dirty());
        written.change(fleet.take_change()).unwrap();
        let written = serde_json::to_string(&written).unwrap();
        let follow = |authority: Option<&str>| {
            let written = serde_json::from_str(&written).unwrap();
            let next = Coordinator::recover(2, false, LEASE_MS, written, 0);
            next.under(authority.map(str::to_owned))
        };
        let mut next = follow(Some("a"));
        assert_eq!(next.revoked(), fleet.revoked());
        next.register(ServerId(0), server(1), 0).unwrap();
        // Before any order.
        let first = |output: Option<Output>| matches!(output, Some(Output::Revoked(..)));
        let told = std::iter::from_fn(|| next.poll_output());
        let mut told = told.skip_while(|output| matches!(output, Output::Event(_)));
        assert!(first(told.next()));
        for other in [Some("b"), None] {
            assert!(follow(other).revoked().is_empty(), "{other:?}");
        }
    }

    #[test]
    fn refused() {
        let check_all =
            |mut fleet: Coordinator, name, groups: &[u32], others: &[Identity], want| {
                let _ = outputs(&mut fleet);
                let who = groups.iter().map(|number| group(name, *number));
                let who = who.chain(others.iter().cloned()).collect();
                let name = RunId::new(name).unwrap();
                fleet.revoke(&name, who, ReplyTo(7), 0);
                let (told, answers) = outputs(&mut fleet);
                let [(7, Err(refused))] = &answers[..] else {
                    panic!("{answers:?}");
                };
                let want: &str = want;
                assert!(refused.to_string().contains(want), "{refused}");
                assert!(told.is_empty() && fleet.revoked().is_empty());
                assert_eq!(fleet.fleet.up().count(), fleet.fleet.known().len());
            };
        let check = |fleet, name, groups: &[u32], want| check_all(fleet, name, groups, &[], want);
        check(fleet(), "other", &[1], "run other is not known");
        check(fleet(), "r", &[1, 3], "groups 0 to 2, not 3");
        check(
            Coordinator::new(2, false, LEASE_MS),
            "r",
            &[0],
            "no certificates",
        );
        let many: Vec<u32> = (0..=REVOKED_MAX as u32).collect();
        check(fleet(), "r", &many, "1024");
        // What can be done is not done either where something cannot.
        let hosted = fleet().hosted_by(ServerId(0));
        let others = [server_of(0), server_of(1), rank(1, 0)];
        let want = "server 0 hosts the coordinator, which cannot shut itself out";
        check_all(hosted, "r", &[1], &others, want);
        let others = [server_of(1), server_of(2)];
        check_all(fleet(), "r", &[1], &others, "servers 0 to 1, not 2");
        let others = [server_of(1), rank(1, 1)];
        check_all(
            fleet(),
            "r",
            &[],
            &others,
            "group 1 has ranks 0 to 0, not 1",
        );
    }
}
