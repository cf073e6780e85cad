//! f32 as they are.
//!
//! On the wire: each value as f32.

use super::DecodeError;
use super::dense::{Dense, PIECE, carry, first_bad};

pub(super) struct Plain;

impl Dense for Plain {
    fn piece_bytes(values: usize) -> usize {
        4 * values
    }

    fn read(bytes: &[u8], first: usize, out: &mut [f32]) -> Result<(), DecodeError> {
        let words = bytes.as_chunks().0;
        let word = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
        let carries = words.iter().fold(0, |any, bytes| any | carry(word(bytes)));
        for (value, bytes) in out.iter_mut().zip(words) {
            *value = f32::from_bits(word(bytes));
        }
        if carries >> 31 == 0 {
            return Ok(());
        }
        match first_bad(out) {
            None => Ok(()),
            Some(at) => Err(DecodeError::Value {
                position: first + at,
            }),
        }
    }
}

/// Appends the values.
pub(super) fn encode(values: &[f32], out: &mut Vec<u8>) {
    let mut buffer = [0; 4 * PIECE];
    for values in values.chunks(PIECE) {
        for (bytes, value) in buffer.as_chunks_mut().0.iter_mut().zip(values) {
            *bytes = value.to_le_bytes();
        }
        out.extend_from_slice(&buffer[..4 * values.len()]);
    }
}
