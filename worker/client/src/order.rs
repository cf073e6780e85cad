//! The order of samples: one permutation for each epoch, or for each epoch and set of the data, the same in
//! every process.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Bytes 16 to 31 of the key: keeps this stream apart from others that come from the run's seed,
/// and is renumbered if the derivation ever changes.
const DOMAIN: &[u8; 16] = b"tradewind order1";

/// The same of the orders of sets: bytes 16 to 23, before the number of the set.
const SETS_DOMAIN: &[u8; 8] = b"tw sets1";

/// The permutation of `0..samples` that `epoch` visits in a run with this `seed`.
///
/// The derivation is fixed, so that any process of any version draws the same order: ChaCha8 with
/// the 32-byte key `seed ‖ epoch ‖ "tradewind order1"` (integers little-endian), then Fisher–Yates
/// from the last position down, position `i` swapping with `⌊u·(i + 1) / 2⁶⁴⌋` for the stream's
/// next 64-bit `u`. The bias of that draw is below 2⁻³².
///
/// # Panics
/// If `samples` does not fit in a `u32`.
pub fn permutation(seed: u64, epoch: u64, samples: usize) -> Vec<u32> {
    shuffled(seed, epoch, *DOMAIN, samples)
}

/// The permutation of `0..samples` in which `epoch` visits the samples of a set: as [`permutation`], with the
/// key `seed ‖ epoch ‖ "tw sets1" ‖ set`.
///
/// # Panics
/// If `samples` does not fit in a `u32`.
pub fn permutation_of_set(seed: u64, epoch: u64, set: u32, samples: usize) -> Vec<u32> {
    let mut domain = [0; 16];
    domain[..8].copy_from_slice(SETS_DOMAIN);
    domain[8..].copy_from_slice(&u64::from(set).to_le_bytes());
    shuffled(seed, epoch, domain, samples)
}

fn shuffled(seed: u64, epoch: u64, domain: [u8; 16], samples: usize) -> Vec<u32> {
    let count = u32::try_from(samples).expect("an epoch has fewer than 2^32 samples");
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&epoch.to_le_bytes());
    key[16..].copy_from_slice(&domain);
    let mut stream = ChaCha8Rng::from_seed(key);
    let mut order: Vec<u32> = (0..count).collect();
    for i in (1..samples).rev() {
        let j = (u128::from(stream.next_u64()) * (i as u128 + 1)) >> 64;
        order.swap(i, j as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_every_sample_once() {
        for samples in [0, 1, 2, 344, 10_007] {
            let mut order = permutation(7, 3, samples);
            order.sort_unstable();
            assert_eq!(order, (0..samples as u32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn pinned_so_that_versions_agree() {
        assert_eq!(permutation(1, 0, 10), [4, 6, 9, 8, 0, 3, 2, 5, 1, 7]);
    }

    #[test]
    fn sets_have_orders_of_their_own() {
        let order = |set| permutation_of_set(1, 0, set, 100);
        let mut sorted = order(3);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
        assert_eq!(order(3), order(3));
        assert_ne!(order(3), order(4));
        assert_ne!(order(0), permutation(1, 0, 100));
        assert_ne!(order(3), permutation_of_set(1, 1, 3, 100));
    }

    #[test]
    fn differs_by_seed_and_by_epoch() {
        let first = permutation(1, 0, 344);
        assert_eq!(first, permutation(1, 0, 344));
        assert_ne!(first, permutation(1, 1, 344));
        assert_ne!(first, permutation(2, 0, 344));
        assert_ne!(permutation(0, 1, 344), permutation(1, 0, 344));
    }

    #[test]
    fn every_place_is_reached_about_equally() {
        let mut seen = [[0u32; 5]; 5];
        for epoch in 0..5_000 {
            for (place, sample) in permutation(9, epoch, 5).into_iter().enumerate() {
                seen[place][sample as usize] += 1;
            }
        }
        // Expected 1000 each, standard deviation 28.
        assert!(
            seen.as_flattened().iter().all(|n| (850..1150).contains(n)),
            "{seen:?}"
        );
    }
}
