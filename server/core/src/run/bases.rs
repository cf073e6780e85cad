//! Which view each server has followed, by its own word: an order says what has changed since.

use std::collections::BTreeMap;

use tradewind_common::{Generation, ServerId};

/// What servers have followed. It is not written down: a later coordinator is told anew.
#[derive(Clone, Debug)]
pub(super) struct Bases {
    /// What has changed is known since this generation. What a server says of it, or of one before, may be of a
    /// former run of this name, or of what a former coordinator told.
    began: Generation,
    followed: BTreeMap<ServerId, Generation>,
}

impl Bases {
    /// Nobody has followed anything later than this.
    pub(super) fn since(began: Generation) -> Self {
        Self {
            began,
            followed: BTreeMap::new(),
        }
    }

    /// A server has followed this generation. What it says may overtake what it has said before.
    pub(super) fn follows(&mut self, server: ServerId, generation: Generation) {
        if generation > self.began {
            let known = self.followed.entry(server).or_default();
            *known = generation.max(*known);
        }
    }

    /// What a server has followed is not known.
    pub(super) fn forget(&mut self, server: ServerId) {
        self.followed.remove(&server);
    }

    /// The last generation that a server is known to have followed.
    pub(super) fn of(&self, server: ServerId) -> Option<Generation> {
        self.followed.get(&server).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn are_what_servers_have_said_since_it_began() {
        let server = ServerId(1);
        let mut bases = Bases::since(Generation(3));
        bases.follows(server, Generation(3));
        assert_eq!(bases.of(server), None, "it may be another run's");
        bases.follows(server, Generation(7));
        bases.follows(server, Generation(5));
        assert_eq!(bases.of(server), Some(Generation(7)));
        bases.forget(server);
        assert_eq!(bases.of(server), None);
    }
}
