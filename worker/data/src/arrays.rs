//! Arrays of NumPy: a file `.npy`, several in a folder, or the entries of a file `.npz`. The first extent of
//! every array counts samples; each array is a field with the name of its file or entry.

use std::io::{self, ErrorKind, Read, Seek};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use npyz::{DType, Endianness, NpyHeader, Order, TypeChar};
use zip::{CompressionMethod, ZipArchive};

use crate::convert::{Stored, convert};
use crate::files::list;
use crate::layout::{First, Item};
use crate::names::{listed, nearest, perhaps};
use crate::once::Checked;
use crate::origin::Origin;
use crate::ragged::Ragged;
use crate::source::{placed, unusable};
use crate::{Cache, DataError, Field, Layout, Room, Rows, Source};

/// Most bytes of compressed entries: they are kept in memory, since nothing inside them can be found without
/// all that is before.
const INFLATED_BYTES_MAX: u64 = 4 << 30;

/// Most bytes of an array's description.
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// Open arrays of the same number of samples.
#[derive(Debug)]
pub struct Arrays {
    path: PathBuf,
    files: Vec<Opened>,
    /// One for each field.
    arrays: Vec<Array>,
    fields: Vec<Field>,
    samples: usize,
    checked: Checked,
}

#[derive(Debug)]
struct Opened(Origin);

#[derive(Debug)]
struct Array {
    name: String,
    /// Number of its file.
    file: usize,
    /// Extents, with that of the samples.
    shape: Vec<usize>,
    stored: Stored,
    is_big_endian: bool,
    numbers: Numbers,
    /// Of one that holds the rows of several samples, with the most of a sample.
    ragged: Option<(Ragged, usize)>,
}

/// Where the numbers of an array are.
#[derive(Debug)]
enum Numbers {
    /// In its file, from this place on.
    File(u64),
    /// In memory: they are compressed in the file.
    Memory(Vec<u8>),
}

impl Arrays {
    /// Opens a file, or all files `.npy` of a folder. Without a layout all arrays are fields, with the kind that
    /// holds their numbers.
    ///
    /// # Errors
    /// A file that is missing, of another form, cut or damaged; arrays of objects or text, in Fortran's order,
    /// or with different numbers of samples; compressed ones of more than 4 GiB; a layout that does not fit.
    pub fn open(path: &Path, layout: Option<&Layout>) -> Result<Self, DataError> {
        let metadata =
            std::fs::metadata(path).map_err(|error| DataError::of_system(path, &error))?;
        let (mut files, mut arrays) = (Vec::new(), Vec::new());
        if metadata.is_dir() {
            let mut names = list(path)?;
            names.retain(|name| name.ends_with(".npy"));
            for name in names {
                let opened = Opened::open(&path.join(&name))?;
                let name = name.strip_suffix(".npy").unwrap_or(&name);
                arrays.push(opened.array(name, files.len())?);
                files.push(opened);
            }
        } else {
            let opened = Opened::open(path)?;
            arrays = opened.arrays()?;
            files.push(opened);
        }
        let refused = |reason: String| DataError::file(path, reason);
        if arrays.is_empty() {
            return Err(refused("there is no array in it".into()));
        }
        let items = match layout {
            Some(layout) => layout.items().to_vec(),
            None => arrays.iter().map(as_it_is).collect(),
        };
        let mut fields = Vec::new();
        let mut of_fields = Vec::new();
        for item in &items {
            let ragged = match &item.first {
                First::Ragged { most, offsets } => {
                    let begins = found(offsets, &arrays).map_err(refused)?;
                    Some((whole_numbers(&arrays[begins], &files)?, *most))
                }
                _ => None,
            };
            let (array, field) = chosen(item, ragged, &mut arrays).map_err(refused)?;
            of_fields.push(array);
            fields.push(field);
        }
        let arrays = of_fields;
        let samples = samples(&arrays).map_err(refused)?;
        Ok(Self {
            path: path.into(),
            checked: Checked::new(samples),
            files,
            arrays,
            fields,
            samples,
        })
    }

    /// The same, read from copies that the cache makes of its files when the first sample is read. What is
    /// compressed is in memory already.
    #[must_use]
    pub fn cached(mut self, cache: Option<&Arc<Cache>>) -> Self {
        if let Some(cache) = cache {
            self.files.iter_mut().for_each(|file| file.0.cache(cache));
        }
        self
    }

    /// Reads a sample of one array.
    fn numbers(
        &self,
        (array, field): (&Array, &Field),
        sample: usize,
        room: &mut Room<'_>,
    ) -> Result<Result<(), String>, DataError> {
        let rows = match &array.ragged {
            None => sample..sample + 1,
            Some((ragged, most)) => match ragged.rows(sample, *most) {
                Ok(rows) => rows,
                Err(reason) => return Ok(Err(format!("{:?} {reason}", array.name))),
            },
        };
        let bytes = rows.len() * array.row_bytes();
        let at = rows.start * array.row_bytes();
        let into = placed(room, rows.len() * field.row_bytes());
        let get = |into: &mut [u8]| match &array.numbers {
            Numbers::Memory(numbers) => {
                into.copy_from_slice(&numbers[at..at + bytes]);
                Ok(())
            }
            Numbers::File(begin) => self.files[array.file].read(into, begin + at as u64),
        };
        if array.stored.is(field.kind) && !array.is_big_endian {
            get(into)?;
            return Ok(Ok(()));
        }
        let mut stored = vec![0; bytes];
        get(&mut stored)?;
        array.turn(&mut stored);
        let converted = convert(array.stored, &stored, field.kind, into);
        Ok(converted.map_err(|unfit| field.unfit(unfit)))
    }
}

/// A field of all numbers of an array.
fn as_it_is(array: &Array) -> Item {
    Item {
        field: array.name.clone(),
        dataset: array.name.clone(),
        first: First::Samples,
        kind: None,
        classes: None,
    }
}

/// The place of the array of this name.
fn found(name: &str, arrays: &[Array]) -> Result<usize, String> {
    let names = || arrays.iter().map(|array| array.name.as_str());
    names().position(|other| other == name).ok_or_else(|| {
        let (near, there) = (perhaps(nearest(name, names())), listed(names()));
        format!("there is no array {name:?} (or it is a field already){near}; there are {there}")
    })
}

/// The numbers of an array that says where rows begin; `None` if they are not whole.
fn whole_numbers(array: &Array, files: &[Opened]) -> Result<Option<Vec<i64>>, DataError> {
    let bytes = array.shape.iter().product::<usize>() * array.stored.bytes();
    let mut stored = vec![0; bytes];
    match &array.numbers {
        Numbers::Memory(numbers) => stored.copy_from_slice(&numbers[..bytes]),
        Numbers::File(begin) => files[array.file].read(&mut stored, *begin)?,
    }
    array.turn(&mut stored);
    Ok(array.stored.whole_numbers(&stored))
}

/// The array of an item, and its field; of rows of several samples with what says where they begin, and the most.
fn chosen(
    item: &Item,
    ragged: Option<(Option<Vec<i64>>, usize)>,
    arrays: &mut Vec<Array>,
) -> Result<(Array, Field), String> {
    let name = &item.dataset;
    let at = found(name, arrays)?;
    if !item.first.counts_samples() {
        return Err(format!(
            "the first extent of an array counts samples: write {0}={name}[samples] in the layout, or {0}={name}[rows<=64 of BEGINS] for rows whose number varies",
            item.field
        ));
    }
    let mut array = arrays.swap_remove(at);
    let Some((rows, shape)) = array.shape.split_first() else {
        return Err(format!(
            "{name:?} is a single number, so nothing counts samples"
        ));
    };
    if shape.contains(&0) {
        return Err(format!(
            "{name:?} has the shape {:?}: there are no numbers in it",
            array.shape
        ));
    }
    let kind = item.kind.unwrap_or_else(|| array.stored.kind());
    let mut field = Field::new(&item.field, kind, shape);
    field.classes = item.classes;
    if let (Some((begins, most)), First::Ragged { offsets, .. }) = (ragged, &item.first) {
        let ragged = Ragged::new(begins.as_deref(), *rows);
        let ragged = ragged.map_err(|reason| format!("{offsets:?} of {name:?}: {reason}"))?;
        field.rows = Rows::Varying { most };
        array.ragged = Some((ragged, most));
    }
    Ok((array, field))
}

/// The number of samples that all arrays have.
fn samples(arrays: &[Array]) -> Result<usize, String> {
    let (first, rest) = arrays.split_first().expect("a layout has fields");
    let samples = first.samples();
    if let Some(other) = rest.iter().find(|other| other.samples() != samples) {
        let (first, name, others) = (&first.name, &other.name, other.samples());
        return Err(format!(
            "{first:?} has {samples} samples and {name:?} has {others}"
        ));
    }
    match samples {
        0 => Err("its arrays have no sample".into()),
        _ => Ok(samples),
    }
}

impl Array {
    /// Bytes of a place of the first extent.
    fn row_bytes(&self) -> usize {
        self.shape[1..].iter().product::<usize>() * self.stored.bytes()
    }

    fn samples(&self) -> usize {
        let ragged = self.ragged.as_ref();
        ragged.map_or(self.shape[0], |(ragged, _)| ragged.samples())
    }

    /// Makes numbers little-endian that were read from it.
    fn turn(&self, stored: &mut [u8]) {
        if self.is_big_endian {
            let numbers = stored.chunks_exact_mut(self.stored.bytes());
            numbers.for_each(<[u8]>::reverse);
        }
    }
}

impl Opened {
    fn open(path: &Path) -> Result<Self, DataError> {
        Origin::open(path).map(Self)
    }

    fn of_system(&self, error: &io::Error) -> DataError {
        DataError::of_system(self.0.path(), error)
    }

    fn refused(&self, reason: impl ToString) -> DataError {
        DataError::file(self.0.path(), reason)
    }

    /// The arrays of a file of either form.
    fn arrays(&self) -> Result<Vec<Array>, DataError> {
        let mut head = Vec::new();
        let read = self.0.file().take(4).read_to_end(&mut head);
        read.map_err(|error| self.of_system(&error))?;
        if head == b"PK\x03\x04" || head == b"PK\x05\x06" {
            return self.entries();
        }
        let path = self.0.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        Ok(vec![self.array(&stem, 0)?])
    }

    /// The array of a file `.npy`.
    fn array(&self, name: &str, file: usize) -> Result<Array, DataError> {
        let mut opened = self.0.file();
        let rewound = opened.rewind();
        rewound.map_err(|error| self.of_system(&error))?;
        let (array, header_bytes) =
            described(name, &mut opened).map_err(|reason| self.refused(reason))?;
        self.fits(&array, header_bytes, self.0.stamp().bytes)?;
        let numbers = Numbers::File(header_bytes);
        Ok(Array {
            file,
            numbers,
            ..array
        })
    }

    /// The arrays of a file `.npz`.
    fn entries(&self) -> Result<Vec<Array>, DataError> {
        let damaged = |error: &dyn ToString| {
            self.refused(format!(
                "it is cut short or damaged ({}); fetch it again",
                error.to_string()
            ))
        };
        let mut archive = ZipArchive::new(self.0.file()).map_err(|error| damaged(&error))?;
        let (mut arrays, mut inflated) = (Vec::new(), 0);
        for number in 0..archive.len() {
            let mut entry = archive.by_index(number).map_err(|error| damaged(&error))?;
            let name = entry.name().map_err(|error| damaged(&error))?;
            let Some(name) = name.strip_suffix(".npy").map(str::to_owned) else {
                continue;
            };
            let named = |reason: String| self.refused(format!("entry {name:?}: {reason}"));
            let size = entry.size();
            match entry.compression() {
                CompressionMethod::Stored => {
                    let begin = entry.data_start().ok_or_else(|| damaged(&"no place"))?;
                    let (array, header_bytes) = described(&name, &mut entry).map_err(named)?;
                    self.fits(&array, header_bytes, size)?;
                    if begin
                        .checked_add(size)
                        .is_none_or(|end| end > self.0.stamp().bytes)
                    {
                        return Err(damaged(&"an entry ends behind its end"));
                    }
                    let numbers = Numbers::File(begin + header_bytes);
                    arrays.push(Array { numbers, ..array });
                }
                _ => {
                    inflated += size;
                    if inflated > INFLATED_BYTES_MAX {
                        let reason = "its compressed arrays take more than 4 GiB; save them with `numpy.savez`, or pack them with `tradewind data pack`";
                        return Err(self.refused(reason));
                    }
                    let (array, header_bytes) = described(&name, &mut entry).map_err(named)?;
                    self.fits(&array, header_bytes, size)?;
                    let mut numbers = Vec::new();
                    let read = entry.take(size).read_to_end(&mut numbers);
                    read.map_err(|error| damaged(&error))?;
                    self.fits(&array, 0, numbers.len() as u64)?;
                    let numbers = Numbers::Memory(numbers);
                    arrays.push(Array { numbers, ..array });
                }
            }
        }
        Ok(arrays)
    }

    /// Refuses an array that has fewer bytes than its shape needs.
    fn fits(&self, array: &Array, begin: u64, bytes: u64) -> Result<(), DataError> {
        let need = array
            .shape
            .iter()
            .try_fold(array.stored.bytes(), |all, extent| all.checked_mul(*extent));
        let end = need.and_then(|need| begin.checked_add(need as u64));
        match end.is_some_and(|end| end <= bytes) {
            true => Ok(()),
            false => {
                let (name, shape) = (&array.name, &array.shape);
                let reason = format!(
                    "it is cut short: {name:?} has the shape {shape:?}, and there are {bytes} bytes; fetch it again"
                );
                Err(self.refused(reason))
            }
        }
    }

    fn read(&self, into: &mut [u8], at: u64) -> Result<(), DataError> {
        match self.0.reading()?.read_exact_at(into, at) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(self.changed()),
            Err(error) => Err(self.of_system(&error)),
            Ok(()) => Ok(()),
        }
    }

    fn changed(&self) -> DataError {
        self.refused("it was written or cut while it was read; let nobody write data of a run, and start again")
    }
}

/// A reader that counts.
struct Counting<R> {
    from: R,
    bytes: u64,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.from.read(into)?;
        self.bytes += bytes as u64;
        Ok(bytes)
    }
}

/// Reads the description before an array's numbers, and how long that is.
fn described(name: &str, from: &mut impl Read) -> Result<(Array, u64), String> {
    // From version 2 on its length is a u32, and memory for it is had before it is read.
    let mut begin = Vec::new();
    let read = from.take(12).read_to_end(&mut begin);
    read.map_err(|error| format!("it cannot be read ({error})"))?;
    if let [_, b'N', b'U', b'M', b'P', b'Y', 2..=255, _, length @ ..] = &begin[..]
        && let Some(length) = length.first_chunk()
        && u64::from(u32::from_le_bytes(*length)) > HEADER_BYTES_MAX
    {
        return Err("its header is longer than that of any array; it is damaged".into());
    }
    let mut counting = Counting {
        from: (&begin[..]).chain(from).take(HEADER_BYTES_MAX),
        bytes: 0,
    };
    let header = NpyHeader::from_reader(&mut counting)
        .map_err(|error| format!("it is no array of NumPy, or damaged ({error})"))?;
    let DType::Plain(number) = header.dtype() else {
        return Err(format!(
            "{name:?} is an array of records; save each of them as an array"
        ));
    };
    let stored = match (number.type_char(), number.size_field()) {
        (TypeChar::Bool, 1) => Stored::Bool,
        (TypeChar::Uint, 1) => Stored::U8,
        (TypeChar::Uint, 2) => Stored::U16,
        (TypeChar::Uint, 4) => Stored::U32,
        (TypeChar::Uint, 8) => Stored::U64,
        (TypeChar::Int, 1) => Stored::I8,
        (TypeChar::Int, 2) => Stored::I16,
        (TypeChar::Int, 4) => Stored::I32,
        (TypeChar::Int, 8) => Stored::I64,
        (TypeChar::Float, 2) => Stored::F16,
        (TypeChar::Float, 4) => Stored::F32,
        (TypeChar::Float, 8) => Stored::F64,
        _ => {
            return Err(format!(
                "{name:?} has the type {number}, which is no number that is understood"
            ));
        }
    };
    let shape: Result<Vec<usize>, _> = header
        .shape()
        .iter()
        .map(|extent| (*extent).try_into())
        .collect();
    let shape = shape.map_err(|_| format!("{name:?} is larger than memory can be"))?;
    if header.order() == Order::Fortran && shape.len() > 1 {
        return Err(format!(
            "{name:?} is stored in Fortran's order; save `numpy.ascontiguousarray` of it"
        ));
    }
    let array = Array {
        name: name.into(),
        file: 0,
        shape,
        stored,
        is_big_endian: number.endianness() == Endianness::Big,
        numbers: Numbers::File(0),
        ragged: None,
    };
    Ok((array, counting.bytes))
}

impl Source for Arrays {
    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn len(&self) -> usize {
        self.samples
    }

    fn name(&self, sample: usize) -> String {
        format!("{} [{sample}]", self.path.display())
    }

    fn read(&self, sample: usize, rooms: &mut [Room<'_>]) -> Result<(), DataError> {
        assert!(
            sample < self.samples,
            "{sample} of {} samples",
            self.samples
        );
        let check = !self.checked.has(sample);
        for ((array, field), room) in self.arrays.iter().zip(&self.fields).zip(rooms) {
            let before = room.before();
            let read = self.numbers((array, field), sample, room)?;
            let checked = read.and_then(|()| match check {
                true => field.check(&room.bytes()[before..]),
                false => Ok(()),
            });
            checked.map_err(|reason| unusable(self, sample, reason))?;
        }
        for file in &self.files {
            if !file.0.is_unchanged()? {
                return Err(file.changed());
            }
        }
        self.checked.add(sample);
        Ok(())
    }

    fn files(&self, samples: Range<usize>) -> Vec<PathBuf> {
        match samples.is_empty() {
            true => Vec::new(),
            false => self.files.iter().map(|file| file.0.path().into()).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
