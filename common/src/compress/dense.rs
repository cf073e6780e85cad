//! What the forms share that send every value: a block travels in pieces of 512 values, each of
//! which is read and written on its own while it is in the nearest cache.
//!
//! The loops over a piece have no early exit and no call, so that they vectorise.

use super::DecodeError;
use super::feedback;

/// Values in a piece; the last one of a block may have fewer.
pub(super) const PIECE: usize = 512;

/// A form that sends every value.
pub(super) trait Dense {
    /// Bytes of a piece of so many values, 1 to 512.
    fn piece_bytes(values: usize) -> usize;

    /// Reads a piece into `out`, which has the length that belongs to `bytes`. `first` is the
    /// position of its first value in the block, for the error. On an error `out` is undefined.
    fn read(bytes: &[u8], first: usize, out: &mut [f32]) -> Result<(), DecodeError>;
}

/// A form that sends every value, but not all of it.
pub(super) trait Lossy: Dense {
    /// Appends a piece, and leaves in `sums` what was left out.
    fn write(sums: &mut [f32], out: &mut Vec<u8>);
}

/// Bytes of a block of so many values.
pub(super) fn bytes<D: Dense>(values: usize) -> usize {
    let rest = match values % PIECE {
        0 => 0,
        rest => D::piece_bytes(rest),
    };
    values / PIECE * D::piece_bytes(PIECE) + rest
}

/// See [`Compression::encode`](super::Compression::encode).
pub(super) fn encode<L: Lossy>(values: &[f32], residual: Option<&mut [f32]>, out: &mut Vec<u8>) {
    if let Some(residual) = residual {
        for (values, sums) in values.chunks(PIECE).zip(residual.chunks_mut(PIECE)) {
            feedback::add(sums, values);
            L::write(sums, out);
        }
    } else {
        for values in values.chunks(PIECE) {
            let sums = &mut [0.0; PIECE][..values.len()];
            feedback::add(sums, values);
            L::write(sums, out);
        }
    }
}

/// See [`Compression::decode`](super::Compression::decode); the length is checked.
pub(super) fn decode<D: Dense>(bytes: &[u8], out: &mut [f32]) -> Result<(), DecodeError> {
    for (piece, (bytes, out)) in pieces::<D>(bytes, out).enumerate() {
        D::read(bytes, piece * PIECE, out)?;
    }
    Ok(())
}

/// See [`Compression::decode_add`](super::Compression::decode_add); the length is checked. The
/// first pass checks and the second one adds.
pub(super) fn decode_add<D: Dense>(bytes: &[u8], out: &mut [f32]) -> Result<(), DecodeError> {
    let mut buffer = [0.0; PIECE];
    for (piece, (bytes, out)) in pieces::<D>(bytes, out).enumerate() {
        let read = &mut buffer[..out.len()];
        D::read(bytes, piece * PIECE, read)?;
        add(read, out);
        if let Some(at) = first_bad(read) {
            let position = piece * PIECE + at;
            return Err(DecodeError::Sum { position });
        }
    }
    for (piece, (bytes, out)) in pieces::<D>(bytes, out).enumerate() {
        let read = &mut buffer[..out.len()];
        D::read(bytes, piece * PIECE, read)?;
        add(out, read);
    }
    Ok(())
}

fn pieces<'a, D: Dense>(
    bytes: &'a [u8],
    out: &'a mut [f32],
) -> impl Iterator<Item = (&'a [u8], &'a mut [f32])> {
    bytes
        .chunks(D::piece_bytes(PIECE))
        .zip(out.chunks_mut(PIECE))
}

fn add(to: &mut [f32], values: &[f32]) {
    for (to, value) in to.iter_mut().zip(values) {
        *to += value;
    }
}

/// Its top bit is set if the f32 of these bits is NaN or infinite: an exponent of ones carries.
pub(super) fn carry(bits: u32) -> u32 {
    (bits & 0x7FFF_FFFF) + 0x0080_0000
}

/// The position of the first value that is not finite.
pub(super) fn first_bad(values: &[f32]) -> Option<usize> {
    let carries = values.iter().fold(0, |any, x| any | carry(x.to_bits()));
    match carries >> 31 {
        0 => None,
        _ => values.iter().position(|x| !x.is_finite()),
    }
}
