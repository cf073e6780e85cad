//! The safetensors format as a stream: a header, then the tensors' bytes without gaps. The crate of
//! that name reads and writes whole files in memory, or without syncing and hashing them.

use std::collections::HashMap;
use std::io::{self, Read, Write};

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use super::Fault;

/// Upper limit of a header: readers of the format refuse longer ones.
const HEADER_MAX: u64 = 100_000_000;

/// A tensor without its bytes: name, type, extents.
pub type Described = (String, Dtype, Vec<usize>);

/// The beginning of a file: the header's length, the header, and spaces up to a multiple of 8.
pub fn header(
    notes: HashMap<String, String>,
    tensors: impl IntoIterator<Item = Described>,
) -> io::Result<Vec<u8>> {
    let mut end = 0;
    let place = |(name, dtype, shape): Described| {
        let begin = end;
        end += shape.iter().product::<usize>() * dtype.bitsize() / 8;
        let data_offsets = (begin, end);
        let info = TensorInfo {
            dtype,
            shape,
            data_offsets,
        };
        (name, info)
    };
    let tensors = tensors.into_iter().map(place).collect();
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
    let header = Metadata::new(Some(notes), tensors).map_err(invalid)?;
    let mut json = serde_json::to_vec(&header)?;
    json.resize(json.len().next_multiple_of(8), b' ');
    if json.len() as u64 > HEADER_MAX {
        let error = format!(
            "the header would have {} bytes, more than the format's {HEADER_MAX}; raise \
             exchange.block_bytes",
            json.len()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
    }
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.append(&mut json);
    Ok(bytes)
}

/// Reads the header of a file of `length` bytes: all of them are the header's and the tensors'.
pub fn read_header(from: &mut impl Read, length: u64) -> Result<Metadata, Fault> {
    let mut size = [0; 8];
    from.read_exact(&mut size).map_err(Fault::unreadable)?;
    let size = u64::from_le_bytes(size);
    if size > HEADER_MAX || size > length.saturating_sub(8) {
        return Err(format!("its header cannot have {size} bytes").into());
    }
    let mut json = vec![0; size as usize];
    from.read_exact(&mut json).map_err(Fault::unreadable)?;
    let header: Metadata =
        serde_json::from_slice(&json).map_err(|error| format!("its header is invalid: {error}"))?;
    let described = 8 + size + header.data_len() as u64;
    if described != length {
        let what = format!("it has {length} bytes where its header describes {described}");
        return Err(what.into());
    }
    Ok(header)
}

/// Counts and hashes what goes through.
pub struct Hashing<T> {
    inner: T,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl<T> Hashing<T> {
    /// Nothing has gone through yet.
    pub fn new(inner: T) -> Self {
        let hasher = blake3::Hasher::new();
        Self {
            inner,
            hasher,
            bytes: 0,
        }
    }

    /// How many bytes, and their BLAKE3 in hexadecimal digits.
    pub fn result(&self) -> (u64, String) {
        (self.bytes, self.hasher.finalize().to_hex().to_string())
    }

    fn take(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
    }
}

impl<T: Write> Write for Hashing<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.take(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Read for Hashing<T> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(bytes)?;
        self.take(&bytes[..count]);
        Ok(count)
    }
}
