//! Top-k: only the values of largest magnitude, the rest stays in the residual (Stich et al. 2018,
//! "Sparsified SGD with Memory", definition 2.2 and algorithm 1).
//!
//! k is `fraction` × values, in f64, rounded up. Of equal magnitudes the one with the lowest index
//! is sent; −0 equals 0.
//!
//! On the wire, the block is taken as pages of 65,536 values: for every page the number of its
//! values that are sent, as u32; then for each value that is sent, in order, its index in its page
//! as u16; then these values as f32.

use std::iter::repeat_n;

use super::DecodeError;
use super::select::select;

const PAGE_BITS: u32 = 16;
const PAGE: usize = 1 << PAGE_BITS;

const COUNT_BYTES: usize = 4;
const ENTRY_BYTES: usize = 2 + 4;

/// Bytes of a block of so many values.
pub(super) fn bytes(values: usize, fraction: f64) -> usize {
    COUNT_BYTES * values.div_ceil(PAGE) + ENTRY_BYTES * k(values, fraction)
}

/// How many of so many values are sent; at least 1 where there is one.
fn k(values: usize, fraction: f64) -> usize {
    let k = (fraction * values as f64).ceil() as usize;
    k.max(1).min(values)
}

/// See [`Compression::encode`](super::Compression::encode).
pub(super) fn encode(
    values: &[f32],
    residual: Option<&mut [f32]>,
    fraction: f64,
    out: &mut Vec<u8>,
) {
    let mut zeros = Vec::new();
    let sums = residual.unwrap_or_else(|| {
        zeros.resize(values.len(), 0.0);
        &mut zeros
    });
    let chosen = select(values, sums, k(values.len(), fraction));

    let start = out.len();
    let pages = values.len().div_ceil(PAGE);
    out.resize(start + pages * COUNT_BYTES + chosen.len() * ENTRY_BYTES, 0);
    let (counts, rest) = out[start..].split_at_mut(pages * COUNT_BYTES);
    let (lows, sent) = rest.split_at_mut(chosen.len() * 2);
    let counts = counts.as_chunks_mut().0;
    let entries = lows.as_chunks_mut().0.iter_mut();
    for (index, (low, value)) in chosen.iter().zip(entries.zip(sent.as_chunks_mut().0)) {
        let count: &mut [u8; COUNT_BYTES] = &mut counts[index >> PAGE_BITS];
        *count = (u32::from_le_bytes(*count) + 1).to_le_bytes();
        *low = (index as u16).to_le_bytes();
        *value = std::mem::take(&mut sums[index]).to_le_bytes();
    }
}

/// See [`Compression::decode`](super::Compression::decode); the length is checked.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) -> Result<(), DecodeError> {
    let block = Block::of(bytes, out.len());
    block.check(out.len())?;
    out.fill(0.0);
    for (index, value) in block.entries() {
        out[index] = value;
    }
    Ok(())
}

/// See [`Compression::decode_add`](super::Compression::decode_add); the length is checked.
pub(super) fn decode_add(bytes: &[u8], out: &mut [f32]) -> Result<(), DecodeError> {
    let block = Block::of(bytes, out.len());
    block.check(out.len())?;
    let infinite = |(position, value): &(usize, f32)| !(out[*position] + value).is_finite();
    if let Some((position, _)) = block.entries().find(infinite) {
        return Err(DecodeError::Sum { position });
    }
    for (index, value) in block.entries() {
        out[index] += value;
    }
    Ok(())
}

/// The sections of an encoding.
struct Block<'a> {
    counts: &'a [[u8; COUNT_BYTES]],
    lows: &'a [[u8; 2]],
    sent: &'a [[u8; 4]],
}

impl<'a> Block<'a> {
    /// `bytes` has a length that belongs to so many values.
    fn of(bytes: &'a [u8], values: usize) -> Self {
        let (counts, rest) = bytes.split_at(COUNT_BYTES * values.div_ceil(PAGE));
        let (lows, sent) = rest.split_at(rest.len() / ENTRY_BYTES * 2);
        Self {
            counts: counts.as_chunks().0,
            lows: lows.as_chunks().0,
            sent: sent.as_chunks().0,
        }
    }

    /// Index in the block and value of each entry, while the counts last.
    fn entries(&self) -> impl Iterator<Item = (usize, f32)> {
        let pages = self.counts.iter().enumerate().flat_map(|(page, count)| {
            let count = u32::from_le_bytes(*count) as usize;
            repeat_n(page << PAGE_BITS, count)
        });
        let entries = pages.zip(self.lows.iter().zip(self.sent));
        entries.map(|(page, (low, value))| {
            let index = page | usize::from(u16::from_le_bytes(*low));
            (index, f32::from_le_bytes(*value))
        })
    }

    fn check(&self, values: usize) -> Result<(), DecodeError> {
        let counts = self
            .counts
            .iter()
            .map(|c| u64::from(u32::from_le_bytes(*c)));
        let (entries, wanted) = (counts.sum(), self.lows.len());
        if entries != wanted as u64 {
            return Err(DecodeError::Entries { entries, wanted });
        }
        let mut next = 0;
        for (entry, (index, value)) in self.entries().enumerate() {
            if index >= values {
                return Err(DecodeError::Index {
                    entry,
                    index,
                    values,
                });
            }
            if index < next {
                return Err(DecodeError::Order { entry, index });
            }
            if !value.is_finite() {
                return Err(DecodeError::Value { position: index });
            }
            next = index + 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Compression;

    #[test]
    fn k_is_rounded_up() {
        let check = |values, fraction, want| {
            assert_eq!(k(values, fraction), want, "{fraction} of {values}");
        };
        check(0, 0.5, 0);
        check(1, 1e-9, 1);
        check(100, 0.01, 1);
        check(101, 0.01, 2);
        check(7, 1.0, 7);
    }

    #[test]
    fn wire() {
        let mut values = vec![0.25; 2 * PAGE + 8];
        (values[3], values[2 * PAGE], values[2 * PAGE + 7]) = (-8.0, 4.0, 0.5);
        let fraction = 3.0 / values.len() as f64;
        let mut residual = vec![0.0; values.len()];
        let mut bytes = Vec::new();
        Compression::TopK { fraction }.encode(&values, Some(&mut residual), &mut bytes);
        let mut want = vec![1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 7, 0];
        want.extend([-8f32, 4.0, 0.5].into_iter().flat_map(f32::to_le_bytes));
        assert_eq!(bytes, want);
        let kept = |i| ![3, 2 * PAGE, 2 * PAGE + 7].contains(&i);
        for (index, left) in residual.iter().enumerate() {
            let want = if kept(index) { 0.25 } else { 0.0 };
            assert_eq!(*left, want, "{index}");
        }
    }

    #[test]
    fn a_constant_gradient_arrives_in_full_in_turn() {
        let form = Compression::TopK { fraction: 0.01 };
        let values = [0.5; 1000];
        let (mut residual, mut total) = ([0.0; 1000], [0.0; 1000]);
        for round in 1..=350 {
            let mut bytes = Vec::new();
            form.encode(&values, Some(&mut residual), &mut bytes);
            form.decode_add(&bytes, &mut total).unwrap();
            for (index, total) in total.iter().enumerate() {
                // Ten values a round, those that have waited longest, lowest index first.
                let turns = (round * 10usize).saturating_sub(index + 1) / 1000;
                let sent = index < round * 10;
                let last = index / 10 + 1 + turns * 100;
                let want = if sent { last as f32 * 0.5 } else { 0.0 };
                assert_eq!(*total, want, "value {index} after round {round}");
            }
        }
    }
}
