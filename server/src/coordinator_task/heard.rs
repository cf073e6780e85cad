//! Whether the coordinator is heard by anybody but itself: one that is not gives no signs of life, so
//! that another server may stand in for it.

use std::collections::BTreeMap;

use tradewind_common::ServerId;

/// When servers and ranks were heard last.
#[derive(Debug)]
pub(super) struct Heard {
    servers: BTreeMap<ServerId, u64>,
    rank_ms: Option<u64>,
    /// Nobody can have been heard before.
    since_ms: u64,
}

impl Heard {
    pub(super) fn since(now_ms: u64) -> Self {
        Self {
            servers: BTreeMap::new(),
            rank_ms: None,
            since_ms: now_ms,
        }
    }

    pub(super) fn server(&mut self, server: ServerId, now_ms: u64) {
        self.servers.insert(server, now_ms);
    }

    pub(super) fn rank(&mut self, now_ms: u64) {
        self.rank_ms = Some(now_ms);
    }

    /// Whether somebody was within the last lease: a rank, or besides the server of its own another
    /// one, if the fleet has more.
    pub(super) fn anybody(&self, servers: u32, lease_ms: u64, now_ms: u64) -> bool {
        let lately = |then_ms: u64| now_ms.saturating_sub(then_ms) <= lease_ms;
        let there = self.servers.values().filter(|then| lately(**then)).count();
        servers == 1 || lately(self.since_ms) || self.rank_ms.is_some_and(lately) || there > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coordinator_that_hears_only_its_own_server_is_alone() {
        let mut heard = Heard::since(0);
        assert!(heard.anybody(2, 100, 100), "it has just begun");
        assert!(!heard.anybody(2, 100, 101));
        assert!(heard.anybody(1, 100, 101), "there is nobody else");
        heard.server(ServerId(0), 150);
        assert!(!heard.anybody(2, 100, 200));
        heard.server(ServerId(1), 200);
        assert!(heard.anybody(2, 100, 240));
        heard.server(ServerId(0), 320);
        assert!(
            !heard.anybody(2, 100, 320),
            "the other one was silent for a lease"
        );
        heard.rank(390);
        assert!(heard.anybody(2, 100, 490) && !heard.anybody(2, 100, 491));
    }
}
