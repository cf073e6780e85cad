//! Numbers that follow from several others and look random.

/// As good as drawn at random for each choice of seed and parts, and always the same for the same ones: SplitMix64's
/// mixing (Steele, Lea and Flood 2014, "Fast Splittable Pseudorandom Number Generators") of each in turn.
pub fn mixed<const PARTS: usize>(seed: u64, parts: [u64; PARTS]) -> u64 {
    let begin = stirred(seed);
    parts
        .into_iter()
        .fold(begin, |state, part| stirred(state ^ part))
}

fn stirred(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The first numbers of SplitMix64 from the seed 0, as its authors' code has them.
    #[test]
    fn a_seed_is_stirred_as_by_splitmix64() {
        assert_eq!(mixed(0, []), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mixed(0x9e37_79b9_7f4a_7c15, []), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn every_part_counts_and_so_does_their_order() {
        let mut seen = BTreeSet::new();
        for a in 0..20 {
            for b in 0..20 {
                for c in 0..20 {
                    assert!(seen.insert(mixed(a, [b, c])), "{a} {b} {c}");
                }
            }
        }
    }
}
