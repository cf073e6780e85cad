//! Folders of HDF5 files: one sample each, or several samples a file. NetCDF-4 files are HDF5.
//!
//! A [`Layout`] says which data sets become which fields. Shapes are those of the first file; a file of
//! another shape is an error of its samples.
//!
//! The library has one lock for all threads of a process, so that several threads read no faster.

mod file;
mod write;

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use self::file::Opened;
pub use self::file::{HEAD_BYTES, NAMES_MAX, NETCDF_FILL, datasets_of, extents, not_hdf5};
pub use self::write::write_sample;
use crate::files::{Files, list};
use crate::manifest::{self, Manifest};
use crate::names::listed;
use crate::once::{Checked, FirstStamps, Stamp};
use crate::source::unusable;
use crate::{Cache, DataError, Field, Held, Layout, Room, Source};

/// How names of HDF5 files end.
pub(crate) const ENDINGS: [&str; 6] = ["h5", "hdf5", "hdf", "he5", "nc", "nc4"];

/// Files that stand beside samples and are none: DeepCAM's means and deviations.
pub(crate) const NO_SAMPLES: [&str; 1] = ["stats.h5"];

/// Most files of several samples that stay open.
const OPEN_MAX: usize = 64;

/// Most files that are tried at the beginning of a folder for one that can be read.
const TRIED_MAX: usize = 16;

/// A folder of HDF5 files, or a manifest of one, or one file of several samples.
#[derive(Debug)]
pub struct Hdf5Folder {
    files: Files,
    layout: Layout,
    fields: Vec<Field>,
    stamps: FirstStamps,
    checked: Checked,
    /// Files of several samples that were read last, the latest at the end.
    open: Mutex<VecDeque<(usize, Arc<InUse>)>>,
    cache: Option<Arc<Cache>>,
}

/// An open file.
#[derive(Debug)]
struct InUse {
    opened: Opened,
    /// Given back after it is closed.
    held: Option<Held>,
}

impl InUse {
    /// What a file was of which this is a copy.
    fn copied(&self) -> Option<Stamp> {
        self.held.as_ref().and_then(copied)
    }
}

fn copied(held: &Held) -> Option<Stamp> {
    held.is_copy().then(|| held.stamp())
}

impl Hdf5Folder {
    /// Opens a folder, a manifest, or one file. A folder with a [manifest](manifest::FILE) is not listed; one
    /// without is, and without a layout the first of the [named](crate::layout::NAMED) ones that fits is taken.
    /// Files with one sample each are not opened, but the first.
    ///
    /// # Errors
    /// What is missing or cannot be read; no file in the folder; a manifest that is damaged, or was written
    /// with another layout; no readable file among the first ones; a layout that does not fit; of files with
    /// several samples one that cannot be read.
    pub fn open(path: &Path, layout: Option<&Layout>) -> Result<Self, DataError> {
        let metadata =
            std::fs::metadata(path).map_err(|error| DataError::of_system(path, &error))?;
        if metadata.is_dir() {
            let within = path.join(manifest::FILE);
            if within.exists() {
                return Self::of_manifest(&within, layout);
            }
            return Self::of_names(path, list(path)?, layout);
        }
        if manifest::is_manifest(path)? {
            return Self::of_manifest(path, layout);
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        let name = path.file_name().and_then(|name| name.to_str());
        let name =
            name.ok_or_else(|| DataError::file(path, "its name is no plain text in UTF-8"))?;
        Self::of_files(folder, vec![name.into()], layout)
    }

    fn of_manifest(path: &Path, layout: Option<&Layout>) -> Result<Self, DataError> {
        let manifest = Manifest::read(path)?;
        if let Some(layout) = layout
            && *layout != manifest.layout
        {
            let (written, asked) = (&manifest.layout, layout);
            let reason = format!(
                "it was written with the layout \"{written}\", and \"{asked}\" is asked for; write it again, or leave the layout away"
            );
            return Err(DataError::file(path, reason));
        }
        Ok(Self::new(manifest.files, manifest.layout, manifest.fields))
    }

    /// Those of listed names that are HDF5 files with samples.
    pub(crate) fn of_names(
        folder: &Path,
        names: Vec<String>,
        layout: Option<&Layout>,
    ) -> Result<Self, DataError> {
        let is_sample = |name: &&String| has_samples(name);
        let files: Vec<_> = names
            .iter()
            .filter(is_sample)
            .map(|name| Box::from(name.as_str()))
            .collect();
        if files.is_empty() {
            let there = match names.is_empty() {
                true => "it is empty".into(),
                false => format!("it has {}", listed(names.iter().map(String::as_str))),
            };
            let endings = ENDINGS.map(|ending| format!(".{ending}")).join(", ");
            let reason = format!("there is no HDF5 file with samples in it ({endings}): {there}");
            return Err(DataError::file(folder, reason));
        }
        Self::of_files(folder, files, layout)
    }

    fn of_files(
        folder: &Path,
        names: Vec<Box<str>>,
        layout: Option<&Layout>,
    ) -> Result<Self, DataError> {
        let (layout, fields) = first_readable(folder, &names, layout)?;
        if !layout.counts_samples() {
            return Ok(Self::new(Files::of_one(folder, names), layout, fields));
        }
        let samples = |name: &str| {
            let path = folder.join(name);
            let samples = Opened::open(&path, &layout).and_then(|opened| opened.samples(&layout));
            samples.map_err(|reason| DataError::file(&path, reason))
        };
        let counts: Result<Vec<_>, _> = names.iter().map(|name| samples(name)).collect();
        let files = Files::of_several(folder, names, &counts?);
        if files.samples() == 0 {
            return Err(DataError::file(folder, "its files have no sample"));
        }
        Ok(Self::new(files, layout, fields))
    }

    fn new(files: Files, layout: Layout, fields: Vec<Field>) -> Self {
        Self {
            stamps: FirstStamps::new(files.len()),
            checked: Checked::new(files.samples()),
            open: Mutex::default(),
            cache: None,
            files,
            layout,
            fields,
        }
    }

    /// The same, read from copies that the cache makes of its files when they are read. What is
    /// written to a file after that is not seen.
    #[must_use]
    pub fn cached(self, cache: Option<Arc<Cache>>) -> Self {
        Self { cache, ..self }
    }

    /// Which data sets become which fields.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Writes a manifest of the files: opening it is faster than listing the folder. Where it lies in the
    /// folder, it names them relative to itself.
    ///
    /// # Errors
    /// A file that is gone, or the manifest cannot be written.
    pub fn write_manifest(&self, path: &Path) -> Result<(), DataError> {
        manifest::write(path, &self.files, &self.layout, &self.fields)
    }

    /// The file, if it is open still.
    fn kept(&self, file: usize) -> Option<Arc<InUse>> {
        if !self.layout.counts_samples() {
            return None;
        }
        // Nothing panics while it is held.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let at = open.iter().position(|(number, _)| *number == file)?;
        let found = open.remove(at).expect("it is there");
        open.push_back(found.clone());
        Some(found.1)
    }

    /// Opens the file where it is or its copy; kept open if it has several samples.
    fn opened(&self, file: usize, path: &Path, held: Option<Held>) -> Result<Arc<InUse>, String> {
        let at = held.as_ref().map_or(path, Held::path);
        let opened = Opened::open(at, &self.layout)?;
        let in_use = Arc::new(InUse { opened, held });
        if self.layout.counts_samples() {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            let oldest = (open.len() >= OPEN_MAX).then(|| open.pop_front());
            open.push_back((file, Arc::clone(&in_use)));
            drop(open);
            drop(oldest);
        }
        Ok(in_use)
    }

    /// What the file is now.
    fn stamp(&self, path: &Path) -> Result<Stamp, DataError> {
        let metadata = std::fs::metadata(path);
        let metadata = metadata.map_err(|error| DataError::of_system(path, &error))?;
        Ok(Stamp::of(&metadata))
    }

    /// Reads the numbers; what is wrong with the sample.
    fn numbers(
        &self,
        sample: usize,
        opened: &Opened,
        rooms: &mut [Room<'_>],
    ) -> Result<(), String> {
        let (file, at) = self.files.place(sample);
        if self.layout.counts_samples() {
            let (now, known) = (opened.samples(&self.layout)?, self.files.samples_of(file));
            if now != known {
                return Err(format!("it has {now} samples, and {known} were counted"));
            }
        }
        let check = !self.checked.has(sample);
        let items = self.layout.items().iter().zip(&self.fields).zip(rooms);
        for (number, ((item, field), room)) in items.enumerate() {
            let before = room.before();
            opened.read(number, item, field, at, check, room)?;
            if check {
                field.check(&room.bytes()[before..])?;
            }
        }
        Ok(())
    }
}

/// The layout and what the first file that can be read has.
fn first_readable(
    folder: &Path,
    names: &[Box<str>],
    layout: Option<&Layout>,
) -> Result<(Layout, Vec<Field>), DataError> {
    let mut first_error = None;
    for name in names.iter().take(TRIED_MAX) {
        let path = folder.join(&**name);
        let fitting = match layout {
            Some(layout) => Ok(layout.clone()),
            None => fitting(&path),
        };
        let found = fitting.and_then(|layout| {
            let fields = Opened::open(&path, &layout).and_then(|opened| opened.fields(&layout))?;
            Ok((layout, fields))
        });
        match found {
            Ok(found) => return Ok(found),
            Err(reason) => {
                first_error.get_or_insert((path, reason));
            }
        }
    }
    let (path, reason) = first_error.expect("there is a file, and it is not readable");
    let others = match names.len().min(TRIED_MAX) {
        1 => String::new(),
        tried => format!("; nor can the next {} be used", tried - 1),
    };
    Err(DataError::file(&path, format!("{reason}{others}")))
}

/// The named layout that a file has.
fn fitting(path: &Path) -> Result<Layout, String> {
    let there = file::datasets(path)?;
    let fits = |layout: &Layout| {
        let has = |name: &String| there.contains(name);
        layout.items().iter().all(|item| has(&item.dataset))
    };
    Layout::named().find(fits).ok_or_else(|| {
        let names = listed(there.iter().map(String::as_str));
        let example = there.first().map_or("data", String::as_str);
        format!(
            "its data sets are those of no known layout: it has {names}; say which become fields, as in \"image={example}:f32\""
        )
    })
}

/// Whether a file of this name has samples.
pub(crate) fn has_samples(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    let ending = last.rsplit_once('.').map_or("", |(_, ending)| ending);
    ENDINGS.contains(&ending) && !NO_SAMPLES.contains(&last)
}

impl Source for Hdf5Folder {
    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn len(&self) -> usize {
        self.files.samples()
    }

    fn name(&self, sample: usize) -> String {
        self.files.sample_name(sample)
    }

    fn read(&self, sample: usize, rooms: &mut [Room<'_>]) -> Result<(), DataError> {
        let (file, _) = self.files.place(sample);
        let path = self.files.path(file);
        let changed = || DataError::changed(&path);
        let kept = self.kept(file);
        let held = match (&kept, &self.cache) {
            (None, Some(cache)) => Some(cache.file(&path)?),
            _ => None,
        };
        let kept_copy = kept.as_ref().and_then(|kept| kept.copied());
        let copied = kept_copy.or_else(|| held.as_ref().and_then(copied));
        // Of a copy it is not asked again what the file is.
        let stamp = || copied.map_or_else(|| self.stamp(&path), Ok);
        if !self.stamps.has(file) {
            let stamp = stamp()?;
            if let Some(bytes) = self.files.bytes(file).filter(|bytes| *bytes != stamp.bytes) {
                let reason = format!(
                    "it has {} bytes, and the manifest says {bytes}: it was cut or written since; fetch it, or write the manifest, again",
                    stamp.bytes
                );
                return Err(unusable(self, sample, reason));
            }
            if !self.stamps.are(file, stamp) {
                return Err(changed());
            }
        }
        let opened = kept.map_or_else(|| self.opened(file, &path, held), Ok);
        let read = opened.and_then(|in_use| self.numbers(sample, &in_use.opened, rooms));
        // What was read while somebody wrote is not believed, nor blamed on the sample.
        if !self.stamps.are(file, stamp()?) {
            return Err(changed());
        }
        read.map_err(|reason| unusable(self, sample, reason))?;
        self.checked.add(sample);
        Ok(())
    }

    fn files(&self, samples: Range<usize>) -> Vec<PathBuf> {
        self.files.paths(samples)
    }
}

#[cfg(test)]
mod tests;
