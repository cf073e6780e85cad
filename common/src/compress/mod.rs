//! How the values of one block travel: as they are, or in fewer bytes with something left out.
//!
//! What a lossy form leaves out of a block is kept by its sender and added to the next values of
//! that block, so that it arrives later instead of never: error feedback (Seide et al. 2014,
//! "1-Bit Stochastic Gradient Descent"; Karimireddy et al. 2019, "Error Feedback Fixes SignSGD",
//! algorithm 2). With `p` = values + residual, the receiver gets C(p), and the residual becomes
//! p − C(p).
//!
//! Every form takes a number of bytes that follows from the number of values, and all numbers in
//! it are little-endian.

use serde::{Deserialize, Serialize};
use std::fmt;

use crate::choice::{Choices, Field, Kind, Unfit, fit};
use crate::choices;

mod bf16;
mod dense;
mod feedback;
mod int8;
mod plain;
mod select;
mod topk;

pub use feedback::{Feedback, SUM_MAX};

use bf16::Bf16;
use int8::Int8;
use plain::Plain;

choices! {
    /// A form in which values travel.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
    "form in which values travel" is Compression {
        /// f32 as they are: 4 bytes a value, nothing lost.
        #[default]
        "none" ("f32, 4 bytes a value") is None,
        /// The upper half of an f32, rounded: 2 bytes a value.
        "bf16" ("2 bytes a value") is Bf16,
        /// Integers of 8 bits with a scale for every 512 values: 1 byte a value.
        "int8" ("about 1 byte a value") is Int8,
        /// Only the values that are largest by magnitude: 6 bytes for each of them.
        "topk" ("only the largest values, 6 bytes each") is TopK {
            /// How many of a block's values are sent, as a fraction of them, in `(0, 1]`. It is
            /// rounded up, so that every block sends at least one.
            fraction: f64 = FRACTION,
        },
    }
}

const FRACTION: Field = Field {
    key: "exchange.topk_fraction",
    kind: Kind::Number { min: 0.0, max: 1.0 },
    default: "0.01",
    meaning: "Fraction of the values of a block that `topk` sends, more than 0.",
};

/// Why bytes are not the encoding of a block.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// Too few or too many bytes.
    #[error("{bytes} bytes for {values} values, which take {wanted}")]
    Length {
        /// How many there are.
        bytes: usize,
        /// Values of the block.
        values: usize,
        /// How many there must be.
        wanted: usize,
    },
    /// A value is NaN or infinite.
    #[error("value {position} is not finite")]
    Value {
        /// The first one, counted from 0 in the block.
        position: usize,
    },
    /// A scale is NaN, negative, or so large that a value would be infinite.
    #[error("the scale of the values from {position} on is {scale}")]
    Scale {
        /// The first value of the first such scale, counted from 0 in the block.
        position: usize,
        /// The scale.
        scale: f32,
    },
    /// A value is finite, what it would be added to as well, but not their sum; or what it would
    /// be added to is not finite.
    #[error("the sum with value {position} is not finite")]
    Sum {
        /// The first such value, counted from 0 in the block.
        position: usize,
    },
    /// The pages of a top-k block list another number of values than the fraction makes.
    #[error("the pages list {entries} values instead of {wanted}")]
    Entries {
        /// Sum over the pages.
        entries: u64,
        /// What the fraction makes.
        wanted: usize,
    },
    /// An index past the end of the block.
    #[error("entry {entry} names value {index} of {values}")]
    Index {
        /// Which of the values sent, from 0.
        entry: usize,
        /// The value that it names.
        index: usize,
        /// Values of the block.
        values: usize,
    },
    /// An index that is not larger than the one before it.
    #[error("entry {entry} names value {index}, which is not after the one before it")]
    Order {
        /// Which of the values sent, from 0.
        entry: usize,
        /// The value that it names.
        index: usize,
    },
}

impl Compression {
    /// Checks that the fraction of top-k is in `(0, 1]`.
    ///
    /// # Errors
    /// It is not.
    pub fn check(self) -> Result<(), Unfit> {
        self.in_range()?;
        match self {
            Self::None | Self::Bf16 | Self::Int8 => Ok(()),
            Self::TopK { fraction } => fit(
                fraction > 0.0,
                FRACTION.key,
                "is 0, so nothing would ever be sent",
            ),
        }
    }

    /// Whether the receiver may get other values than were sent.
    pub fn lossy(self) -> bool {
        match self {
            Self::None => false,
            Self::Bf16 | Self::Int8 | Self::TopK { .. } => true,
        }
    }

    /// Whether most values are left out of what is sent, so that what arrives has another length than what
    /// was there.
    pub fn sparse(self) -> bool {
        match self {
            Self::None | Self::Bf16 | Self::Int8 => false,
            Self::TopK { .. } => true,
        }
    }

    /// Upper limit on the bytes of so many values. Each of the forms takes exactly this number.
    pub fn encoded_max(self, values: usize) -> usize {
        match self {
            Self::None => dense::bytes::<Plain>(values),
            Self::Bf16 => dense::bytes::<Bf16>(values),
            Self::Int8 => dense::bytes::<Int8>(values),
            Self::TopK { fraction } => topk::bytes(values, fraction),
        }
    }

    /// Appends the encoding of `values + residual` to `out`, and makes `residual` what was left
    /// out; without one, what is left out is lost. [`Compression::None`] loses nothing and leaves
    /// the residual alone.
    ///
    /// `values` and `residual` are finite; the caller has checked it. A lossy form limits their
    /// sums to ±2¹²⁷, so that its encoding and the residual are always finite: what is beyond is
    /// lost.
    ///
    /// The residual takes the encoding for delivered. A block that is refused must be sent again
    /// as the same bytes, not encoded again.
    ///
    /// # Panics
    ///
    /// When `residual` is not as long as `values`, or a top-k block has 2³² values or more.
    pub fn encode(self, values: &[f32], residual: Option<&mut [f32]>, out: &mut Vec<u8>) {
        debug_assert!(crate::finite::all_finite(values), "the caller checks");
        if let Some(residual) = &residual {
            assert_eq!(residual.len(), values.len(), "a residual for every value");
        }
        out.reserve(self.encoded_max(values.len()));
        match self {
            Self::None => plain::encode(values, out),
            Self::Bf16 => dense::encode::<Bf16>(values, residual, out),
            Self::Int8 => dense::encode::<Int8>(values, residual, out),
            Self::TopK { fraction } => topk::encode(values, residual, fraction, out),
        }
    }

    /// Writes the values of a block to `out`, which is as long as the block; values that top-k
    /// left out are 0. On an error `out` may be written in part.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) -> Result<(), DecodeError> {
        self.check_length(bytes, out)?;
        match self {
            Self::None => dense::decode::<Plain>(bytes, out),
            Self::Bf16 => dense::decode::<Bf16>(bytes, out),
            Self::Int8 => dense::decode::<Int8>(bytes, out),
            Self::TopK { .. } => topk::decode(bytes, out),
        }
    }

    /// Adds the values of a block to `out`, which is as long as the block. On an error, which
    /// includes a sum that is not finite, `out` is unchanged.
    pub fn decode_add(self, bytes: &[u8], out: &mut [f32]) -> Result<(), DecodeError> {
        self.check_length(bytes, out)?;
        match self {
            Self::None => dense::decode_add::<Plain>(bytes, out),
            Self::Bf16 => dense::decode_add::<Bf16>(bytes, out),
            Self::Int8 => dense::decode_add::<Int8>(bytes, out),
            Self::TopK { .. } => topk::decode_add(bytes, out),
        }
    }

    fn check_length(self, bytes: &[u8], out: &[f32]) -> Result<(), DecodeError> {
        let (bytes, values) = (bytes.len(), out.len());
        let wanted = self.encoded_max(values);
        if bytes == wanted {
            Ok(())
        } else {
            Err(DecodeError::Length {
                bytes,
                values,
                wanted,
            })
        }
    }
}

impl fmt::Display for Compression {
    /// The word of the configuration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.definition().name)
    }
}

#[cfg(test)]
mod tests;
