//! A list of the files of a folder, so that 100,000 of them need not be listed again.
//!
//! ```text
//! {"tradewind_manifest":1,"layout":"…","fields":[…]}    one line; with "folder" if it lies elsewhere
//! 1<TAB>4718592<TAB>train/map-1.h5                      of each file: samples, bytes, path in the folder
//! crc32 1a2b3c4d of 100000 files                        of all bytes before this line
//! ```

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use tradewind_process::whole::Part;

use crate::files::Files;
use crate::{DataError, Field, Layout};

/// A manifest of this name is taken for the folder that it lies in.
pub const FILE: &str = "samples.manifest";

/// With which a manifest begins.
const BEGINNING: &str = "{\"tradewind_manifest\":";

const VERSION: u32 = 1;

/// Most samples of a manifest: readers keep a bit for each, half a gigabyte of so many.
const SAMPLES_MAX: usize = 1 << 32;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Description {
    tradewind_manifest: u32,
    layout: Layout,
    fields: Vec<Field>,
    /// Where the files are, if not beside the manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    folder: Option<PathBuf>,
}

/// What a manifest says.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub files: Files,
    pub layout: Layout,
    pub fields: Vec<Field>,
}

/// Whether a file begins as a manifest does.
///
/// # Errors
/// It cannot be read.
pub(crate) fn is_manifest(path: &Path) -> Result<bool, DataError> {
    let failed = |error: std::io::Error| DataError::of_system(path, &error);
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut head = Vec::new();
    let mut part = file.take(BEGINNING.len() as u64);
    part.read_to_end(&mut head).map_err(failed)?;
    Ok(head == BEGINNING.as_bytes())
}

impl Manifest {
    /// Reads a manifest, in one go.
    ///
    /// # Errors
    /// A file that cannot be read, is no manifest, is cut or damaged, or of a later version; a path that leads
    /// out of the folder; no file, no sample.
    pub fn read(path: &Path) -> Result<Self, DataError> {
        let failed = |reason: &str| DataError::file(path, reason);
        let bytes = std::fs::read(path).map_err(|error| DataError::of_system(path, &error))?;
        let damaged = || failed("it is cut short or damaged; write the manifest again");
        if !bytes.starts_with(BEGINNING.as_bytes()) {
            return Err(failed(
                "it is no manifest of samples; `tradewind data manifest` writes one",
            ));
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| damaged())?;
        let lines = text.strip_suffix('\n').ok_or_else(damaged)?;
        let (_, end) = lines.rsplit_once('\n').ok_or_else(damaged)?;
        let before = &text[..lines.len() - end.len()];
        let count = (end.strip_prefix(&sum(before)))
            .and_then(|rest| rest.strip_prefix(" of "))
            .and_then(|rest| rest.strip_suffix(" files"))
            .and_then(|count| count.parse::<usize>().ok());
        let count = count.ok_or_else(damaged)?;
        let (first, lines) = before.split_once('\n').ok_or_else(damaged)?;
        let version: Version = serde_json::from_str(first).map_err(|_| damaged())?;
        if version.tradewind_manifest != VERSION {
            let version = version.tradewind_manifest;
            let reason = format!(
                "it is a manifest of version {version}, and this program reads {VERSION}; write it again"
            );
            return Err(failed(&reason));
        }
        let description: Description = serde_json::from_str(first)
            .map_err(|error| failed(&format!("its description cannot be read: {error}")))?;
        // What was written with the sum was written so: only a person's hand breaks what follows.
        // A line has a byte at least.
        let mut list = List::with_capacity(count.min(lines.len()));
        for (number, line) in lines.lines().enumerate() {
            let refused = |reason| failed(&format!("line {}, {line:?}: {reason}", number + 2));
            list.add(line, &description.layout).map_err(refused)?;
        }
        if list.names.len() != count {
            return Err(damaged());
        }
        let samples = list.samples.iter();
        match samples.fold(0, |sum: usize, more| sum.saturating_add(*more)) {
            0 => return Err(failed("there is no sample in it")),
            1..=SAMPLES_MAX => {}
            _ => return Err(failed(&format!("it lists more than {SAMPLES_MAX} samples"))),
        }
        let beside = path.parent().unwrap_or(Path::new(""));
        let folder = description.folder.as_deref().unwrap_or(beside);
        let files = match description.layout.counts_samples() {
            false => Files::of_one(folder, list.names),
            true => Files::of_several(folder, list.names, &list.samples),
        };
        Ok(Self {
            files: files.with_bytes(list.bytes),
            layout: description.layout,
            fields: description.fields,
        })
    }
}

/// A description of any version.
#[derive(Deserialize)]
struct Version {
    tradewind_manifest: u32,
}

#[derive(Default)]
struct List {
    names: Vec<Box<str>>,
    samples: Vec<usize>,
    bytes: Vec<u64>,
}

impl List {
    /// For so many files, unless a number was invented.
    fn with_capacity(files: usize) -> Self {
        let files = files.min(1 << 24);
        Self {
            names: Vec::with_capacity(files),
            samples: Vec::with_capacity(files),
            bytes: Vec::with_capacity(files),
        }
    }

    fn add(&mut self, line: &str, layout: &Layout) -> Result<(), &'static str> {
        let mut parts = line.splitn(3, '\t');
        let mut part = || parts.next().ok_or("it is not SAMPLES<TAB>BYTES<TAB>PATH");
        let (samples, bytes, name) = (part()?, part()?, part()?);
        let no_number = "there is no whole number where one belongs";
        let samples = samples.parse().map_err(|_| no_number)?;
        self.bytes.push(bytes.parse().map_err(|_| no_number)?);
        if samples != 1 && !layout.counts_samples() {
            return Err("by the layout a file has one sample");
        }
        self.samples.push(samples);
        let is_inside = |part| matches!(part, Component::Normal(_));
        if name.is_empty() || !Path::new(name).components().all(is_inside) {
            return Err("its path leads out of the folder");
        }
        self.names.push(name.into());
        Ok(())
    }
}

/// The last line up to the count.
fn sum(before: &str) -> String {
    format!("crc32 {:08x}", crc32fast::hash(before.as_bytes()))
}

/// Writes a manifest.
///
/// # Errors
/// A file that is gone; the manifest cannot be written: what was there before still is.
pub(crate) fn write(
    path: &Path,
    files: &Files,
    layout: &Layout,
    fields: &[Field],
) -> Result<(), DataError> {
    let failed = |error: std::io::Error| DataError::of_system(path, &error);
    let beside = path.parent().unwrap_or(Path::new(""));
    // The parent of a bare name is the empty path.
    let whole = |path: &Path| match path.as_os_str().is_empty() {
        true => Path::new(".").canonicalize(),
        false => path.canonicalize(),
    };
    let folder =
        whole(files.folder()).map_err(|error| DataError::of_system(files.folder(), &error))?;
    let is_beside = whole(beside).map_err(failed)? == folder;
    let description = Description {
        tradewind_manifest: VERSION,
        layout: layout.clone(),
        fields: fields.to_vec(),
        folder: (!is_beside).then_some(folder),
    };
    let text = serde_json::to_string(&description);
    let mut text = text.map_err(|error| DataError::file(files.folder(), error))?;
    text.push('\n');
    for file in 0..files.len() {
        let path = files.path(file);
        let metadata = path
            .metadata()
            .map_err(|error| DataError::of_system(&path, &error))?;
        let (samples, name) = (files.samples_of(file), files.name(file));
        let written = writeln!(text, "{samples}\t{}\t{name}", metadata.len());
        written.expect("a string takes all");
    }
    let end = format!("{} of {} files\n", sum(&text), files.len());
    let part = Part::beside(path).map_err(failed)?;
    let written = part.file().write_all(text.as_bytes());
    written
        .and_then(|()| part.file().write_all(end.as_bytes()))
        .map_err(failed)?;
    part.publish(path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    /// A manifest of three files, and its text.
    fn written(folder: &Path, layout: &str, samples: &[usize]) -> (PathBuf, String) {
        std::fs::create_dir_all(folder.join("sub")).unwrap();
        let names = ["a b.h5", "sub/2.h5", "sub/10.h5"];
        for (length, name) in names.iter().enumerate() {
            std::fs::write(folder.join(name), vec![7; length + 5]).unwrap();
        }
        let files = Files::of_several(folder, names.map(Box::from).into(), samples);
        let fields = [Field::new("image", Kind::F32, &[2, 3])];
        let path = folder.join(FILE);
        write(&path, &files, &layout.parse().unwrap(), &fields).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        (path, text)
    }

    #[test]
    fn manifests_come_back_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let (path, text) = written(folder.path(), "image=x[samples]:f32", &[4, 0, 2]);
        assert!(
            text.contains("\n4\t5\ta b.h5\n0\t6\tsub/2.h5\n2\t7\tsub/10.h5\ncrc32 "),
            "{text}"
        );
        assert!(
            text.ends_with(" of 3 files\n") && !text.contains("folder"),
            "{text}"
        );
        let read = Manifest::read(&path).unwrap();
        assert_eq!(read.layout.to_string(), "image=x[samples]:f32");
        assert_eq!(read.fields, [Field::new("image", Kind::F32, &[2, 3])]);
        let files = read.files;
        assert_eq!(
            (files.len(), files.samples(), files.bytes(2)),
            (3, 6, Some(7))
        );
        assert_eq!(files.path(2), folder.path().join("sub/10.h5"));
        assert_eq!(files.place(4), (2, 0));
        assert!(is_manifest(&path).unwrap());
        assert!(!is_manifest(&folder.path().join("a b.h5")).unwrap());
        assert!(is_manifest(&folder.path().join("none")).is_err());
    }

    #[test]
    fn a_manifest_elsewhere_names_the_folder() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (path, _) = written(folder.path(), "image=x", &[1, 1, 1]);
        let read = Manifest::read(&path).unwrap();
        let elsewhere = other.path().join("mine");
        write(&elsewhere, &read.files, &read.layout, &read.fields).unwrap();
        let read = Manifest::read(&elsewhere).unwrap();
        assert_eq!(read.files.folder(), folder.path().canonicalize().unwrap());
        std::fs::remove_file(folder.path().join("sub/2.h5")).unwrap();
        let error = write(&elsewhere, &read.files, &read.layout, &read.fields).unwrap_err();
        assert!(
            error.to_string().contains("sub/2.h5: No such file"),
            "{error}"
        );
        let nowhere = other.path().join("none/mine");
        let error = write(&nowhere, &read.files, &read.layout, &read.fields).unwrap_err();
        assert!(error.to_string().contains("No such file"), "{error}");
        assert!(
            Manifest::read(&elsewhere).is_ok(),
            "what was there before still is"
        );
    }

    #[test]
    fn no_more_samples_are_listed_than_readers_can_keep_in_mind() {
        let folder = tempfile::tempdir().unwrap();
        let layout = "image=x[samples]:f32";
        let (path, _) = written(folder.path(), layout, &[SAMPLES_MAX, 0, 0]);
        assert_eq!(Manifest::read(&path).unwrap().files.samples(), SAMPLES_MAX);
        let (path, text) = written(folder.path(), layout, &[SAMPLES_MAX, 0, 1]);
        // By hand: together they are more than can be counted.
        let before = &text[..text.rfind("crc32").unwrap()];
        let before = before.replace("\n1\t", &format!("\n{}\t", usize::MAX));
        let uncounted = format!("{before}{} of 3 files\n", sum(&before));
        for text in [text, uncounted] {
            std::fs::write(&path, text).unwrap();
            let error = Manifest::read(&path).unwrap_err().to_string();
            assert!(
                error.contains("it lists more than 4294967296 samples"),
                "{error}"
            );
        }
    }

    #[test]
    fn manifests_that_are_not_whole_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (path, text) = written(folder.path(), "image=x", &[1, 1, 1]);
        let check = |content: &[u8], want: &str| {
            std::fs::write(&path, content).unwrap();
            let error = Manifest::read(&path).unwrap_err().to_string();
            assert!(error.contains(FILE) && error.contains(want), "{error}");
        };
        check(b"", "no manifest of samples");
        check(b"\x89HDF", "no manifest of samples");
        for length in [BEGINNING.len(), 60, text.len() - 20, text.len() - 1] {
            check(&text.as_bytes()[..length], "cut short or damaged");
        }
        for at in BEGINNING.len()..text.len() - 1 {
            let mut holed = text.clone().into_bytes();
            holed[at] ^= 1;
            check(&holed, "cut short or damaged");
        }
        check(
            &[text.as_bytes(), b"\xFF\n"].concat(),
            "cut short or damaged",
        );
        // With the right sum, as somebody would write by hand.
        let summed = |text: &str, count: usize| format!("{text}{} of {count} files\n", sum(text));
        let before = &text[..text.rfind("crc32").unwrap()];
        check(summed(before, 4).as_bytes(), "cut short or damaged");
        let changed = |from: &str, to: &str| summed(&before.replace(from, to), 3).into_bytes();
        check(
            &changed("manifest\":1", "manifest\":7"),
            "of version 7, and this program reads 1",
        );
        check(
            &changed("f32", "f23"),
            "its description cannot be read: unknown variant `f23`",
        );
        check(
            &changed("1\t6\t", "2\t6\t"),
            "line 3, \"2\\t6\\tsub/2.h5\": by the layout a file has one sample",
        );
        check(
            &changed("1\t6\t", "1\t6 "),
            "it is not SAMPLES<TAB>BYTES<TAB>PATH",
        );
        check(&changed("1\t6\t", "1\t-6\t"), "no whole number");
        check(
            &changed("sub/2.h5", "../2.h5"),
            "its path leads out of the folder",
        );
        check(
            &changed("sub/2.h5", "/2.h5"),
            "its path leads out of the folder",
        );
        let (first, _) = before.split_once('\n').unwrap();
        check(
            summed(&format!("{first}\n"), 0).as_bytes(),
            "there is no sample in it",
        );
        let error = Manifest::read(&folder.path().join("none")).unwrap_err();
        assert!(error.to_string().contains("No such file"), "{error}");
    }
}
