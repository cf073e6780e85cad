//! The packed form: many samples in one file, each found by its number and read in one place.
//!
//! ```text
//! 64 bytes      "TWPACK1\n", then zeros
//! records       of each sample its fields one after the other, beginning at a multiple of 64 bytes;
//!               with compression each field apart: its bytes transposed, so that the first bytes of all
//!               numbers come first, then lz4 (block format)
//! index         of each sample: u64 where its record is, u32 CRC-32 of the record; then for each field
//!               whose rows vary u32 rows; with compression for each field u32 bytes of its record
//! names         of each sample where it came from, in UTF-8, each ended by a line feed
//! description   JSON: fields, number of samples, compression, places and CRC-32 of index and names
//! 16 bytes      u32 CRC-32 and u32 length of the description, "TWPACK1\n"
//! ```
//! All numbers are little-endian. A file is written beside its place and renamed, so one that was cut short
//! has no end and is refused.

mod read;
mod write;

use serde::{Deserialize, Serialize};

use crate::Field;

pub use self::read::Packed;
pub use self::write::Writer;

const MAGIC: &[u8; 8] = b"TWPACK1\n";

/// Records begin at multiples of so many bytes.
const ALIGNED: u64 = 64;

/// Bytes behind the description.
const END: usize = 16;

/// How records are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// As they are: read at the rate of memory.
    #[default]
    None,
    /// Transposed bytes and lz4.
    Lz4,
}

/// What a writer is told beside the fields.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// How records are stored.
    pub compression: Compression,
    /// Whether numbers may be NaN or infinite.
    pub any_numbers: bool,
}

/// What stands at the end of a file.
#[derive(Debug, Serialize, Deserialize)]
struct Description {
    fields: Vec<Field>,
    samples: u64,
    compression: Compression,
    index: Section,
    names: Section,
}

/// A part of a file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Section {
    begin: u64,
    bytes: u64,
    crc32: u32,
}

/// Where the numbers of a sample stand in its entry of the index.
#[derive(Clone, Copy, Debug)]
struct Entries {
    varying: usize,
    /// Fields whose stored length is written down.
    stored: usize,
}

impl Entries {
    fn of(fields: &[Field], compression: Compression) -> Self {
        Self {
            varying: fields.iter().filter(|field| field.varies()).count(),
            stored: match compression {
                Compression::None => 0,
                Compression::Lz4 => fields.len(),
            },
        }
    }

    /// Bytes of an entry.
    fn bytes(self) -> usize {
        12 + 4 * (self.varying + self.stored)
    }
}

/// The first bytes of all numbers, then the second ones, and so on.
fn transposed(values: &[u8], number: usize, out: &mut Vec<u8>) {
    out.clear();
    for byte in 0..number {
        out.extend(values.iter().skip(byte).step_by(number));
    }
}

/// Undoes [`transposed`].
fn restored(from: &[u8], number: usize, out: &mut [u8]) {
    let count = out.len() / number;
    for (at, one) in out.chunks_exact_mut(number).enumerate() {
        for (byte, value) in one.iter_mut().enumerate() {
            *value = from[byte * count + at];
        }
    }
}

#[cfg(test)]
mod tests;
