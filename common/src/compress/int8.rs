//! Integers of 8 bits with a scale for every 512 values, so that one large value costs only its
//! neighbours their precision (block-wise quantization: Dettmers et al. 2022, "8-bit Optimizers
//! via Block-wise Quantization", section 2; here with equal steps).
//!
//! On the wire, for every 512 values, and for what is left at the end: the scale as f32, which is
//! max |x| / 127, then each value as an integer q of 8 bits, two's complement. The value is q ×
//! scale in f32. q is rounded to the nearest, ties to even, so the error is at most scale / 2, and
//! a hair more where x / scale is rounded. Where the scale would be below 2⁻¹²⁶ it is sent as 0
//! and all its values are left out. −128 is never written; it is read as any other.

use super::DecodeError;
use super::dense::{Dense, Lossy, PIECE};

pub(super) struct Int8;

const SCALE_BYTES: usize = 4;

/// 1.5 × 2²³. The sum of this and |x| < 2²² is rounded to an integer, and its low bits are that
/// integer. An instruction that rounds is not part of the x86-64 that every machine has.
const ROUND: f32 = 12_582_912.0;

impl Dense for Int8 {
    fn piece_bytes(values: usize) -> usize {
        SCALE_BYTES + values
    }

    fn read(bytes: &[u8], first: usize, out: &mut [f32]) -> Result<(), DecodeError> {
        let (scale, bytes) = bytes.split_first_chunk().expect("the length is checked");
        let scale = f32::from_le_bytes(*scale);
        // So that no product below can be infinite.
        let good = scale.is_sign_positive() && (scale * 128.0).is_finite();
        if !good {
            return Err(DecodeError::Scale {
                position: first,
                scale,
            });
        }
        for (value, byte) in out.iter_mut().zip(bytes) {
            *value = f32::from(*byte as i8) * scale;
        }
        Ok(())
    }
}

impl Lossy for Int8 {
    fn write(sums: &mut [f32], out: &mut Vec<u8>) {
        let (scale, inverse) = match magnitude_max(sums) / 127.0 {
            scale if scale >= f32::MIN_POSITIVE => (scale, 1.0 / scale),
            _ => (0.0, 0.0),
        };
        let mut buffer = [0; PIECE];
        for (byte, sum) in buffer.iter_mut().zip(sums.iter_mut()) {
            let rounded = *sum * inverse + ROUND;
            *byte = rounded.to_bits() as u8;
            *sum -= (rounded - ROUND) * scale;
        }
        out.extend_from_slice(&scale.to_le_bytes());
        out.extend_from_slice(&buffer[..sums.len()]);
    }
}

fn magnitude_max(values: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [0.0; 16];
    let (groups, rest) = values.as_chunks::<16>();
    for group in groups {
        for (lane, value) in lanes.iter_mut().zip(group) {
            *lane = larger(*lane, value.abs());
        }
    }
    let rest = rest.iter().map(|x| x.abs());
    lanes.into_iter().chain(rest).fold(0.0, larger)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{noise, sent};
    use super::*;
    use crate::Compression;

    #[test]
    fn the_error_is_half_a_step_of_the_piece() {
        let mut values = noise(2, 2 * PIECE + 3);
        values[700] = -1e6;
        let got = sent(Compression::Int8, &values);
        for (piece, (values, got)) in values.chunks(PIECE).zip(got.chunks(PIECE)).enumerate() {
            let largest = values
                .iter()
                .fold(0.0, |max, x| f64::max(max, x.abs().into()));
            let half = largest / 127.0 / 2.0;
            for (x, got) in values.iter().zip(got) {
                let error = (f64::from(*x) - f64::from(*got)).abs();
                assert!(error <= half * 1.0001, "{x} became {got} in piece {piece}");
            }
        }
    }

    #[test]
    fn wire() {
        let mut values = vec![0.0; PIECE + 1];
        values[..6].copy_from_slice(&[127.0, -1.0, 0.5, 1.5, -2.5, 62.7]);
        values[PIECE] = -0.25;
        let mut bytes = Vec::new();
        Compression::Int8.encode(&values, None, &mut bytes);
        let mut want = 1f32.to_le_bytes().to_vec();
        want.extend([127, 0xFF, 0, 2, 0xFE, 63]);
        want.resize(4 + PIECE, 0);
        want.extend((0.25f32 / 127.0).to_le_bytes());
        want.push(0x81);
        assert_eq!(bytes, want);
    }

    #[test]
    fn the_largest_value_is_found_in_every_place() {
        for n in [1, 15, 16, 17, 40] {
            for at in 0..n {
                let mut values = vec![0.5; n];
                values[at] = -3.0;
                assert_eq!(magnitude_max(&values), 3.0, "{at} of {n}");
            }
        }
    }

    #[test]
    fn values_too_small_for_a_scale_stay_in_the_residual() {
        let values = [1e-37, -1e-40, 1e-45, 0.0];
        let (mut residual, mut bytes) = ([0.0; 4], Vec::new());
        Compression::Int8.encode(&values, Some(&mut residual), &mut bytes);
        assert_eq!(residual, values);
        assert_eq!(bytes, [0; 8]);
    }
}
