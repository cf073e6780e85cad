//! The files of a folder, and which samples they have.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::DataError;
use crate::names::natural;

/// How deep folders are looked into: a link may make a folder its own descendant.
const FOLDERS_DEEP_MAX: usize = 16;

/// All files below a folder, relative to it, in natural order. Files and folders whose name begins with a dot
/// are not seen.
///
/// # Errors
/// A folder that cannot be read, folders that are nested too deep, a name that is no text.
pub(crate) fn list(folder: &Path) -> Result<Vec<String>, DataError> {
    let mut names = Vec::new();
    walk(folder, "", FOLDERS_DEEP_MAX, &mut names)?;
    names.sort_unstable_by(|a, b| natural(a, b));
    Ok(names)
}

fn walk(
    folder: &Path,
    inside: &str,
    deep: usize,
    names: &mut Vec<String>,
) -> Result<(), DataError> {
    let failed = |error: std::io::Error| DataError::of_system(folder, &error);
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let path = || folder.join(&name);
        let Some(text) = name.to_str().filter(|name| !name.contains(['\n', '\t'])) else {
            let reason = "its name is no plain text in UTF-8; rename it";
            return Err(DataError::file(&path(), reason));
        };
        if text.starts_with('.') {
            continue;
        }
        let mut kind = entry.file_type().map_err(failed)?;
        if kind.is_symlink() {
            let linked = std::fs::metadata(path());
            // What leads nowhere is found when it is read.
            kind = linked.map_or(kind, |linked| linked.file_type());
        }
        let name = format!("{inside}{text}");
        if !kind.is_dir() {
            names.push(name);
        } else if deep == 0 {
            let reason = format!(
                "folders are nested deeper than {FOLDERS_DEEP_MAX}; perhaps a link leads back"
            );
            return Err(DataError::file(&path(), reason));
        } else {
            walk(&path(), &format!("{name}/"), deep - 1, names)?;
        }
    }
    Ok(())
}

/// Files of one folder, and the samples in them, numbered through.
#[derive(Debug)]
pub(crate) struct Files {
    folder: PathBuf,
    names: Vec<Box<str>>,
    /// Length of each, where it is known beforehand.
    bytes: Option<Vec<u64>>,
    samples: Samples,
}

#[derive(Debug)]
enum Samples {
    /// Every file has one.
    One,
    /// The number of the first sample of each file, and at last how many there are.
    Several(Vec<usize>),
}

impl Files {
    /// Files with one sample each.
    pub fn of_one(folder: &Path, names: Vec<Box<str>>) -> Self {
        Self {
            folder: folder.into(),
            names,
            bytes: None,
            samples: Samples::One,
        }
    }

    /// Files with so many samples.
    ///
    /// # Panics
    /// If `samples` has not one number for each file.
    pub fn of_several(folder: &Path, names: Vec<Box<str>>, samples: &[usize]) -> Self {
        assert_eq!(names.len(), samples.len(), "a number for each file");
        let mut firsts = vec![0];
        for samples in samples {
            firsts.push(firsts[firsts.len() - 1] + samples);
        }
        Self {
            samples: Samples::Several(firsts),
            ..Self::of_one(folder, names)
        }
    }

    /// The same with the length of each file.
    pub fn with_bytes(self, bytes: Vec<u64>) -> Self {
        assert_eq!(self.names.len(), bytes.len(), "a length for each file");
        Self {
            bytes: Some(bytes),
            ..self
        }
    }

    /// The folder that they are in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How many files.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// How many samples.
    pub fn samples(&self) -> usize {
        match &self.samples {
            Samples::One => self.names.len(),
            Samples::Several(firsts) => firsts[firsts.len() - 1],
        }
    }

    /// How many samples a file has.
    pub fn samples_of(&self, file: usize) -> usize {
        match &self.samples {
            Samples::One => 1,
            Samples::Several(firsts) => firsts[file + 1] - firsts[file],
        }
    }

    /// The file that a sample is in, and its number there.
    ///
    /// # Panics
    /// If there is no such sample.
    pub fn place(&self, sample: usize) -> (usize, usize) {
        assert!(
            sample < self.samples(),
            "{sample} of {} samples",
            self.samples()
        );
        match &self.samples {
            Samples::One => (sample, 0),
            Samples::Several(firsts) => {
                let file = firsts.partition_point(|first| *first <= sample) - 1;
                (file, sample - firsts[file])
            }
        }
    }

    /// Where a file is.
    pub fn path(&self, file: usize) -> PathBuf {
        self.folder.join(&*self.names[file])
    }

    /// Where the files of some samples are.
    pub fn paths(&self, samples: Range<usize>) -> Vec<PathBuf> {
        if samples.is_empty() {
            return Vec::new();
        }
        let (first, last) = (self.place(samples.start).0, self.place(samples.end - 1).0);
        let files = (first..=last).filter(|file| self.samples_of(*file) > 0);
        files.map(|file| self.path(file)).collect()
    }

    /// Its name, relative to the folder.
    pub fn name(&self, file: usize) -> &str {
        &self.names[file]
    }

    /// Its length, if it is known beforehand.
    pub fn bytes(&self, file: usize) -> Option<u64> {
        self.bytes.as_ref().map(|bytes| bytes[file])
    }

    /// Where a sample is, in words.
    pub fn sample_name(&self, sample: usize) -> String {
        let (file, at) = self.place(sample);
        let path = self.path(file);
        match self.samples {
            Samples::One => path.display().to_string(),
            Samples::Several(_) => format!("{} [{at}]", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_are_listed_in_natural_order() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        std::fs::create_dir_all(at.join("b/c")).unwrap();
        std::fs::create_dir(at.join(".git")).unwrap();
        for name in [
            "10.h5",
            "9.h5",
            "b/c/2.h5",
            "b/c/11.h5",
            ".hidden",
            ".git/x",
            "stats.h5",
        ] {
            std::fs::write(at.join(name), "").unwrap();
        }
        symlink("10.h5", at.join("1.h5")).unwrap();
        symlink("nowhere", at.join("2.h5")).unwrap();
        let want = [
            "1.h5",
            "2.h5",
            "9.h5",
            "10.h5",
            "b/c/2.h5",
            "b/c/11.h5",
            "stats.h5",
        ];
        assert_eq!(list(at).unwrap(), want);
    }

    #[test]
    fn folders_that_cannot_be_listed() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let check = |path: &Path, want: &str| {
            let error = list(path).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        };
        check(&at.join("none"), "No such file");
        symlink(".", at.join("again")).unwrap();
        check(at, "nested deeper than 16; perhaps a link leads back");
        std::fs::remove_file(at.join("again")).unwrap();
        std::fs::write(at.join(std::ffi::OsStr::from_bytes(b"\xFF.h5")), "").unwrap();
        check(at, "its name is no plain text in UTF-8");
    }

    #[test]
    fn samples_are_numbered_through() {
        let names = || ["a", "b", "c"].map(Box::from).to_vec();
        let several = Files::of_several(Path::new("/x"), names(), &[2, 0, 3]);
        let places: Vec<_> = (0..5).map(|sample| several.place(sample)).collect();
        assert_eq!(places, [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)]);
        assert_eq!((several.samples(), several.samples_of(1)), (5, 0));
        assert_eq!(several.sample_name(3), "/x/c [1]");
        let paths = |samples| several.paths(samples);
        assert_eq!(paths(1..4), [Path::new("/x/a"), Path::new("/x/c")]);
        assert_eq!(paths(0..2), [Path::new("/x/a")]);
        assert!(paths(2..2).is_empty());
        let one = Files::of_one(Path::new("/x"), names());
        assert_eq!(
            (one.samples(), one.place(2), one.sample_name(2)),
            (3, (2, 0), "/x/c".into())
        );
    }
}
