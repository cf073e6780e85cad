//! Somebody hands shards what they have to refuse (rule 7).

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use tradewind_common::{ServerId, ShardId};
use tradewind_core::ReplyTo;

use super::recorder::Recorder;
use super::servers::Servers;
use crate::checker::{Checker, Violation};
use crate::{malformed, random_stream};

/// Draws what is handed to whom, and when.
pub(super) struct Mischief {
    rng: ChaCha8Rng,
    /// Mean time between two.
    every_us: u64,
    /// Broken on purpose: a copy follows whatever record comes.
    followed: bool,
}

impl Mischief {
    pub(super) fn new(seed: u64, every_us: u64, followed: bool) -> Self {
        Self {
            rng: random_stream(seed, 4),
            every_us,
            followed,
        }
    }

    /// When the next one is due.
    pub(super) fn pause_us(&mut self) -> u64 {
        self.draw(1, 2 * self.every_us)
    }

    /// Hands some shard a frame or a record, and looks whether anything changed.
    pub(super) fn disturb(
        &mut self,
        servers: &mut Servers,
        (checker, recorder): (&Checker, &mut Recorder),
        now_us: u64,
    ) -> Result<(), Violation> {
        let last = u64::from(servers.count()) - 1;
        let id = ServerId(self.draw(0, last) as u32);
        let shard = ShardId(self.draw(0, last) as u32);
        let Some((view, held)) = servers.shard_of(id, shard) else {
            return Ok(());
        };
        let lineage = held.lineage();
        let of = held.shard_mut();
        let before = of.digest();
        if let Some(record) = malformed::record(of, &mut self.rng) {
            recorder.counts().rogue += 1;
            let result = of.handle_record(record.clone());
            if self.followed {
                of.restore(Vec::new(), lineage);
            }
            return malformed::check_record(&record, &result, of.digest() == before);
        }
        let Some(push) = malformed::draw(checker, (id, shard), view, &mut self.rng) else {
            return Ok(());
        };
        of.handle_push(push.clone(), ReplyTo(u64::MAX), now_us);
        let outputs: Vec<_> = std::iter::from_fn(|| of.poll_output()).collect();
        recorder.counts().malformed += 1;
        malformed::check(&push, &outputs, of.digest() == before)
    }

    fn draw(&mut self, from: u64, to: u64) -> u64 {
        self.rng.random_range(from..=to)
    }
}
