//! Gradients and initial values that anybody can compute from who brings them: whole numbers from
//! −8 to 8, so that sums in f32 are exact in any order. They differ between lives of a group, so
//! that a gradient of a fenced life in the values is seen.

use std::ops::Range;

use tradewind_common::pieces::Norms;
use tradewind_common::{BlockId, Clock, GroupId, Incarnation, Layout};

/// A life of a group.
pub type Life = (GroupId, Incarnation);

/// What groups bring, and with what blocks begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Brought {
    /// Every so many clocks of a group have no finite gradient, on average; 0 is never.
    pub skip_one_in: u64,
    /// Gradients are 1 at the group's own element, and blocks begin with zeros; otherwise all of it is
    /// whole numbers up to 8.
    pub clocks: bool,
}

/// What a life brings at a clock, `length` values; `None` if it has no finite gradient there.
pub fn gradient(
    life: Life,
    clock: Clock,
    block: BlockId,
    length: usize,
    brought: Brought,
) -> Option<Vec<f32>> {
    let key = mix(mix(u64::from(life.0.0) + 1) ^ life.1.0) ^ mix(clock.0 + 77);
    // The ranks of a group agree on it, so it does not depend on the block.
    let skip_one_in = brought.skip_one_in;
    let skips = skip_one_in > 0 && mix(key).is_multiple_of(skip_one_in);
    (!skips).then(|| match brought.clocks {
        true => one(life.0, length),
        false => numbers(key ^ mix(u64::from(block.0)), length),
    })
}

/// The norms that a life brings at a clock of a tensor that stands there in the flat vector: of its
/// whole gradient, and of the values that it was computed on, which nobody here computes on: so
/// that is some whole number.
pub fn norms(life: Life, clock: Clock, layout: &Layout, tensor: &Range<usize>) -> Norms {
    let mut squares = 0.0;
    for block in &layout.blocks {
        let (start, end) = (block.elements.start, block.elements.end);
        if end <= tensor.start || tensor.end <= start {
            continue;
        }
        let part = tensor.start.max(start) - start..tensor.end.min(end) - start;
        let gradient = gradient(life, clock, block.id, end - start, Brought::default())
            .expect("it is not skipped");
        let of_part = gradient[part].iter().map(|g| f64::from(*g).powi(2));
        squares += of_part.sum::<f64>();
    }
    let key = mix(u64::from(life.0.0) + 3000) ^ life.1.0 ^ mix(clock.0) ^ tensor.start as u64;
    Norms {
        values: (1 + mix(key) % 16) as f64,
        gradient: squares.sqrt(),
    }
}

/// How many steps a life takes before its exchange at a clock, of at most so many.
pub fn local_steps(life: Life, clock: Clock, most: u32) -> u32 {
    let key = mix(u64::from(life.0.0) + 2000) ^ life.1.0 ^ mix(clock.0);
    1 + (mix(key) % u64::from(most)) as u32
}

/// The values that a life creates a block with.
pub fn initial(life: Life, block: BlockId, length: usize, brought: Brought) -> Vec<f32> {
    if brought.clocks {
        return vec![0.0; length];
    }
    let key = mix(u64::from(life.0.0) + 1000) ^ life.1.0 ^ mix(u64::from(block.0));
    numbers(key, length)
}

/// 1 at a group's own element: what is left of zeros at rate 1 counts its contributions, and values
/// are vector clocks.
fn one(group: GroupId, length: usize) -> Vec<f32> {
    let own = |element: usize| element == group.0 as usize;
    (0..length).map(|element| f32::from(own(element))).collect()
}

fn numbers(key: u64, length: usize) -> Vec<f32> {
    let number = |index: usize| (mix(key.wrapping_add(index as u64)) % 17) as f32 - 8.0;
    (0..length).map(number).collect()
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
/// generators", figure 13).
fn mix(x: u64) -> u64 {
    let z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
