//! The network: when a message arrives, if at all, and how often; who cannot reach whom; which
//! connections there are.

mod links;

use std::collections::BTreeSet;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, LogNormal};
use tradewind_common::GroupId;

use crate::party::Party;
use crate::random_stream;
use crate::scenario::{NetworkPlan, Stall};
use links::Links;

/// A cut that is in force: nothing passes between its two sides.
#[derive(Clone, Debug)]
struct Cut {
    side: BTreeSet<Party>,
    /// `None`: everybody else.
    other: Option<BTreeSet<Party>>,
    until_us: u64,
}

impl Cut {
    fn parts(&self, a: Party, b: Party) -> bool {
        let apart = |x, y| {
            let other = self.other.as_ref();
            self.side.contains(x) && other.map_or(!self.side.contains(y), |o| o.contains(y))
        };
        apart(&a, &b) || apart(&b, &a)
    }
}

/// The network between all actors.
#[derive(Debug)]
pub struct Network {
    plan: NetworkPlan,
    delay: LogNormal<f64>,
    cuts: Vec<Cut>,
    slow: Vec<Slow>,
    links: Links,
    rng: ChaCha8Rng,
}

/// What is sent one way is late until then.
#[derive(Clone, Copy, Debug)]
struct Slow {
    from: Party,
    to: Party,
    by_us: u64,
    until_us: u64,
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
            cuts: Vec::new(),
            slow: Vec::new(),
            links: Links::default(),
            rng: random_stream(seed, 2),
            plan,
        }
    }

    /// Whether ranks read answers on a stream that they have given up.
    pub fn late_answers(&self) -> bool {
        self.plan.late_answers
    }

    /// Parts `side` from `other`, or from everybody else.
    pub fn cut(&mut self, side: &[Party], other: Option<&[Party]>, until_us: u64) {
        self.cuts.push(Cut {
            side: side.iter().copied().collect(),
            other: other.map(|other| other.iter().copied().collect()),
            until_us,
        });
    }

    /// Makes what is sent from one to the other late, and not what comes back.
    pub fn slow(&mut self, (from, to): (Party, Party), by_us: u64, until_us: u64) {
        self.slow.push(Slow {
            from,
            to,
            by_us,
            until_us,
        });
    }

    /// By how much what is sent now is late.
    fn slowed_us(&mut self, now_us: u64, from: Party, to: Party) -> u64 {
        self.slow.retain(|slow| slow.until_us > now_us);
        let ways = self.slow.iter();
        let ways = ways.filter(|slow| (slow.from, slow.to) == (from, to));
        ways.map(|slow| slow.by_us).max().unwrap_or(0)
    }

    /// Until when nothing passes between two; `None` if it does.
    pub fn cut_until(&mut self, now_us: u64, a: Party, b: Party) -> Option<u64> {
        self.cuts.retain(|cut| cut.until_us > now_us);
        let parting = self.cuts.iter().filter(|cut| cut.parts(a, b));
        parting.map(|cut| cut.until_us).max()
    }

    /// Draws the fate of a message that leaves now on a way that may lose it.
    pub fn send(&mut self, now_us: u64, from: Party, to: Party) -> Fate {
        if self.cut_until(now_us, from, to).is_some() || self.rng.random_bool(self.plan.drop) {
            return Fate::Lost(self.notice(now_us));
        }
        let stalled = |stall: &&Stall| {
            from == Party::Group(GroupId(stall.group))
                && (stall.from_us..stall.until_us).contains(&now_us)
        };
        let stall = self.plan.stalls.iter().find(stalled);
        let stall_us = stall.map_or(0, |stall| stall.held_us);
        let first = now_us + stall_us + self.draw_us();
        let again = self.rng.random_bool(self.plan.duplicate);
        Fate::Arrives(first, again.then(|| now_us + stall_us + self.draw_us()))
    }

    /// When somebody notices that a connection broke.
    pub fn notice(&mut self, now_us: u64) -> u64 {
        now_us + self.rng.random_range(100..=self.plan.notice_us)
    }

    /// A delay of a message on a connection that keeps order.
    pub fn draw_us(&mut self) -> u64 {
        let held = self.plan.hold > 0.0 && self.rng.random_bool(self.plan.hold);
        let held_us = if held {
            self.rng.random_range(0..=self.plan.hold_us)
        } else {
            0
        };
        self.delay.sample(&mut self.rng) as u64 + held_us
    }

    /// Opens a connection that keeps its order until it breaks; answers its number.
    pub fn open(&mut self) -> u64 {
        self.links.open()
    }

    /// Whether a message that arrives on a connection now does.
    pub fn delivers(&self, link: u64, now_us: u64) -> bool {
        self.links.delivers(link, now_us)
    }

    /// Whether a connection has not broken.
    pub fn lives(&self, link: u64) -> bool {
        self.links.lives(link)
    }

    /// Breaks a connection: what would arrive later than this does not.
    pub fn end(&mut self, link: u64, until_us: u64) {
        self.links.end(link, until_us);
    }

    /// When a message that leaves now on a connection, one way or `back`, arrives; `None` if the
    /// connection breaks instead.
    pub fn pass(
        &mut self,
        (link, back): (u64, bool),
        (from, to): (Party, Party),
        now_us: u64,
    ) -> Option<u64> {
        let mut from_us = self.links.passes_from(link, now_us)?;
        if let Some(until_us) = self.cut_until(now_us, from, to) {
            // Some wait for what is lost to be sent again; others give up.
            if from_us <= now_us && self.coin() {
                return None;
            }
            from_us = from_us.max(until_us);
        }
        if self.breaks() {
            return None;
        }
        let delay_us = self.draw_us() + self.slowed_us(now_us, from, to);
        self.links.carry((link, back), (now_us, from_us), delay_us)
    }

    /// Whether a connection breaks with this message.
    fn breaks(&mut self) -> bool {
        self.plan.break_link > 0.0 && self.rng.random_bool(self.plan.break_link)
    }

    /// A coin.
    pub fn coin(&mut self) -> bool {
        self.rng.random_bool(0.5)
    }

    /// A number of the range.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        self.rng.random_range(from..=to)
    }
}
