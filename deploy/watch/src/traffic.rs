//! How many bytes a second go to and from each shard, from what its primary has counted at two looks.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::standing::Shard;

/// Bytes a second of values, as they travelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct BytesPerSecond {
    pub(crate) pushed: f64,
    pub(crate) pulled: f64,
}

/// What a primary had counted.
#[derive(Clone, Copy, Debug)]
struct Counted {
    primary: u32,
    /// Seconds since the Unix epoch.
    wall: f64,
    pushed_bytes: u64,
    pulled_bytes: u64,
}

/// The traffic of all shards.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic {
    counted: BTreeMap<u32, Counted>,
    rates: BTreeMap<u32, BytesPerSecond>,
}

impl Traffic {
    /// Takes in what the primaries say now. One that has just taken a shard over begins to count.
    pub(crate) fn take_in(&mut self, shards: &[Shard], wall: f64) {
        let mut counted = BTreeMap::new();
        let mut rates = BTreeMap::new();
        for shard in shards {
            let (Some(primary), Some(pushed_bytes), Some(pulled_bytes)) =
                (shard.primary, shard.pushed_bytes, shard.pulled_bytes)
            else {
                continue;
            };
            let now = Counted {
                primary,
                wall,
                pushed_bytes,
                pulled_bytes,
            };
            if let Some(rate) = self
                .counted
                .get(&shard.shard)
                .and_then(|before| rate(before, &now))
            {
                rates.insert(shard.shard, rate);
            }
            counted.insert(shard.shard, now);
        }
        *self = Self { counted, rates };
    }

    /// Of a shard; `None` until two looks have been taken.
    pub(crate) fn of(&self, shard: u32) -> Option<BytesPerSecond> {
        self.rates.get(&shard).copied()
    }
}

fn rate(before: &Counted, now: &Counted) -> Option<BytesPerSecond> {
    let seconds = now.wall - before.wall;
    let pushed = now.pushed_bytes.checked_sub(before.pushed_bytes)?;
    let pulled = now.pulled_bytes.checked_sub(before.pulled_bytes)?;
    (seconds > 0.0 && now.primary == before.primary).then(|| BytesPerSecond {
        pushed: pushed as f64 / seconds,
        pulled: pulled as f64 / seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_two_looks_at_the_same_primary() {
        let shard = |primary, pushed_bytes, pulled_bytes| Shard {
            shard: 3,
            primary: Some(primary),
            waits_for: Vec::new(),
            copies: Vec::new(),
            bytes: None,
            blocks: None,
            version_min: None,
            version_max: None,
            pushed_bytes: Some(pushed_bytes),
            pulled_bytes: Some(pulled_bytes),
        };
        let mut traffic = Traffic::default();
        let mut check = |wall, shards: &[Shard], want: Option<(f64, f64)>| {
            traffic.take_in(shards, wall);
            let want = want.map(|(pushed, pulled)| BytesPerSecond { pushed, pulled });
            assert_eq!(traffic.of(3), want);
        };
        check(10.0, &[shard(0, 100, 50)], None);
        check(12.0, &[shard(0, 300, 60)], Some((100.0, 5.0)));
        // A copy has taken over, and counts what it has taken in itself.
        check(13.0, &[shard(1, 900, 900)], None);
        check(14.0, &[shard(1, 900, 900)], Some((0.0, 0.0)));
        // The same server has been started again.
        check(15.0, &[shard(1, 5, 5)], None);
        check(16.0, &[], None);
        check(17.0, &[shard(1, 9, 9)], None);
    }
}
