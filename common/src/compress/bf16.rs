//! bf16: the sign, the exponent and 7 bits of the mantissa of an f32 (Kalamkar et al. 2019, "A
//! Study of BFLOAT16 for Deep Learning Training").
//!
//! On the wire: each value as the upper 16 bits of its f32, after rounding to the nearest, ties to
//! even. The error is at most 2⁻⁸ of the value, and below 2⁻¹²⁶ at most 2⁻¹³⁴.

use super::DecodeError;
use super::dense::{Dense, Lossy, PIECE};

pub(super) struct Bf16;

const EXPONENT: u16 = 0x7F80;

impl Dense for Bf16 {
    fn piece_bytes(values: usize) -> usize {
        2 * values
    }

    fn read(bytes: &[u8], first: usize, out: &mut [f32]) -> Result<(), DecodeError> {
        let bytes = bytes.as_chunks().0;
        let bad = |bytes: &[u8; 2]| u16::from_le_bytes(*bytes) & EXPONENT == EXPONENT;
        let mut any_bad = false;
        for (value, bytes) in out.iter_mut().zip(bytes) {
            any_bad |= bad(bytes);
            *value = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
        }
        if !any_bad {
            return Ok(());
        }
        let at = bytes.iter().position(bad).expect("one is bad");
        let position = first + at;
        Err(DecodeError::Value { position })
    }
}

impl Lossy for Bf16 {
    fn write(sums: &mut [f32], out: &mut Vec<u8>) {
        let mut buffer = [0; 2 * PIECE];
        for (bytes, sum) in buffer.as_chunks_mut().0.iter_mut().zip(sums.iter_mut()) {
            let bits = sum.to_bits();
            // Half of the last place that stays, less one where that place is even.
            let upper = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
            *bytes = (upper as u16).to_le_bytes();
            *sum -= f32::from_bits(upper << 16);
        }
        out.extend_from_slice(&buffer[..2 * sums.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::feedback::SUM_MAX;
    use super::super::tests::{noise, sent};
    use crate::Compression;

    /// In f64, where nothing here is rounded but what should be: a multiple of the last place.
    fn nearest(x: f32) -> f64 {
        let x = f64::from(x);
        let exponent = x.abs().log2().floor().max(-126.0);
        let place = (exponent - 7.0).exp2();
        (x / place).round_ties_even() * place
    }

    #[test]
    fn rounds_to_nearest_even() {
        let mut values = noise(1, 3000);
        for (index, value) in values.iter_mut().enumerate() {
            *value *= ((index % 240) as f32 - 130.0).exp2();
        }
        values.extend([SUM_MAX, -SUM_MAX, f32::MIN_POSITIVE, 1e-45, -1e-40, 0.0]);
        let got = sent(Compression::Bf16, &values);
        for (x, got) in values.iter().zip(got) {
            assert_eq!(f64::from(got), nearest(*x), "{x}");
            let error = f64::from(x - got).abs();
            let bound = (f64::from(x.abs()) / 256.0).max(134f64.exp2().recip());
            assert!(error <= bound, "{x} became {got}");
        }
    }

    #[test]
    fn wire() {
        let check = |value: f32, want: u16| {
            let mut bytes = Vec::new();
            Compression::Bf16.encode(&[value], None, &mut bytes);
            assert_eq!(bytes, want.to_le_bytes(), "{value}");
        };
        check(1.0, 0x3F80);
        check(-2.5, 0xC020);
        check(1.0 + 1.0 / 256.0, 0x3F80);
        check(1.0 + 3.0 / 256.0, 0x3F82);
        check(1.0 + 1.0 / 256.0 + 1.0 / 65536.0, 0x3F81);
        check(2.0 - 1.0 / 65536.0, 0x4000);
    }
}
