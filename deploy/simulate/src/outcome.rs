//! What a simulation has come to.

use tradewind_core::shard::Reply;

use crate::legs::Legs;
use crate::quantiles::Quantiles;
use crate::time::{Nanos, seconds};

/// Parts of the budget whose times are told.
const MILESTONES: usize = 10;

/// What is counted on the way.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// Samples after which it ends.
    pub(crate) budget: u64,
    /// Samples applied.
    pub(crate) applied: u64,
    /// Samples that were applied and lost again.
    pub(crate) lost: u64,
    /// When the last exchange ended.
    pub(crate) ended: Nanos,
    /// Seconds of a group from one answer to the next.
    pub(crate) intervals: Quantiles,
    /// Seconds of all groups together.
    pub(crate) computing: f64,
    pub(crate) reducing: f64,
    pub(crate) exchanging: f64,
    pub(crate) waiting: f64,
    /// Exchanges behind the fastest group, at each answer.
    pub(crate) lags: Quantiles,
    pub(crate) exchanges: u64,
    pub(crate) node_failures: u64,
    pub(crate) server_failures: u64,
    /// Seconds after which each tenth of the budget was applied.
    pub(crate) milestones: Vec<f64>,
    waits_now: i64,
    /// Most contributions that waited at once.
    pub(crate) waits_max: i64,
}

impl Tally {
    pub(crate) fn new(budget: u64) -> Self {
        Self {
            budget,
            applied: 0,
            lost: 0,
            ended: 0,
            intervals: Quantiles::default(),
            computing: 0.0,
            reducing: 0.0,
            exchanging: 0.0,
            waiting: 0.0,
            lags: Quantiles::default(),
            exchanges: 0,
            node_failures: 0,
            server_failures: 0,
            milestones: Vec::new(),
            waits_now: 0,
            waits_max: 0,
        }
    }

    /// So many contributions more wait at the shard.
    pub(crate) fn waits(&mut self, more: i64) {
        self.waits_now += more;
        self.waits_max = self.waits_max.max(self.waits_now);
    }

    /// The shard has answered.
    pub(crate) fn answered(&mut self, reply: &Reply, now: Nanos) {
        self.exchanges += 1;
        self.applied = self.applied.max(reply.samples_applied);
        self.waiting += reply.waited_us as f64 / 1e6;
        self.lags.add(reply.lag as f64);
        let part = |tenth: usize| self.budget as f64 * tenth as f64 / MILESTONES as f64;
        while self.milestones.len() < MILESTONES
            && self.applied as f64 >= part(self.milestones.len() + 1)
        {
            self.milestones.push(seconds(now));
        }
    }
}

/// What a resource has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Served {
    /// Seconds.
    pub(crate) busy: f64,
    /// The longest wait for it, seconds.
    pub(crate) waited_max: f64,
    /// When somebody first waited for it for longer than a step, seconds.
    pub(crate) saturated: Option<f64>,
}

/// All of it.
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    /// Samples a second of groups that did nothing but compute, each at its usual pace.
    pub(crate) ideal: f64,
    /// Seconds of an exchange for which the busiest rank's link or core is busy.
    pub(crate) rank_busy: f64,
    pub(crate) receives: Served,
    pub(crate) sends: Served,
    pub(crate) cores: Served,
    pub(crate) applies: Served,
    pub(crate) updates: u64,
    pub(crate) dropped: u64,
    /// By delay.
    pub(crate) delays: Vec<u64>,
    /// By size of group.
    pub(crate) legs: Vec<Legs>,
}

impl Outcome {
    /// Seconds from the beginning to the last answer.
    pub(crate) fn seconds(&self) -> f64 {
        seconds(self.tally.ended)
    }

    /// Samples a second that were applied and not lost.
    pub(crate) fn samples_per_second(&self) -> f64 {
        self.tally.applied.saturating_sub(self.tally.lost) as f64 / self.seconds()
    }

    /// Part of what there would be without waits, exchanges and failures.
    pub(crate) fn goodput(&self) -> f64 {
        self.samples_per_second() / self.ideal
    }

    /// The delay that this part of the updates does not exceed.
    pub(crate) fn delay(&self, part: f64) -> u64 {
        let all: u64 = self.delays.iter().sum();
        let wanted = (part * all as f64).ceil() as u64;
        let mut seen = 0;
        for (delay, count) in self.delays.iter().enumerate() {
            seen += count;
            if seen >= wanted.max(1) {
                return delay as u64;
            }
        }
        0
    }

    /// What is busy for the largest part of the time, and for which part.
    pub(crate) fn busiest(&self) -> (&'static str, f64) {
        let all = [
            ("server link in", self.receives.busy),
            ("server link out", self.sends.busy),
            ("server cores", self.cores.busy),
            ("applying core", self.applies.busy),
            ("rank link", self.rank_busy * self.exchanges_of_a_group()),
        ];
        let most = all.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let (what, busy) = most.expect("five");
        (what, busy / self.seconds())
    }

    /// Exchanges of a group, on average: as many as fit between its answers.
    pub(crate) fn exchanges_of_a_group(&self) -> f64 {
        match self.tally.intervals.mean() {
            0.0 => 1.0,
            interval => self.seconds() / interval,
        }
    }
}
