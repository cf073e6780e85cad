//! Leases and waiting times that only processes themselves keep: section `liveness`.

use tradewind_common::choice::{Field, Kind, Unfit, fit};
use tradewind_common::settings;

/// A day.
const DAY_MS: u64 = 86_400_000;

settings! {
    /// Leases and waiting times, milliseconds.
    Liveness {
        /// Length of a rank's lease.
        lease_ms: u64 = Field {
            key: "liveness.lease_ms",
            kind: Kind::Count { min: 100, max: DAY_MS },
            default: "10000",
            meaning: "Time in milliseconds after which a rank or a server that is silent counts as dead.",
        },
        /// Pause between heartbeats.
        heartbeat_ms: u64 = Field {
            key: "liveness.heartbeat_ms",
            kind: Kind::Count { min: 10, max: DAY_MS },
            default: "1000",
            meaning: "Time in milliseconds between two heartbeats of a rank or a server, at most a third of `liveness.lease_ms`.",
        },
        /// How long clock 0 waits for all groups.
        start_grace_ms: u64 = Field {
            key: "liveness.start_grace_ms",
            kind: Kind::Count { min: 0, max: DAY_MS },
            default: "120000",
            meaning: "Longest time in milliseconds that the first exchange waits for all configured groups. Then the groups that are there begin.",
        },
        /// How long a rank tries to reach a shard or the coordinator again.
        retry_ms: u64 = Field {
            key: "liveness.retry_ms",
            kind: Kind::Count { min: 0, max: DAY_MS },
            default: "60000",
            meaning: "Time in milliseconds for which a rank tries to reach a server or the coordinator again before it gives up; at least twice `liveness.lease_ms`, because the process that takes over may be lost, too.",
        },
        /// How long the last snapshot may take.
        notice_ms: u64 = Field {
            key: "liveness.notice_ms",
            kind: Kind::Count { min: 0, max: DAY_MS },
            default: "30000",
            meaning: "Longest time in milliseconds for the last snapshot when a run is asked to end, by Ctrl-C, by SIGTERM or before the time limit of its job.",
        },
    }
}

impl Liveness {
    /// What does not fit together.
    pub(super) fn problems(&self, patience_ms: u64) -> Vec<Unfit> {
        let lease_ms = self.lease_ms;
        let patient = format!(
            "is not longer than liveness.lease_ms = {lease_ms}: a shard would be restored from a snapshot while a server that holds all of it may only be cut off"
        );
        let checks = [
            fit(
                self.heartbeat_ms * 3 <= lease_ms,
                "liveness.heartbeat_ms",
                "is more than a third of liveness.lease_ms",
            ),
            fit(
                self.retry_ms >= lease_ms * 2,
                "liveness.retry_ms",
                "is less than two of liveness.lease_ms: ranks would give up before a successor is there",
            ),
            fit(patience_ms > lease_ms, "liveness.patience_ms", &patient),
        ];
        checks.into_iter().filter_map(Result::err).collect()
    }
}
