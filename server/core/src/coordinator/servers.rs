//! Servers come, stay and go.

use tradewind_common::{Generation, Incarnation, RunId, ServerId};

use super::{Coordinator, Output};
use crate::answer::Refused;
use crate::event::{Event, EventKind};
use crate::fleet::Presence;
use crate::order::Server;
use crate::run::LostServer;

impl Coordinator {
    /// A server registers, or comes back after a broken connection; it is told all runs.
    pub fn register(&mut self, id: ServerId, server: Server, now_ms: u64) -> Result<(), Refused> {
        self.journal.set_now(now_ms);
        self.fleet.check(id, server.incarnation)?;
        if self.revocations.is_server_revoked(id) {
            return Err(Refused::RevokedServer(id));
        }
        let (given, former) = (server.incarnation, self.fleet.incarnation(id));
        if let Some(former) = former.filter(|former| *former != given) {
            self.lose((id, former), "another life of it has registered", true);
        }
        let there = matches!(
            self.fleet.presence(id),
            Some(Presence::Up | Presence::Awaited)
        );
        if !self.fleet.is_up(id) {
            let text = format!("server {id} is there, at {}", server.address);
            let event = Event::new(EventKind::ServerUp, text);
            self.journal.tell(event.server(id).life(given.0));
        }
        self.fleet.register(id, server, now_ms);
        self.journal.touch();
        // What waited to be said of runs was for its former life, or for its former connection.
        let stale = |output: &Output| {
            let (Output::Runs(server, _) | Output::Revoked(server, _)) = output else {
                return false;
            };
            *server == id
        };
        self.journal.drop_stale(stale);
        if let Some(revoked) = self.revocations.registered(id) {
            self.journal.push(revoked);
        }
        for run in self.runs.iter_mut() {
            run.forget_base(id);
            run.place((!there).then_some(id), &self.fleet, now_ms);
        }
        // Without a folder nobody knows whether there were others before.
        if self.runs.have_folder() {
            self.runs.tell(id, &mut self.journal);
        }
        self.drain();
        for run in self.runs.iter() {
            self.owed.one(run.name(), id);
        }
        Ok(())
    }

    /// A server says which generation of a run's membership it has followed: orders go on from there. Or that it
    /// has none from which the last order could go on: then it is told all.
    ///
    /// # Errors
    /// If it is not registered, or ahead of the coordinator.
    pub fn followed(
        &mut self,
        server: ServerId,
        name: &RunId,
        generation: Option<Generation>,
    ) -> Result<(), Refused> {
        if !self.fleet.is_up(server) {
            return Err(Refused::NotRegistered(server));
        }
        // It may have been removed meanwhile, of which the server hears.
        let Ok(run) = self.runs.get_mut(name) else {
            return Ok(());
        };
        let current = run.generation();
        if let Some(given) = generation.filter(|given| *given > current) {
            let run = name.clone();
            return Err(Refused::GenerationAhead {
                run,
                given,
                current,
            });
        }
        if run.followed(server, generation) {
            self.owed.one(name, server);
        }
        Ok(())
    }

    /// Renews a server's lease.
    pub fn server_beat(
        &mut self,
        id: ServerId,
        incarnation: Incarnation,
        now_ms: u64,
    ) -> Result<(), Refused> {
        self.journal.set_now(now_ms);
        self.fleet.beat(id, incarnation, now_ms)
    }

    /// The connection of a server has broken. Of another life of it this says nothing.
    pub fn server_lost(&mut self, id: ServerId, incarnation: Incarnation, now_ms: u64) {
        self.journal.set_now(now_ms);
        self.lose((id, incarnation), "its connection broke", false);
        self.drain();
    }

    /// A life of a server is gone; whether it is `dead` for certain, and all that it held with it.
    pub(super) fn lose(&mut self, life: (ServerId, Incarnation), reason: &str, dead: bool) {
        let (id, incarnation) = life;
        let was_there = self.fleet.lose(id, incarnation, self.journal.now_ms());
        if was_there {
            let text = format!("server {id} is gone: {reason}");
            let event = Event::new(EventKind::ServerLost, text);
            self.journal.tell(event.server(id).life(incarnation.0));
        } else if !dead {
            return;
        }
        self.journal.touch();
        let lost = LostServer {
            server: id,
            incarnation,
            dead,
        };
        self.runs
            .server_lost(lost, &self.fleet, self.journal.now_ms());
        self.runs.collect(&mut self.journal);
    }
}
