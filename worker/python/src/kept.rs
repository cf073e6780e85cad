//! What a script keeps beside its run, as a file that is whole or named as damaged.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tradewind_process::whole;

use crate::errors::{unavailable, wrong};

/// Bytes of BLAKE3 that a file begins with; the rest is what was kept.
const DIGEST: usize = blake3::OUT_LEN;

/// Most bytes that a file is read or written with.
pub const KEPT_BYTES_MAX: u64 = 4 << 30;

/// Writes a file whole, and its folder, if its parent is there.
#[pyfunction]
pub fn write_kept(py: Python<'_>, path: PathBuf, content: &[u8]) -> PyResult<()> {
    if content.len() as u64 > KEPT_BYTES_MAX {
        return Err(wrong(format!(
            "what this rank keeps has {} bytes, and {KEPT_BYTES_MAX} are the most",
            content.len()
        )));
    }
    let written = py.detach(|| {
        let folder = path.parent().filter(|folder| !folder.is_dir());
        match folder.map_or(Ok(()), fs::create_dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let digest = blake3::hash(content);
        whole::write(&path, [digest.as_bytes(), content].concat())
    });
    written.map_err(|error| unavailable(error.to_string()))
}

/// What a file has; `None` if it is not there.
///
/// # Errors
/// It cannot be read, or is damaged.
#[pyfunction]
pub fn read_kept<'py>(py: Python<'py>, path: PathBuf) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let bytes = match fs::metadata(&path).map(|found| found.len()) {
        Ok(length) if length > KEPT_BYTES_MAX + DIGEST as u64 => Err("it is too long".to_owned()),
        Ok(_) => fs::read(&path).map_err(|error| error.to_string()),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => Err(error.to_string()),
    };
    let content = bytes.and_then(|bytes| match bytes.split_first_chunk::<DIGEST>() {
        Some((digest, content)) if blake3::hash(content) == *digest => {
            Ok(PyBytes::new(py, content))
        }
        _ => Err("it is damaged".to_owned()),
    });
    let named = |why| wrong(format!("{}: {why}", path.display()));
    content.map(Some).map_err(named)
}
