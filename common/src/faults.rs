//! What keeps a run going when something fails. A server follows these settings for each run that it
//! holds; ranks bring them when they join.

use crate::choice::{Field, Kind, MANY, Of, Setting};
use crate::loss::Loss;
use crate::settings;

/// Longest time that may be configured, milliseconds: a day.
const DAY_MS: u64 = 86_400_000;

settings! {
    /// What keeps a run going when something fails.
    FaultSpec {
        /// Servers that hold each shard.
        replication: u32 = Field {
            key: "servers.replication",
            kind: Kind::Count { min: 1, max: 16 },
            default: "1",
            meaning: "Number of servers that hold each shard, at most `cluster.servers`. With 1 a server that dies loses the updates since the last snapshot. With 2 or more, no update that was acknowledged is lost when one process dies ([faults](faults.md#what-is-promised)).",
        },
        /// How long a group that has lost ranks waits for others in their place, milliseconds.
        reform_grace_ms: u64 = Field {
            key: "liveness.reform_grace_ms",
            kind: Kind::Count { min: 0, max: DAY_MS },
            default: "5000",
            meaning: "Time in milliseconds that a group which has lost ranks waits for processes in their place. Then it goes on with fewer ranks.",
        },
        /// Pause between two snapshots, milliseconds; 0 takes only the first and the last.
        snapshot_ms: u64 = Field {
            key: "liveness.snapshot_ms",
            kind: Kind::Count { min: 0, max: DAY_MS },
            default: "60000",
            meaning: "Time in milliseconds between two snapshots. 0 takes only one at the beginning and one at the end.",
        },
        /// Snapshots that are kept.
        snapshots_kept: u32 = Field {
            key: "snapshots.kept",
            kind: Kind::Count { min: 1, max: 1000 },
            default: "3",
            meaning: "Number of snapshots that stay in the folder of the run. Older ones are deleted.",
        },
        /// How long a holder of a shard may be silent before the shard is restored without it,
        /// milliseconds; longer than the lease.
        patience_ms: u64 = Field {
            key: "liveness.patience_ms",
            kind: Kind::Count { min: 0, max: DAY_MS },
            default: "60000",
            meaning: "Time in milliseconds that a shard waits for a silent server which may hold its newest parameters, before the shard is restored from a snapshot without that server; more than `liveness.lease_ms`.",
        },
        /// What the run does when something that it had acknowledged is lost.
        on_loss: OnLoss = Field {
            key: "faults.on_loss",
            kind: Kind::Word(OnLoss::WORDS),
            default: "\"auto\"",
            meaning: "What a run does when updates that were acknowledged are lost. `continue`: it restores a snapshot, says how much was lost, and goes on. `stop`: it ends with exit status 7 and leaves its folder as it is; to resume it is to accept the loss. `auto`: `continue` with `servers.replication = 1`, `stop` with more.",
        },
        /// Samples that a restored shard may lack in a run that stops at a loss.
        tolerated_samples: u64 = Field {
            key: "faults.tolerated_samples",
            kind: Kind::Count { min: 0, max: MANY },
            default: "0",
            meaning: "Number of samples whose updates a restored shard may lack in a run that stops at a loss (`faults.on_loss`): up to this number the run says what is lost and goes on. 0: it stops at any loss.",
        },
    }
}

impl FaultSpec {
    /// Whether the run ends when something that it had acknowledged is lost.
    pub fn stops_on_loss(&self) -> bool {
        match self.on_loss {
            OnLoss::Continue => false,
            OnLoss::Stop => true,
            OnLoss::Auto => self.replication > 1,
        }
    }

    /// Whether the run ends when this was acknowledged and is lost.
    pub fn stops_at(&self, lost: Loss) -> bool {
        let any = self.tolerated_samples == 0;
        self.stops_on_loss() && !lost.is_none() && (any || lost.samples > self.tolerated_samples)
    }

    /// Whether a run does the same with both.
    pub fn same_as(&self, other: &Self) -> bool {
        let said = |spec: &Self| Self {
            on_loss: match spec.stops_on_loss() {
                true => OnLoss::Stop,
                false => OnLoss::Continue,
            },
            ..*spec
        };
        said(self) == said(other)
    }
}

/// What a run does when something that it had acknowledged is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// Who keeps copies wants to lose nothing: it stops with several holders of each shard, and goes on
    /// with one.
    Auto,
    /// It restores what there is, tells the loss, and goes on.
    Continue,
    /// It ends, and its folder is left as it is; resuming it is consent to the loss.
    Stop,
}

impl OnLoss {
    const WORDS: &[&str] = &["auto", "continue", "stop"];

    fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Continue => "continue",
            Self::Stop => "stop",
        }
    }
}

impl Of for OnLoss {
    fn setting(&self) -> Setting {
        Setting::Word(self.word().to_owned())
    }

    /// Records of before `auto` have capitals.
    fn read(setting: Setting) -> Option<Self> {
        let Setting::Word(word) = setting else {
            return None;
        };
        let mut all = [Self::Auto, Self::Continue, Self::Stop].into_iter();
        all.find(|on_loss| on_loss.word().eq_ignore_ascii_case(&word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_leave_out_what_has_its_default_and_may_be_older() {
        let check = |record: &str, want: Option<FaultSpec>| {
            let read: Option<FaultSpec> = serde_json::from_str(record).ok();
            assert_eq!(read, want, "{record}");
        };
        let spec = FaultSpec {
            replication: 2,
            reform_grace_ms: 100,
            snapshot_ms: 0,
            snapshots_kept: 7,
            patience_ms: 30_000,
            on_loss: OnLoss::Stop,
            tolerated_samples: 0,
        };
        check(&serde_json::to_string(&spec).unwrap(), Some(spec));
        let older = r#"{"replication": 2, "reform_grace_ms": 100, "snapshot_ms": 0, "snapshots_kept": 7, "patience_ms": 30000, "on_loss": "Stop"}"#;
        check(older, Some(spec));
        check("{}", Some(FaultSpec::default()));
        check(r#"{"replication": true}"#, None);
        check(r#"{"on_loss": "wait"}"#, None);
    }

    #[test]
    fn who_keeps_copies_wants_to_lose_nothing() {
        let check = |replication, on_loss, stops| {
            let spec = FaultSpec {
                replication,
                on_loss,
                ..FaultSpec::default()
            };
            assert_eq!(spec.stops_on_loss(), stops, "{replication} {on_loss:?}");
        };
        check(1, OnLoss::Auto, false);
        check(2, OnLoss::Auto, true);
        check(2, OnLoss::Continue, false);
        check(1, OnLoss::Stop, true);
    }

    #[test]
    fn a_small_loss_may_be_tolerated() {
        let check = |tolerated_samples, (updates, samples), stops| {
            let spec = FaultSpec {
                on_loss: OnLoss::Stop,
                tolerated_samples,
                ..FaultSpec::default()
            };
            let lost = Loss { updates, samples };
            assert_eq!(spec.stops_at(lost), stops, "{tolerated_samples}: {lost}");
        };
        check(0, (0, 0), false);
        check(0, (1, 0), true);
        check(0, (1, 1), true);
        check(64, (9, 64), false);
        check(64, (1, 65), true);
        let goes_on = FaultSpec {
            on_loss: OnLoss::Continue,
            ..FaultSpec::default()
        };
        let everything = Loss {
            updates: u64::MAX,
            samples: u64::MAX,
        };
        assert!(!goes_on.stops_at(everything));
    }

    #[test]
    fn what_auto_means_is_no_difference() {
        let with = |on_loss, kept| FaultSpec {
            replication: 2,
            on_loss,
            snapshots_kept: kept,
            ..FaultSpec::default()
        };
        let auto = with(OnLoss::Auto, 3);
        assert!(auto.same_as(&with(OnLoss::Stop, 3)));
        assert!(!auto.same_as(&with(OnLoss::Continue, 3)));
        assert!(!auto.same_as(&with(OnLoss::Auto, 4)));
    }
}
