//! What the network does to messages.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// What the network does to messages. Each draws its own delay, so they overtake each other, but
/// where a connection keeps their order.
#[derive(Clone, Debug)]
pub struct NetworkPlan {
    /// Median one-way delay, microseconds.
    pub delay_us: u64,
    /// σ of the logarithm of the delay.
    pub spread: f64,
    /// Chance that a message is held up for long.
    pub hold: f64,
    /// How long it is then held up at most, microseconds.
    pub hold_us: u64,
    /// Chance that a message of a rank, or to one, is lost. Its stream is broken then; the sender
    /// notices after at most [`notice_us`](Self::notice_us) and sends what is unanswered again on a
    /// new stream.
    pub drop: f64,
    /// Chance that such a message arrives twice.
    pub duplicate: f64,
    /// Chance that a connection between servers, or of a server to the coordinator, breaks with a
    /// message.
    pub break_link: f64,
    /// Longest time until a broken connection is noticed, microseconds.
    pub notice_us: u64,
    /// Whether ranks still read answers on a stream that they have given up.
    pub late_answers: bool,
    /// Groups whose messages are stuck for a while.
    pub stalls: Vec<Stall>,
}

/// What a group sends in an interval arrives much later, as if a switch had kept it.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    /// The group.
    pub group: u32,
    /// From when.
    pub from_us: u64,
    /// Until when.
    pub until_us: u64,
    /// By how much later.
    pub held_us: u64,
}

impl NetworkPlan {
    /// A network that delivers everything once.
    pub fn faultless() -> Self {
        Self {
            delay_us: 300,
            spread: 0.3,
            hold: 0.0,
            hold_us: 0,
            drop: 0.0,
            duplicate: 0.0,
            break_link: 0.0,
            notice_us: 30_000,
            late_answers: false,
            stalls: Vec::new(),
        }
    }

    pub(super) fn random(rng: &mut ChaCha8Rng) -> Self {
        Self {
            delay_us: rng.random_range(200..4_000),
            spread: rng.random_range(0.1..1.2),
            hold: rng.random_range(0.0..0.05),
            hold_us: 60_000,
            drop: rng.random_range(0.0..0.02),
            duplicate: rng.random_range(0.0..0.1),
            break_link: rng.random_range(0.0..0.01),
            notice_us: rng.random_range(5_000..40_000),
            late_answers: rng.random_bool(0.5),
            stalls: Vec::new(),
        }
    }
}
