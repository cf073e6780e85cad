//! Files that are there whole or not at all: written beside their place, synced, renamed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Most files left half-written beside one place before it is given up.
const PARTS_MAX: u32 = 1000;

/// An error that names the path.
pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Makes a folder and those above it. They are there after a power cut, too.
pub(crate) fn create_folders(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    if let Some(above) = above {
        create_folders(above)?;
    }
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(at(path)(error)),
        _ => above.map_or(Ok(()), sync_folder),
    }
}

/// Makes what was created, renamed or removed in a folder last.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    // The parent of a bare name is the empty path.
    let path = match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    };
    File::open(path)
        .and_then(|folder| folder.sync_all())
        .map_err(at(path))
}

/// A file that is being written beside its place; dropped unless it is published.
#[derive(Debug)]
pub(crate) struct Part {
    path: PathBuf,
    file: File,
    published: bool,
}

impl Part {
    /// Creates the file at `path`, which must not be there: so two processes never write the same.
    pub fn create(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        Ok(Self {
            file: file.map_err(at(&path))?,
            path,
            published: false,
        })
    }

    /// Creates the file at `path`, or empties what an interrupted write has left there: for one that
    /// nobody else writes at the same time.
    pub fn over(path: PathBuf) -> io::Result<Self> {
        let file = File::create(&path).map_err(at(&path))?;
        Ok(Self {
            file,
            path,
            published: false,
        })
    }

    /// Creates `target.part`, or the first of `target.part-1`, … that is not there.
    pub fn beside(target: &Path) -> io::Result<Self> {
        for number in 0..PARTS_MAX {
            match Self::create(part_of(target, number)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made,
            }
        }
        let path = part_of(target, 0);
        let error = "there are too many unfinished files of this name; delete them";
        Err(at(&path)(io::Error::other(error)))
    }

    /// The file, for writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the file in its place, in one instant: synced, renamed, and the folder synced.
    pub fn publish(mut self, target: &Path) -> io::Result<()> {
        self.file.sync_all().map_err(at(&self.path))?;
        fs::rename(&self.path, target).map_err(at(&self.path))?;
        self.published = true;
        target.parent().map_or(Ok(()), sync_folder)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.published {
            // What stays behind on a failing disk is in nobody's way.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn part_of(target: &Path, number: u32) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(".part");
    if number > 0 {
        name.push(format!("-{number}"));
    }
    name.into()
}

/// Puts a file with these bytes in its place, whole.
pub(crate) fn replace(target: &Path, bytes: &[u8]) -> io::Result<()> {
    fill(Part::beside(target)?, target, bytes)
}

/// As [`replace`], by a file beside that nobody else writes: however often it fails, there is one.
pub(crate) fn replace_by(part: PathBuf, target: &Path, bytes: &[u8]) -> io::Result<()> {
    fill(Part::over(part)?, target, bytes)
}

fn fill(part: Part, target: &Path, bytes: &[u8]) -> io::Result<()> {
    part.file().write_all(bytes).map_err(at(part.path()))?;
    part.publish(target)
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
