//! The network: when a message arrives, if at all, and how often.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, LogNormal};
use tradewind_common::{GroupId, ServerId};

use super::random_stream;
use super::scenario::{Cut, NetworkPlan, Stall};

/// The network between all actors.
#[derive(Debug)]
pub struct Network {
    plan: NetworkPlan,
    delay: LogNormal<f64>,
    rng: ChaCha8Rng,
}

/// What becomes of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives at these times; the second is a duplicate.
    Arrives(u64, Option<u64>),
    /// It is lost; the sender notices then.
    Lost(u64),
}

impl Network {
    /// The network of a scenario.
    pub fn new(plan: NetworkPlan, seed: u64) -> Self {
        let median = (plan.delay_us as f64).ln();
        Self {
            delay: LogNormal::new(median, plan.spread).expect("a finite spread"),
            rng: random_stream(seed, 2),
            plan,
        }
    }

    /// Whether ranks read answers on a stream that they have given up.
    pub fn late_answers(&self) -> bool {
        self.plan.late_answers
    }

    /// Draws the fate of a message that leaves now. `server` is the server at either end, `sender`
    /// the group that sends it, if any.
    pub fn send(&mut self, now_us: u64, server: Option<ServerId>, sender: Option<GroupId>) -> Fate {
        let cut = |cut: &Cut| {
            server == Some(ServerId(cut.server)) && (cut.from_us..cut.until_us).contains(&now_us)
        };
        if self.plan.cuts.iter().any(cut) || self.rng.random_bool(self.plan.drop) {
            return Fate::Lost(now_us + self.plan.notice_us);
        }
        let stalled = |stall: &&Stall| {
            sender == Some(GroupId(stall.group))
                && (stall.from_us..stall.until_us).contains(&now_us)
        };
        let stall_us = self
            .plan
            .stalls
            .iter()
            .find(stalled)
            .map_or(0, |s| s.held_us);
        let first = now_us + stall_us + self.draw_us();
        let again = self.rng.random_bool(self.plan.duplicate);
        Fate::Arrives(first, again.then(|| now_us + stall_us + self.draw_us()))
    }

    fn draw_us(&mut self) -> u64 {
        let held = self.rng.random_bool(self.plan.hold);
        let held_us = if held {
            self.rng.random_range(0..=self.plan.hold_us)
        } else {
            0
        };
        self.delay.sample(&mut self.rng) as u64 + held_us
    }
}
