//! What groups ask and are answered, written down as anybody could from outside, and judged by a
//! checker that knows none of the servers' types.

use std::collections::{HashMap, VecDeque};
use std::fs::File;

use tradewind_common::placement::Placement;
use tradewind_common::spec::ConsistencySpec;
use tradewind_common::{BlockId, Clock};
use tradewind_core::decided;
use tradewind_core::event::Event;
use tradewind_core::shard::{self, Push, Reply};
use tradewind_history::{
    Action, Answer, History, Loss, Operation, Policy, Run, Verdict, Version, check,
};

use super::event::Address;
use crate::checker::{Rule, Violation};
use crate::scenario::{CLOCKS, Scenario};
use crate::seeds::HISTORY_VARIABLE;

/// A history that grows.
#[derive(Debug)]
pub(super) struct Recording {
    history: History,
    /// Where frames are among the operations that were not answered, oldest first: by sender and stream,
    /// block and clock.
    sent: HashMap<Key, VecDeque<usize>>,
    /// The first loss that was told without saying of what.
    vague: Option<String>,
}

/// A stream of a rank, and what was asked on it.
type Key = (Address, u64, BlockId, Clock, Action);

impl Recording {
    pub(super) fn new(scenario: &Scenario, placement: &Placement) -> Self {
        let shards = placement.shards().iter().map(|shard| shard.0);
        let merged = scenario.consistency == ConsistencySpec::Sync;
        Self {
            history: History::new(Run {
                groups: CLOCKS as u32,
                shards: shards.collect(),
                policy: match scenario.consistency {
                    ConsistencySpec::Sync => Policy::Sync,
                    ConsistencySpec::Async => Policy::Async,
                    ConsistencySpec::Bounded { staleness_bound } => {
                        Policy::Bounded(staleness_bound)
                    }
                },
                merged: merged || scenario.policies.merge.is_some(),
                replication: scenario.replication,
                // Groups differ in size.
                samples: 0,
            }),
            sent: HashMap::new(),
            vague: None,
        }
    }

    /// A rank sends a frame.
    pub(super) fn sent(&mut self, (from, stream): (Address, u64), push: &Push, now_us: u64) {
        let (action, computed_on) = match &push.action {
            shard::Action::Contribute(Some(gradient)) => {
                let version = Version {
                    lineage: gradient.lineage.0,
                    version: gradient.pulled_version,
                };
                (Action::Contribute, Some(version))
            }
            shard::Action::Contribute(None) => (Action::Skip, None),
            shard::Action::Pull => (Action::Pull, None),
            shard::Action::Create(_) => return,
        };
        let at = self.history.operations.len();
        self.history.operations.push(Operation {
            number: at as u64 + 1,
            start_us: now_us,
            group: push.group.0,
            incarnation: push.incarnation.0,
            clock: push.clock.0,
            block: push.block.0,
            action,
            computed_on,
            answer: None,
        });
        let key = (from, stream, push.block, push.clock, action);
        self.sent.entry(key).or_default().push_back(at);
    }

    /// A rank, if it still lives, has an answer. The network may bring it twice.
    pub(super) fn answered(&mut self, (to, stream): (Address, u64), reply: &Reply, now_us: u64) {
        let (actions, verdict, decided, repeated): (&[Action], _, _, _) = match reply.answer {
            shard::Answer::Decided(decided, repeated) => {
                let verdict = match decided.verdict {
                    decided::Verdict::Applied => Verdict::Applied,
                    decided::Verdict::Dropped => Verdict::Dropped,
                    decided::Verdict::Skipped => Verdict::Skipped,
                };
                let either = &[Action::Contribute, Action::Skip];
                (either, verdict, Some(decided), repeated)
            }
            shard::Answer::Read => (&[Action::Pull], Verdict::Read, None, false),
            shard::Answer::Created => return,
        };
        let key = |action: &Action| (to, stream, reply.block, reply.clock, *action);
        let mut sent = actions
            .iter()
            .filter_map(|action| self.sent.get_mut(&key(action))?.pop_front());
        let sent = sent.next();
        let Some(at) = sent else { return };
        let values = reply.fresh.values();
        let counts = values.iter().map(|value| 0.0 - f64::from(*value));
        let digest = values
            .iter()
            .map(|value| format!("{:08x}", value.to_bits()));
        self.history.operations[at].answer = Some(Answer {
            end_us: now_us,
            verdict,
            repeated,
            of: Version {
                lineage: reply.lineage.0,
                version: reply.version,
            },
            delay: decided.map_or(0, |decided| decided.delay),
            samples: reply.samples_applied,
            digest: digest.collect(),
            counts: Some(counts.collect()),
        });
    }

    /// The coordinator tells something.
    pub(super) fn told(&mut self, event: &Event) {
        let event = serde_json::to_value(event).expect("an event is numbers and words");
        match Loss::of_event(&event) {
            Ok(loss) => self.history.losses.extend(loss),
            Err(vague) => self.vague = self.vague.take().or(Some(vague.to_string())),
        }
    }

    /// Judges it, and keeps it where the environment says.
    pub(super) fn check(&self) -> Result<(), Violation> {
        if let Some(path) = std::env::var_os(HISTORY_VARIABLE) {
            let file = File::create(&path).expect("a file for the history");
            self.history.write(file).expect("the history is written");
        }
        let wrong = |text: String| Err(Violation::new(Rule::History, text));
        if let Err(unfit) = self.history.fits() {
            return wrong(unfit.to_string());
        }
        if let Some(vague) = &self.vague {
            return wrong(vague.clone());
        }
        match check(&self.history) {
            Ok(_) => Ok(()),
            Err(violation) => wrong(violation.to_string()),
        }
    }
}
