//! IDX, the format of MNIST (LeCun, Cortes, Burges 1998): two zero bytes, the kind of value, the
//! number of extents, each extent as a big-endian u32, then the values, row by row. Only files of
//! unsigned bytes (kind 8) are read.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::DataError;

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
    /// Reads a whole file. Nothing is taken from its head on trust: its length must be what the
    /// extents say.
    ///
    /// # Errors
    /// A file that cannot be read, is of another format, has another number of extents, or is
    /// shorter or longer than it says.
    pub fn read(file: &Path) -> Result<Self, DataError> {
        let bytes = fs::read(file).map_err(|error| match error.kind() {
            ErrorKind::NotFound => DataError::Missing { file: file.into() },
            _ => DataError::Unreadable {
                file: file.into(),
                reason: error.to_string(),
            },
        })?;
        Self::parse(&bytes).map_err(|reason| DataError::NotIdx {
            file: file.into(),
            reason,
        })
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &[u8] = &[0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6];

    fn read(bytes: &[u8]) -> Result<Idx<2>, DataError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), bytes).unwrap();
        Idx::read(file.path())
    }

    #[test]
    fn extents_and_values() {
        let idx = read(GOOD).unwrap();
        assert_eq!(
            (idx.extents, idx.values.as_slice()),
            ([2, 3], &GOOD[12..18])
        );
    }

    #[test]
    fn what_is_wrong_is_named_with_the_file() {
        let change = |at: usize, byte: u8| {
            let mut bytes = GOOD.to_vec();
            bytes[at] = byte;
            bytes
        };
        let check = |bytes: &[u8], want: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(file.path(), bytes).unwrap();
            let error = Idx::<2>::read(file.path()).unwrap_err().to_string();
            let name = file.path().display().to_string();
            assert!(error.contains(&name) && error.contains(want), "{error}");
        };
        check(b"", "does not begin with");
        check(&change(0, 1), "does not begin with");
        check(&[0x1f, 0x8b, 8, 0, 0], "gunzip");
        check(&change(2, 9), "of kind 0x09");
        check(&change(3, 1), "1 extents instead of 2");
        check(&GOOD[..11], "ends within its head");
        check(&GOOD[..17], "[2, 3], but 5 values follow");
        check(&[GOOD, &[7]].concat(), "[2, 3], but 7 values follow");
        let huge = [&[0, 0, 8, 2][..], &[0xff; 8], &[1]].concat();
        check(&huge, "but 1 values follow");
    }

    #[test]
    fn a_file_that_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let error = Idx::<1>::read(&folder.path().join("none")).unwrap_err();
        assert!(matches!(error, DataError::Missing { .. }), "{error}");
        let error = Idx::<1>::read(folder.path()).unwrap_err();
        assert!(matches!(error, DataError::Unreadable { .. }), "{error}");
    }
}
