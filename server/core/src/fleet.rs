//! The servers of the fleet, and which of them are there.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tradewind_common::lease::Lease;
use tradewind_common::{Incarnation, ServerId};

use super::answer::Refused;
use super::order::Server;

/// Whether a server is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Presence {
    /// It is registered and its lease holds.
    Up,
    /// It was up when the coordinator died; it has one lease to register again.
    Awaited,
    /// It is gone, and has one lease to come back before others take over what only it held.
    Gone,
    /// It is not waited for.
    GivenUp,
}

/// A server that has registered once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Known {
    server: Server,
    presence: Presence,
    #[serde(skip)]
    lease: Lease,
    /// While it is not there: when it was heard last, or missed.
    #[serde(skip)]
    heard_ms: u64,
}

/// A row of the status page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRow {
    /// Its number.
    pub id: ServerId,
    /// Which life of it, and where.
    pub server: Server,
    /// Whether it is registered and its lease holds.
    pub alive: bool,
    /// Time left on its lease, milliseconds.
    pub lease_left_ms: u64,
}

/// What time has done to the fleet.
#[derive(Debug, Default)]
pub(super) struct Elapsed {
    /// Their leases have run out.
    pub(super) lost: Vec<(ServerId, Incarnation)>,
    /// There are others who have not come back, or whose place may be taken now.
    pub(super) given_up: bool,
}

/// The servers of the fleet. Its table is bounded by the number of servers that are expected.
#[derive(Debug)]
pub struct Fleet {
    expected: u32,
    lease_ms: u64,
    /// The server in whose process the coordinator runs.
    host: Option<ServerId>,
    known: BTreeMap<ServerId, Known>,
    /// When leases were looked at last.
    looked_ms: u64,
    /// What of them is not written down.
    unwritten: BTreeSet<ServerId>,
}

impl Fleet {
    pub(super) fn new(expected: u32, lease_ms: u64) -> Self {
        Self {
            expected,
            lease_ms,
            host: None,
            known: BTreeMap::new(),
            looked_ms: 0,
            unwritten: BTreeSet::new(),
        }
    }

    /// The fleet as a former coordinator wrote it down: everybody has one lease to show up.
    pub(super) fn recover(
        expected: u32,
        lease_ms: u64,
        mut known: BTreeMap<ServerId, Known>,
        now_ms: u64,
    ) -> Self {
        for server in known.values_mut() {
            server.presence = match server.presence {
                Presence::Up | Presence::Awaited => Presence::Awaited,
                Presence::Gone | Presence::GivenUp => Presence::Gone,
            };
            server.lease = Lease::grant(now_ms, lease_ms);
            server.heard_ms = now_ms;
        }
        Self {
            expected,
            lease_ms,
            host: None,
            unwritten: known.keys().copied().collect(),
            known,
            looked_ms: now_ms,
        }
    }

    pub(super) fn hosted_by(&mut self, server: ServerId) {
        self.host = Some(server);
    }

    /// Whether the coordinator runs in this server's process, so that it hears this one also when it is cut
    /// off from everybody. Not in a fleet of two: if the other one dies there is nobody else to be heard.
    pub(super) fn is_heard_anyway(&self, server: ServerId) -> bool {
        self.host == Some(server) && self.expected > 2
    }

    /// Refuses to shut out a server that there is not, and the one that decides.
    pub(super) fn can_do_without(&self, server: ServerId) -> Result<(), Refused> {
        self.expects(server)?;
        match self.host == Some(server) {
            true => Err(Refused::HostsCoordinator(server)),
            false => Ok(()),
        }
    }

    /// Those of which something was not written down; from now on it is.
    pub(super) fn take_unwritten(&mut self) -> BTreeMap<ServerId, Known> {
        let unwritten = std::mem::take(&mut self.unwritten).into_iter();
        unwritten
            .filter_map(|id| Some((id, self.known.get(&id)?.clone())))
            .collect()
    }

    pub(super) fn known(&self) -> &BTreeMap<ServerId, Known> {
        &self.known
    }

    /// Length of a server's lease.
    pub fn lease_ms(&self) -> u64 {
        self.lease_ms
    }

    /// How many servers the fleet shall have.
    pub fn expected(&self) -> u32 {
        self.expected
    }

    /// Refuses a server that the fleet does not expect, and a life that another has followed.
    pub(super) fn check(&self, server: ServerId, given: Incarnation) -> Result<(), Refused> {
        self.expects(server)?;
        match self.incarnation(server) {
            Some(current) if current > given => Err(Refused::StaleServer {
                server,
                given,
                current,
            }),
            _ => Ok(()),
        }
    }

    fn expects(&self, server: ServerId) -> Result<(), Refused> {
        if server.0 >= self.expected {
            let last = ServerId(self.expected - 1);
            return Err(Refused::UnknownServer { server, last });
        }
        Ok(())
    }

    pub(super) fn register(&mut self, id: ServerId, server: Server, now_ms: u64) {
        // When nobody was there, it was the coordinator that was cut off: the others come, too.
        if self.up().next().is_none() {
            let gone = |known: &Known| matches!(known.presence, Presence::Gone | Presence::GivenUp);
            for (id, known) in self.known.iter_mut().filter(|(_, known)| gone(known)) {
                self.unwritten.insert(*id);
                known.presence = Presence::Gone;
                known.lease = Lease::grant(now_ms, self.lease_ms);
            }
        }
        let known = Known {
            server,
            presence: Presence::Up,
            lease: Lease::grant(now_ms, self.lease_ms),
            heard_ms: now_ms,
        };
        self.known.insert(id, known);
        self.unwritten.insert(id);
    }

    pub(super) fn beat(
        &mut self,
        server: ServerId,
        given: Incarnation,
        now_ms: u64,
    ) -> Result<(), Refused> {
        self.check(server, given)?;
        let known = self.known.get_mut(&server);
        let known = known.filter(|known| known.server.incarnation == given);
        let known = known.ok_or(Refused::NotRegistered(server))?;
        known.heard_ms = now_ms;
        match known.presence {
            Presence::Up => known.lease.renew(now_ms),
            // It lives, and has to register anew.
            Presence::Awaited | Presence::Gone | Presence::GivenUp => {
                return Err(Refused::NotRegistered(server));
            }
        }
        Ok(())
    }

    /// Notes that a server is gone; says whether this incarnation of it was thought to be there.
    pub(super) fn lose(&mut self, server: ServerId, of: Incarnation, now_ms: u64) -> bool {
        let Some(known) = self.known.get_mut(&server) else {
            return false;
        };
        let there = matches!(known.presence, Presence::Up | Presence::Awaited);
        if !there || known.server.incarnation != of {
            return false;
        }
        known.presence = Presence::Gone;
        known.lease = Lease::grant(now_ms, self.lease_ms);
        known.heard_ms = now_ms;
        self.unwritten.insert(server);
        true
    }

    pub(super) fn forgive(&mut self, gap_ms: u64) {
        for known in self.known.values_mut() {
            known.lease.forgive(gap_ms);
            known.heard_ms = known.heard_ms.saturating_add(gap_ms);
        }
    }

    /// Finds the leases that have run out. Those who are lost stay to be told to [`Self::lose`].
    pub(super) fn elapse(&mut self, now_ms: u64) -> Elapsed {
        let mut elapsed = Elapsed::default();
        let looked_ms = std::mem::replace(&mut self.looked_ms, now_ms);
        // Who hears nobody may itself be cut off: nobody's silence counts.
        if self.up().next().is_none() {
            let unheard_ms = now_ms.saturating_sub(looked_ms);
            for known in self.known.values_mut() {
                known.heard_ms = known.heard_ms.saturating_add(unheard_ms);
            }
        }
        for (id, known) in &mut self.known {
            if !known.lease.expired(now_ms) {
                continue;
            }
            match known.presence {
                Presence::Up | Presence::Awaited => {
                    elapsed.lost.push((*id, known.server.incarnation));
                }
                Presence::Gone => {
                    known.presence = Presence::GivenUp;
                    self.unwritten.insert(*id);
                    elapsed.given_up = true;
                }
                Presence::GivenUp => {}
            }
        }
        elapsed
    }

    /// The last life of a server that registered.
    pub fn incarnation(&self, server: ServerId) -> Option<Incarnation> {
        Some(self.known.get(&server)?.server.incarnation)
    }

    /// What is known of a server's being there; `None` before it first registers.
    pub fn presence(&self, server: ServerId) -> Option<Presence> {
        Some(self.known.get(&server)?.presence)
    }

    /// Whether a server is registered and its lease holds.
    pub fn is_up(&self, server: ServerId) -> bool {
        self.presence(server) == Some(Presence::Up)
    }

    /// How long nothing had been heard of a server, while others were, when leases were looked at last,
    /// milliseconds; 0 if it is there, or never was. What happens between two looks says nothing of time: it may have waited
    /// while the coordinator itself was held up.
    pub(super) fn silent_ms(&self, server: ServerId) -> u64 {
        let known = self.known.get(&server);
        let gone = known.filter(|known| known.presence != Presence::Up);
        gone.map_or(0, |known| self.looked_ms.saturating_sub(known.heard_ms))
    }

    /// Whether a server is there, and has said so within half a lease: it has several times the chance to.
    pub(super) fn was_heard_lately(&self, server: ServerId, now_ms: u64) -> bool {
        let known = self.known.get(&server);
        let up = known.filter(|known| known.presence == Presence::Up);
        up.is_some_and(|known| now_ms.saturating_sub(known.heard_ms) < self.lease_ms / 2)
    }

    /// When the lease of a server runs out.
    pub(super) fn until_ms(&self, server: ServerId) -> u64 {
        self.known
            .get(&server)
            .map_or(0, |known| known.lease.until_ms())
    }

    /// The servers that are up.
    pub fn up(&self) -> impl Iterator<Item = ServerId> + '_ {
        let up = |(_, known): &(&ServerId, &Known)| known.presence == Presence::Up;
        self.known.iter().filter(up).map(|(id, _)| *id)
    }

    /// Whether a server is gone that may come back.
    pub fn waits(&self) -> bool {
        let waited = |known: &Known| matches!(known.presence, Presence::Awaited | Presence::Gone);
        self.known.values().any(waited)
    }

    /// The machine of a server.
    pub fn host(&self, server: ServerId) -> Option<&str> {
        Some(&self.known.get(&server)?.server.host)
    }

    /// Where all servers are, or were last.
    pub fn endpoints(&self) -> BTreeMap<ServerId, Server> {
        let endpoint = |(id, known): (&ServerId, &Known)| (*id, known.server.clone());
        self.known.iter().map(endpoint).collect()
    }

    /// The servers for the status page.
    pub fn rows(&self, now_ms: u64) -> Vec<ServerRow> {
        let row = |(id, known): (&ServerId, &Known)| {
            let alive = known.presence == Presence::Up;
            let left = known.lease.until_ms().saturating_sub(now_ms);
            ServerRow {
                id: *id,
                server: known.server.clone(),
                alive,
                lease_left_ms: if alive { left } else { 0 },
            }
        };
        self.known.iter().map(row).collect()
    }
}
