//! Files in the format of MNIST.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use tradewind_data::idx::Idx;

use super::DataError;

/// Reads a whole file of [this format](tradewind_data::idx).
///
/// # Errors
/// A file that cannot be read, is of another format, has another number of extents, or is
/// shorter or longer than it says.
pub fn read<const EXTENTS: usize>(file: &Path) -> Result<Idx<EXTENTS>, DataError> {
    let bytes = fs::read(file).map_err(|error| match error.kind() {
        ErrorKind::NotFound => DataError::Missing { file: file.into() },
        _ => DataError::Unreadable {
            file: file.into(),
            reason: error.to_string(),
        },
    })?;
    Idx::parse(&bytes).map_err(|reason| DataError::NotIdx {
        file: file.into(),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &[u8] = &[0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6];

    fn read_bytes(bytes: &[u8]) -> Result<Idx<2>, DataError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), bytes).unwrap();
        read(file.path())
    }

    #[test]
    fn extents_and_values() {
        let idx = read_bytes(GOOD).unwrap();
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
            let error = read::<2>(file.path()).unwrap_err().to_string();
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
        let error = read::<1>(&folder.path().join("none")).unwrap_err();
        assert!(matches!(error, DataError::Missing { .. }), "{error}");
        let error = read::<1>(folder.path()).unwrap_err();
        assert!(matches!(error, DataError::Unreadable { .. }), "{error}");
    }
}
