//! One HDF5 file: its data sets, and reading numbers of them into memory that somebody else has.

use std::io::Read;
use std::ops::Range;
use std::path::Path;

use hdf5_metno::types::{FloatSize, IntSize, TypeDescriptor};
use hdf5_metno::{Dataset, Dataspace, Datatype, File, Group, Hyperslab, SliceOrIndex};
use hdf5_metno_sys::h5d::H5Dread;
use hdf5_metno_sys::h5p::H5P_DEFAULT;
use hdf5_metno_sys::h5s::H5S_ALL;

use crate::convert::{Packing, Stored, convert, unpack};
use crate::layout::{First, Item, Layout};
use crate::names::{listed, natural, nearest, perhaps};
use crate::ragged::Ragged;
use crate::{DataError, Field, Kind, Rows};

/// Most data sets that are gathered for a message.
pub const NAMES_MAX: usize = 64;

/// How deep data sets are looked for: links may make a group its own descendant.
const GROUPS_DEEP_MAX: usize = 8;

/// What the NetCDF library leaves in f32 values that were never written.
pub const NETCDF_FILL: f32 = 9.969_21e36;

/// Attributes of NetCDF's conventions that say how numbers are packed.
const SCALE: &str = "scale_factor";
const OFFSET: &str = "add_offset";

/// An open file, and the data sets of a layout. The library has one lock for all files and threads.
#[derive(Debug)]
pub(super) struct Opened {
    sets: Vec<Set>,
    /// Closed last.
    _file: File,
}

/// One data set.
#[derive(Debug)]
struct Set {
    dataset: Dataset,
    stored: Stored,
    /// Of memory that is read into.
    memory: Datatype,
    shape: Vec<usize>,
    meaning: Meaning,
    /// Of one that holds the rows of several samples.
    ragged: Option<Ragged>,
}

/// What numbers of a data set stand for, as attributes of NetCDF's conventions say. All of it is about numbers as
/// they are stored.
#[derive(Debug, Default)]
struct Meaning {
    packing: Option<Packing>,
    /// Those that stand for missing ones.
    missing: Vec<f64>,
}

impl Meaning {
    fn of(dataset: &Dataset) -> Result<Self, String> {
        let names = dataset.attr_names();
        let names =
            names.map_err(|error| format!("has attributes that cannot be read ({error})"))?;
        let numbers = |name: &str| -> Result<Vec<f64>, String> {
            if !names.iter().any(|other| other == name) {
                return Ok(Vec::new());
            }
            let numbers = dataset
                .attr(name)
                .and_then(|attribute| attribute.read_raw());
            numbers
                .map_err(|error| format!("has an attribute {name} that holds no numbers ({error})"))
        };
        let number = |name: &str| match numbers(name)?[..] {
            [] => Ok(None),
            [number] if number.is_finite() && !(name == SCALE && number == 0.0) => Ok(Some(number)),
            ref numbers => Err(format!(
                "has {name} = {numbers:?}, which cannot be computed with: correct it, as by `ncatted`"
            )),
        };
        let packing = match (number(SCALE)?, number(OFFSET)?) {
            (None, None) => None,
            (scale, offset) => Some(Packing {
                scale: scale.unwrap_or(1.0),
                offset: offset.unwrap_or(0.0),
            }),
        };
        let mut missing = [numbers("_FillValue")?, numbers("missing_value")?].concat();
        if names.iter().any(|name| name == "DIMENSION_LIST") {
            missing.push(f64::from(NETCDF_FILL));
        }
        Ok(Self { packing, missing })
    }
}

/// The names of all data sets of a file, in natural order.
///
/// # Errors
/// The file cannot be opened.
pub(super) fn datasets(path: &Path) -> Result<Vec<String>, String> {
    let file = File::open(path).map_err(|error| why_not_opened(path, &error))?;
    Ok(datasets_of(&file))
}

/// The data sets of a file with their extents, in natural order of their names; at most [`NAMES_MAX`].
///
/// # Errors
/// The file cannot be opened.
pub fn extents(path: &Path) -> Result<Vec<(String, Vec<usize>)>, DataError> {
    let file = File::open(path);
    let file = file.map_err(|error| DataError::file(path, why_not_opened(path, &error)))?;
    let of = |name: String| {
        let dataset = file.dataset(&name).ok()?;
        Some((name, dataset.shape()))
    };
    Ok(datasets_of(&file).into_iter().filter_map(of).collect())
}

/// The names of the data sets in a group and the groups within, in natural order; at most [`NAMES_MAX`].
pub fn datasets_of(group: &Group) -> Vec<String> {
    let mut names = Vec::new();
    gather(group, GROUPS_DEEP_MAX, &mut names);
    names.sort_unstable_by(|a, b| natural(a, b));
    names
}

fn gather(group: &Group, deep: usize, names: &mut Vec<String>) {
    for dataset in group.datasets().unwrap_or_default() {
        if names.len() < NAMES_MAX {
            names.push(dataset.name().trim_start_matches('/').into());
        }
    }
    for inner in group.groups().unwrap_or_default() {
        if deep > 0 && names.len() < NAMES_MAX {
            gather(&inner, deep - 1, names);
        }
    }
}

impl Opened {
    /// Opens a file and the data sets of a layout; no numbers are read.
    ///
    /// # Errors
    /// Why it cannot be used: it is missing, of another form, cut or damaged; it has no such data set, or one
    /// that holds no numbers.
    pub fn open(path: &Path, layout: &Layout) -> Result<Self, String> {
        let file = File::open(path).map_err(|error| why_not_opened(path, &error))?;
        let set = |item: &Item| {
            let name = &item.dataset;
            let dataset = file
                .dataset(name)
                .map_err(|error| missing(path, name, &error))?;
            let set = Set::of(dataset).map_err(|reason| format!("{name:?} {reason}"))?;
            match &item.first {
                First::Ragged { offsets, .. } => {
                    let begins = file
                        .dataset(offsets)
                        .map_err(|error| missing(path, offsets, &error))?;
                    set.ragged(begins)
                        .map_err(|reason| format!("{offsets:?} of {name:?}: {reason}"))
                }
                _ => Ok(set),
            }
        };
        let sets: Result<_, String> = layout.items().iter().map(set).collect();
        Ok(Self {
            sets: sets?,
            _file: file,
        })
    }

    /// The samples in it.
    ///
    /// # Errors
    /// A first extent that should count and is not there, or two that count differently.
    pub fn samples(&self, layout: &Layout) -> Result<usize, String> {
        let mut samples = None;
        for (item, set) in layout.items().iter().zip(&self.sets) {
            if item.first == First::Extent {
                continue;
            }
            let name = &item.dataset;
            let first = set.shape.first();
            let first =
                *first.ok_or_else(|| format!("{name:?} is a single number, so nothing counts"))?;
            if !item.first.counts_samples() {
                continue;
            }
            let first = set.ragged.as_ref().map_or(first, Ragged::samples);
            match samples {
                None => samples = Some((name, first)),
                Some((_, samples)) if samples == first => {}
                Some((other, samples)) => {
                    return Err(format!(
                        "{other:?} has {samples} samples and {name:?} has {first}"
                    ));
                }
            }
        }
        Ok(samples.map_or(1, |(_, samples)| samples))
    }

    /// What a sample in it is made of.
    ///
    /// # Errors
    /// As of [`samples`](Self::samples); a sample without numbers.
    pub fn fields(&self, layout: &Layout) -> Result<Vec<Field>, String> {
        self.samples(layout)?;
        let field = |(item, set): (&Item, &Set)| {
            let skipped = usize::from(item.first != First::Extent);
            let shape = &set.shape[skipped..];
            if shape.contains(&0) {
                let (name, shape) = (&item.dataset, &set.shape);
                return Err(format!(
                    "{name:?} has the shape {shape:?}: there are no numbers in it"
                ));
            }
            let kind = item.kind.unwrap_or_else(|| set.kind());
            set.fits(item, kind)?;
            let mut field = Field::new(&item.field, kind, shape);
            field.classes = item.classes;
            if let First::Rows { most } | First::Ragged { most, .. } = item.first {
                field.rows = Rows::Varying { most };
            }
            Ok(field)
        };
        layout.items().iter().zip(&self.sets).map(field).collect()
    }

    /// Reads a field of a sample of the file; with `check` it is looked for missing numbers.
    ///
    /// # Errors
    /// Another shape than the field has, more rows than it may have, numbers that its kind does not hold or that
    /// are missing, damaged data.
    pub fn read(
        &self,
        number: usize,
        item: &Item,
        field: &Field,
        sample: usize,
        check: bool,
        room: &mut crate::Room<'_>,
    ) -> Result<(), String> {
        let set = &self.sets[number];
        let skipped = usize::from(item.first != First::Extent);
        if set.shape.len() < skipped || set.shape[skipped..] != field.shape {
            let (name, got, want) = (
                &item.dataset,
                &set.shape,
                Expected(&item.first, &field.shape),
            );
            return Err(format!(
                "{name:?} has the shape {got:?}, and it should have {want}"
            ));
        }
        let (selection, rows) = match &item.first {
            First::Extent => (None, 1),
            First::Rows { most } if set.shape[0] > *most => {
                let (name, rows) = (&item.dataset, set.shape[0]);
                let reason = "raise the number in the layout";
                return Err(format!(
                    "{name:?} has {rows} rows, and the layout says at most {most}; {reason}"
                ));
            }
            First::Rows { .. } => (None, set.shape[0]),
            First::Ragged { most, .. } => {
                let ragged = set.ragged.as_ref().expect("it was opened with the layout");
                let rows = ragged.rows(sample, *most);
                let rows = rows.map_err(|reason| format!("{:?} {reason}", item.dataset))?;
                (Some(rows.clone()), rows.len())
            }
            First::Samples if sample >= set.shape[0] => {
                let (name, samples) = (&item.dataset, set.shape[0]);
                return Err(format!("{name:?} has {samples} samples only"));
            }
            First::Samples => (Some(sample..sample + 1), 1),
        };
        let bytes = crate::source::placed(room, rows * field.row_bytes());
        if bytes.is_empty() {
            return Ok(());
        }
        let complete = |stored: &[u8]| {
            let missing = check.then(|| set.stored.first_of(stored, &set.meaning.missing));
            match missing.flatten() {
                Some((at, value)) => Err(field.missing(at, value)),
                None => Ok(()),
            }
        };
        set.fits(item, field.kind)?;
        if set.meaning.packing.is_none() && set.stored.is(field.kind) {
            set.read(selection, bytes)?;
            return complete(bytes);
        }
        let mut stored = vec![0; bytes.len() / field.kind.bytes() * set.stored.bytes()];
        set.read(selection, &mut stored)?;
        complete(&stored)?;
        let converted = match set.meaning.packing {
            None => convert(set.stored, &stored, field.kind, bytes),
            Some(packing) => unpack(packing, set.stored, &stored, field.kind, bytes),
        };
        converted.map_err(|unfit| field.unfit(unfit))
    }
}

/// A shape in words.
struct Expected<'a>(&'a First, &'a [usize]);

impl std::fmt::Display for Expected<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let first = match self.0 {
            First::Extent => None,
            First::Samples => Some("samples".to_owned()),
            First::Rows { .. } | First::Ragged { .. } => Some("rows".to_owned()),
        };
        let extents = self.1.iter().map(ToString::to_string);
        let extents: Vec<_> = first.into_iter().chain(extents).collect();
        write!(out, "[{}]", extents.join(", "))
    }
}

impl Set {
    /// What numbers become where nobody says.
    fn kind(&self) -> Kind {
        match self.meaning.packing {
            None => self.stored.kind(),
            Some(_) => Kind::F32,
        }
    }

    /// Refuses whole numbers for what is packed.
    fn fits(&self, item: &Item, kind: Kind) -> Result<(), String> {
        let is_whole = matches!(kind, Kind::U8 | Kind::I16 | Kind::I32);
        match self.meaning.packing {
            Some(Packing { scale, offset }) if is_whole => {
                let (name, field, kind) = (&item.dataset, &item.field, kind.name());
                Err(format!(
                    "{name:?} is packed ({SCALE} {scale}, {OFFSET} {offset}), so that its numbers are not whole, and {field} is {kind}: write \"{field}={name}:f32\""
                ))
            }
            _ => Ok(()),
        }
    }

    fn of(dataset: Dataset) -> Result<Self, String> {
        let damaged = |error: hdf5_metno::Error| format!("cannot be read: {error}");
        let shape = dataset.get_shape().map_err(damaged)?;
        let descriptor = dataset.dtype().and_then(|stored| stored.to_descriptor());
        let stored = descriptor.as_ref().ok().and_then(stored);
        let stored = stored.ok_or("does not hold numbers")?;
        let memory = descriptor.and_then(|stored| Datatype::from_descriptor(&stored));
        Ok(Self {
            memory: memory.map_err(damaged)?,
            meaning: Meaning::of(&dataset)?,
            dataset,
            stored,
            shape,
            ragged: None,
        })
    }

    /// The same, which holds the rows of several samples; `begins` says where each sample's are.
    fn ragged(self, begins: Dataset) -> Result<Self, String> {
        let begins = Self::of(begins)?;
        let [count] = begins.shape[..] else {
            return Err(format!(
                "has the shape {:?}, and it should have one extent",
                begins.shape
            ));
        };
        let mut stored = vec![0; count * begins.stored.bytes()];
        begins.read(None, &mut stored)?;
        let numbers = begins.stored.whole_numbers(&stored);
        let rows = self.shape.first().copied().unwrap_or(0);
        Ok(Self {
            ragged: Some(Ragged::new(numbers.as_deref(), rows)?),
            ..self
        })
    }

    /// Reads all numbers, or those of some places of the first extent, as they are stored, little-endian.
    fn read(&self, selection: Option<Range<usize>>, into: &mut [u8]) -> Result<(), String> {
        let damaged = |error: hdf5_metno::Error| {
            format!("it is damaged: its numbers cannot be read ({error}); fetch it again")
        };
        let Some(at) = selection else {
            return self.read_selected(None, into).map_err(damaged);
        };
        let mut one = vec![SliceOrIndex::from(..); self.shape.len()];
        one[0] = at.into();
        let reading = self.dataset.space().and_then(|space| {
            let stored = space.select(Hyperslab::from(one))?;
            let memory = Dataspace::try_new(stored.selection_size())?;
            self.read_selected(Some((&memory, &stored)), into)
        });
        reading.map_err(damaged)
    }

    fn read_selected(
        &self,
        spaces: Option<(&Dataspace, &Dataspace)>,
        into: &mut [u8],
    ) -> hdf5_metno::Result<()> {
        let numbers = match spaces {
            Some((memory, _)) => memory.size(),
            None => self.shape.iter().product(),
        };
        assert_eq!(
            into.len(),
            numbers * self.memory.size(),
            "room for all numbers"
        );
        let (memory, stored) = spaces.map_or((H5S_ALL, H5S_ALL), |(memory, stored)| {
            (memory.id(), stored.id())
        });
        let (set, kind, place) = (self.dataset.id(), self.memory.id(), into.as_mut_ptr());
        // SAFETY: the ids are of open objects. The library writes a number of the type `kind` for each place
        // of the selection, which were counted above, and nothing else has the memory meanwhile. Any bytes
        // are numbers of such types.
        let status = hdf5_metno::sync::sync(|| unsafe {
            H5Dread(set, kind, memory, stored, H5P_DEFAULT, place.cast())
        });
        hdf5_metno::h5check(status).map(drop)
    }
}

fn stored(descriptor: &TypeDescriptor) -> Option<Stored> {
    Some(match descriptor {
        TypeDescriptor::Boolean => Stored::Bool,
        TypeDescriptor::Unsigned(IntSize::U1) => Stored::U8,
        TypeDescriptor::Unsigned(IntSize::U2) => Stored::U16,
        TypeDescriptor::Unsigned(IntSize::U4) => Stored::U32,
        TypeDescriptor::Unsigned(IntSize::U8) => Stored::U64,
        TypeDescriptor::Integer(IntSize::U1) => Stored::I8,
        TypeDescriptor::Integer(IntSize::U2) => Stored::I16,
        TypeDescriptor::Integer(IntSize::U4) => Stored::I32,
        TypeDescriptor::Integer(IntSize::U8) => Stored::I64,
        TypeDescriptor::Float(FloatSize::U2) => Stored::F16,
        TypeDescriptor::Float(FloatSize::U4) => Stored::F32,
        TypeDescriptor::Float(FloatSize::U8) => Stored::F64,
        _ => return None,
    })
}

/// Bytes that [`not_hdf5`] looks at.
pub const HEAD_BYTES: u64 = 2056;

/// What a file is instead that is no HDF5 file by its first [`HEAD_BYTES`], and what to do; `None` for one that is.
pub fn not_hdf5(head: &[u8]) -> Option<&'static str> {
    const SIGNATURE: &[u8; 8] = b"\x89HDF\r\n\x1a\n";
    // The signature stands at 0, or behind a user's own block of 512 bytes, 1 KiB, 2 KiB.
    let signed = |at: usize| head.get(at..at + 8) == Some(SIGNATURE);
    if [0, 512, 1024, 2048].into_iter().any(signed) {
        return None;
    }
    Some(match head {
        [] => "it is empty; fetch it again",
        [b'C', b'D', b'F', 1 | 2 | 5, ..] => {
            "it is a classic NetCDF file; `nccopy -k nc4 OLD NEW` converts it"
        }
        [b'G', b'R', b'I', b'B', ..] => "it is a GRIB file; convert it to NetCDF-4",
        [b'v', b'e', b'r', b's', b'i', b'o', b'n', b' ', ..] => {
            "it looks like a Git LFS pointer; fetch the file itself"
        }
        _ => "it does not begin with HDF5's signature; convert it, or fetch it again",
    })
}

/// What is wrong with a file that the library does not open.
fn why_not_opened(path: &Path, error: &hdf5_metno::Error) -> String {
    let mut head = Vec::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    if let Err(error) = read {
        return error.to_string();
    }
    if let Some(hint) = not_hdf5(&head) {
        return format!("it is no HDF5 or NetCDF-4 file: {hint}");
    }
    let text = error.to_string();
    match text.contains("unable to lock file") {
        true => format!("somebody writes it at present ({text})"),
        false => format!("it is damaged or cut short ({text}); fetch it again"),
    }
}

/// Why a data set cannot be opened.
fn missing(path: &Path, name: &str, error: &hdf5_metno::Error) -> String {
    let there = datasets(path).unwrap_or_default();
    if there.iter().any(|other| other == name) {
        return format!("its data set {name:?} is damaged ({error}); fetch the file again");
    }
    let nearest = perhaps(nearest(name, there.iter().map(String::as_str)));
    let there = match there.is_empty() {
        true => "none".into(),
        false => listed(there.iter().map(String::as_str)),
    };
    format!("it has no data set {name:?}{nearest}; it has {there}")
}
