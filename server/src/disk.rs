//! Folders and sealed files of a server's folder.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

pub(crate) use tradewind_process::whole::{
    Part, at, replace_by, replace_secret, replace_secret_by, sync_folder,
};

/// Makes a folder and those above it, which are their owner's alone, whatever the umask: states and values of
/// parameters are in them. They are there after a power cut, too.
pub(crate) fn create_folders(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    if let Some(above) = above {
        create_folders(above)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(at(path)(error)),
        _ => above.map_or(Ok(()), sync_folder),
    }
}

/// Removes a file; whether it was there.
pub(crate) fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(at(path)(error)),
    }
}

/// Names in a folder; none if it is not there. On a network's file system they may be those of half a
/// minute ago: what has to be known now is asked for by its name.
pub(crate) fn names(folder: &Path) -> io::Result<Vec<String>> {
    #[cfg(test)]
    if let Some(names) = tests::frozen(folder) {
        return Ok(names);
    }
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(at(folder))?,
    };
    let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().into_string().ok());
    let names: io::Result<Vec<Option<String>>> = entries.map(name).collect();
    Ok(names.map_err(at(folder))?.into_iter().flatten().collect())
}

const AROUND: (&str, &str, &str) = ("{\"blake3\":\"", "\",\"content\":\n", "\n}\n");
const DIGITS: usize = 64;

/// JSON with its checksum around it; JSON again.
pub(crate) fn with_checksum(content: &[u8]) -> Vec<u8> {
    let digest = blake3::hash(content).to_hex();
    let pieces = [AROUND.0.as_bytes(), digest.as_bytes(), AROUND.1.as_bytes()];
    let mut bytes = pieces.concat();
    bytes.extend_from_slice(content);
    bytes.extend_from_slice(AROUND.2.as_bytes());
    bytes
}

/// The content of that, if every byte is as it was.
pub(crate) fn check_checksum(bytes: &[u8]) -> Result<&[u8], &'static str> {
    let torn = "it is cut off, or was changed";
    let rest = bytes.strip_prefix(AROUND.0.as_bytes()).ok_or(torn)?;
    let (digest, rest) = rest.split_at_checked(DIGITS).ok_or(torn)?;
    let rest = rest.strip_prefix(AROUND.1.as_bytes()).ok_or(torn)?;
    let content = rest.strip_suffix(AROUND.2.as_bytes()).ok_or(torn)?;
    if blake3::hash(content).to_hex().as_bytes() == digest {
        Ok(content)
    } else {
        Err("its content does not have its checksum: it was changed or is damaged")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    //! Listings that lag behind.

    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use super::*;

    thread_local! {
        static FROZEN: RefCell<BTreeMap<PathBuf, Vec<String>>> = RefCell::default();
    }

    /// From now on this thread finds in a folder what there is now.
    pub(crate) fn freeze(folder: &Path) {
        let now = names(folder).unwrap();
        FROZEN.with_borrow_mut(|frozen| frozen.insert(folder.to_owned(), now));
    }

    pub(super) fn frozen(folder: &Path) -> Option<Vec<String>> {
        FROZEN.with_borrow(|frozen| frozen.get(folder).cloned())
    }
}
