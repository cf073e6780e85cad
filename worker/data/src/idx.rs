//! IDX, the format of MNIST (LeCun, Cortes, Burges 1998): two zero bytes, the kind of value, the
//! number of extents, each extent as a big-endian u32, then the values, row by row. Only files of
//! unsigned bytes (kind 8) are read.

/// The kind of value of unsigned bytes.
const UNSIGNED_BYTES: u8 = 8;

/// Begins a file that gzip has compressed.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idx<const EXTENTS: usize> {
    /// Length along each extent, the slowest first.
    pub extents: [usize; EXTENTS],
    /// As many as the product of the extents, row by row.
    pub values: Vec<u8>,
}

impl<const EXTENTS: usize> Idx<EXTENTS> {
    /// Reads the content of a file. Nothing is taken from its head on trust: its length must be what the
    /// extents say.
    ///
    /// # Errors
    /// Bytes of another format, another number of extents, fewer or more than their head says.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.starts_with(&GZIP) {
            return Err("it is compressed; gunzip it".into());
        }
        let Some(([0, 0, kind, count], rest)) = bytes.split_first_chunk() else {
            return Err("it does not begin with two zero bytes, a kind and a count; fetch it again, or correct the path".into());
        };
        if *kind != UNSIGNED_BYTES {
            return Err(format!(
                "its values are of kind {kind:#04x}, but only unsigned bytes (0x08) are read"
            ));
        }
        if usize::from(*count) != EXTENTS {
            return Err(format!(
                "it has {count} extents instead of {EXTENTS}; are images and labels mixed up?"
            ));
        }
        let Some((head, values)) = rest.split_at_checked(4 * EXTENTS) else {
            return Err("it ends within its head; fetch it again".into());
        };
        let (words, _) = head.as_chunks();
        let extents = std::array::from_fn(|at| u32::from_be_bytes(words[at]) as usize);
        let product = extents.iter().try_fold(1usize, |n, e| n.checked_mul(*e));
        if product != Some(values.len()) {
            let found = values.len();
            return Err(format!(
                "its extents are {extents:?}, but {found} values follow; fetch it again"
            ));
        }
        Ok(Self {
            extents,
            values: values.to_vec(),
        })
    }
}
