//! Files that readers see whole or not at all: written beside their place, then renamed.
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! let path = folder.path().join("summary.json");
//! tradewind_process::whole::write(&path, "{}")?;
//! assert_eq!(std::fs::read_to_string(path)?, "{}");
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Most files left half-written beside one place before it is given up.
const PARTS_MAX: u32 = 1000;

/// Who may read and write a file that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    /// As the umask says.
    All,
    /// Its owner alone, whatever the umask says.
    Owner,
}

impl For {
    fn options(self) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.write(true).mode(match self {
            Self::All => 0o666,
            Self::Owner => 0o600,
        });
        options
    }
}

/// An error that names the path.
pub fn at(path: &Path) -> impl Fn(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Makes durable what was created, renamed or removed in a folder last.
///
/// # Errors
/// The folder cannot be opened or synced.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    // The parent of a bare name is the empty path.
    let path = match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    };
    File::open(path)
        .and_then(|folder| folder.sync_all())
        .map_err(at(path))
}

/// A file that is being written beside its place; deleted unless it is put there.
#[derive(Debug)]
pub struct Part {
    path: PathBuf,
    file: File,
    placed: bool,
}

impl Part {
    /// Creates the file at `path`, which must not be there: so two processes never write the same.
    ///
    /// # Errors
    /// It is there, or cannot be created.
    pub fn create(path: PathBuf) -> io::Result<Self> {
        Self::fresh(path, For::All)
    }

    /// As [`create`](Self::create), of a file that its owner alone may read, whatever the umask.
    ///
    /// # Errors
    /// It is there, or cannot be created.
    pub fn create_secret(path: PathBuf) -> io::Result<Self> {
        Self::fresh(path, For::Owner)
    }

    fn fresh(path: PathBuf, readers: For) -> io::Result<Self> {
        let file = readers.options().create_new(true).open(&path);
        Self::of(file, path)
    }

    /// Creates the file at `path`, or empties what an interrupted write has left there: for one that
    /// nobody else writes at the same time.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn over(path: PathBuf) -> io::Result<Self> {
        Self::again(path, For::All)
    }

    fn again(path: PathBuf, readers: For) -> io::Result<Self> {
        let file = readers.options().create(true).truncate(true).open(&path);
        Self::of(file, path)
    }

    /// Creates `target.part`, or the first of `target.part-1`, … that is not there.
    ///
    /// # Errors
    /// It cannot be created, or there are a thousand already.
    pub fn beside(target: &Path) -> io::Result<Self> {
        Self::next_to(target, For::All)
    }

    fn next_to(target: &Path, readers: For) -> io::Result<Self> {
        for number in 0..PARTS_MAX {
            match Self::fresh(part_of(target, number), readers) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made,
            }
        }
        let path = part_of(target, 0);
        let error = "there are too many unfinished files of this name; delete them";
        Err(at(&path)(io::Error::other(error)))
    }

    fn of(file: io::Result<File>, path: PathBuf) -> io::Result<Self> {
        Ok(Self {
            file: file.map_err(at(&path))?,
            path,
            placed: false,
        })
    }

    /// The file, for writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the file in its place in one instant, so that it is there after a power cut, too.
    ///
    /// # Errors
    /// It cannot be synced or renamed; what was there before still is.
    pub fn publish(self, target: &Path) -> io::Result<()> {
        self.file.sync_all().map_err(at(&self.path))?;
        self.place(target)?;
        target.parent().map_or(Ok(()), sync_folder)
    }

    /// Puts the file in its place in one instant. After a power cut it may be empty.
    ///
    /// # Errors
    /// It cannot be renamed; what was there before still is.
    pub fn place(mut self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target).map_err(at(&self.path))?;
        self.placed = true;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.placed {
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

/// Puts a file with these bytes in its place; it is there after a power cut, too.
///
/// # Errors
/// It cannot be written; what was there before still is.
pub fn replace(target: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    filled(Part::beside(target)?, bytes)?.publish(target)
}

/// As [`replace`], by a file beside that nobody else writes: however often it fails, there is one.
///
/// # Errors
/// It cannot be written; what was there before still is.
pub fn replace_by(part: PathBuf, target: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    filled(Part::over(part)?, bytes)?.publish(target)
}

/// As [`replace_by`], of a file that its owner alone may read, whatever the umask.
///
/// # Errors
/// It cannot be written; what was there before still is.
pub fn replace_secret_by(part: PathBuf, target: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    filled(Part::again(part, For::Owner)?, bytes)?.publish(target)
}

/// As [`replace`], of a file that its owner alone may read, whatever the umask.
///
/// # Errors
/// It cannot be written; what was there before still is.
pub fn replace_secret(target: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    filled(Part::next_to(target, For::Owner)?, bytes)?.publish(target)
}

/// Puts a file with these bytes in its place. After a power cut it may be empty.
///
/// # Errors
/// It cannot be written; what was there before still is.
pub fn write(target: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let written = Part::beside(target).and_then(|part| filled(part, bytes)?.place(target));
    written.map_err(cannot_write(target))
}

/// As [`write()`], of a file that its owner alone may read, whatever the umask.
///
/// # Errors
/// It cannot be written; what was there before still is.
pub fn write_secret(target: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let part = Part::next_to(target, For::Owner);
    let written = part.and_then(|part| filled(part, bytes)?.place(target));
    written.map_err(cannot_write(target))
}

/// As [`write()`], by a file beside that nobody else writes: however often it fails, there is one.
///
/// # Errors
/// It cannot be written; what was there before still is.
pub fn write_by(part: PathBuf, target: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let written = Part::over(part).and_then(|part| filled(part, bytes)?.place(target));
    written.map_err(cannot_write(target))
}

fn cannot_write(target: &Path) -> impl Fn(io::Error) -> io::Error + '_ {
    move |error| {
        let text = format!("cannot write {}: {error}", target.display());
        io::Error::new(error.kind(), text)
    }
}

fn filled(part: Part, bytes: impl AsRef<[u8]>) -> io::Result<Part> {
    (&part.file)
        .write_all(bytes.as_ref())
        .map_err(at(&part.path))?;
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_not_finished_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a.json");
        write(&target, "old").unwrap();
        let part = filled(Part::beside(&target).unwrap(), "ne").unwrap();
        assert_eq!(names(folder.path()), ["a.json", "a.json.part"]);
        assert_eq!(fs::read(&target).unwrap(), b"old");
        drop(part);
        assert_eq!(names(folder.path()), ["a.json"]);
        replace(&target, "new").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["a.json"]);
    }

    #[test]
    fn two_writers_write_beside_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a");
        let first = filled(Part::beside(&target).unwrap(), "first").unwrap();
        let second = filled(Part::beside(&target).unwrap(), "second").unwrap();
        assert_ne!(first.path(), second.path());
        first.place(&target).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"first");
        second.place(&target).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"second");
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn a_secret_is_its_owners_alone_also_where_a_file_was_that_all_could_read() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("token");
        let mode = || fs::metadata(&target).unwrap().permissions().mode() & 0o777;
        let part = || folder.path().join("own.part");
        let ways: [&dyn Fn() -> io::Result<()>; 4] = [
            &|| write_secret(&target, "s"),
            &|| replace_secret(&target, "s"),
            &|| replace_secret_by(part(), &target, "s"),
            &|| Part::create_secret(part())?.publish(&target),
        ];
        for way in ways {
            write(&target, "").unwrap();
            let open = fs::Permissions::from_mode(0o666);
            fs::set_permissions(&target, open).unwrap();
            way().unwrap();
            assert_eq!(mode(), 0o600);
        }
    }

    #[test]
    fn an_error_names_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("missing/a");
        let error = write(&target, "").unwrap_err().to_string();
        assert!(error.contains("missing/a.part"), "{error}");
    }
}
