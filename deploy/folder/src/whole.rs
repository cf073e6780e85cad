//! Files that readers see whole or not at all: written beside their place, then put there.

use std::path::Path;

use anyhow::Context;

/// Writes a text.
///
/// # Errors
/// It cannot be written; what was there before still is.
pub fn write(path: &Path, text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    write_with(path, |beside| Ok(std::fs::write(beside, text)?))
}

/// Has a file written to the path beside that it is given.
///
/// # Errors
/// It cannot be written; what was there before still is.
pub fn write_with(
    path: &Path,
    write: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let beside = Path::new(&beside);
    write(beside)
        .and_then(|()| Ok(std::fs::rename(beside, path)?))
        .with_context(|| format!("cannot write {}", path.display()))
}
