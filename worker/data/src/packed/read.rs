//! Reading packed files.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Compression, Description, END, Entries, MAGIC, Section, restored};
use crate::once::Checked;
use crate::origin::Origin;
use crate::source::{placed, unusable};
use crate::{Cache, DataError, Field, Room, Rows, Source};

/// An open packed file. A sample's checksum is compared when it is read for the first time.
#[derive(Debug)]
pub struct Packed {
    origin: Origin,
    pub(super) description: Description,
    entries: Entries,
    index: Vec<u8>,
    /// Where each sample came from.
    names: Vec<Box<str>>,
    checked: Checked,
}

/// Where a sample is, from the index.
pub(super) struct Entry {
    pub(super) begin: u64,
    crc32: u32,
    /// Of fields whose rows vary, then, with compression, stored bytes of all fields.
    numbers: Vec<u32>,
}

impl Packed {
    /// Opens a file; samples are not read.
    ///
    /// # Errors
    /// A file that is missing, of another form, cut short or damaged.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let failed = |error: io::Error| DataError::of_system(path, &error);
        let origin = Origin::open(path)?;
        let (file, bytes) = (origin.file(), origin.stamp().bytes);
        let refused = |reason: &str| DataError::file(path, reason);
        let mut head = [0; 8];
        match file.read_exact_at(&mut head, 0) {
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => return Err(failed(error)),
            read if read.is_err() || head != *MAGIC => {
                return Err(refused(
                    "it is no packed file of samples; `tradewind data pack` makes one",
                ));
            }
            _ => {}
        }
        let cut = || refused("it is cut short or damaged at its end; copy or pack it again");
        let mut end = [0; END];
        let end_at = bytes.checked_sub(END as u64).ok_or_else(cut)?;
        file.read_exact_at(&mut end, end_at).map_err(failed)?;
        let number = |at: usize| u32::from_le_bytes(end[at..at + 4].try_into().expect("four"));
        let length = u64::from(number(4));
        if end[8..] != *MAGIC || length > end_at {
            return Err(cut());
        }
        let mut text = vec![0; length as usize];
        file.read_exact_at(&mut text, end_at - length)
            .map_err(failed)?;
        if crc32fast::hash(&text) != number(0) {
            return Err(cut());
        }
        let description: Description = serde_json::from_slice(&text)
            .map_err(|error| refused(&format!("its description cannot be read: {error}")))?;
        let index = section(file, description.index, bytes).map_err(failed)?;
        let index = index.ok_or_else(|| refused("its index is damaged; copy or pack it again"))?;
        let names = section(file, description.names, bytes).map_err(failed)?;
        let names = names.and_then(|names| String::from_utf8(names).ok());
        let names = names.ok_or_else(|| refused("its names are damaged; copy or pack it again"))?;
        let names: Vec<Box<str>> = names.lines().map(Box::from).collect();
        let entries = Entries::of(&description.fields, description.compression);
        let samples = description.samples as usize;
        if samples.checked_mul(entries.bytes()) != Some(index.len()) || names.len() != samples {
            return Err(refused(
                "its index or its names have another length than its samples need",
            ));
        }
        let packed = Self {
            checked: Checked::new(samples),
            entries,
            index,
            names,
            description,
            origin,
        };
        match (0..packed.len()).all(|sample| packed.is_within(&packed.entry(sample))) {
            true => Ok(packed),
            false => Err(refused("its index names places outside of the file")),
        }
    }

    /// The same, of which records are read from a copy that the cache makes when the first is read. What is
    /// written to the file after that is not seen.
    #[must_use]
    pub fn cached(mut self, cache: Option<&Arc<Cache>>) -> Self {
        if let Some(cache) = cache {
            self.origin.cache(cache);
        }
        self
    }

    /// Whether a record is in the file, and its rows are as many as there may be.
    fn is_within(&self, entry: &Entry) -> bool {
        let most = self.fields().iter().filter_map(|field| match field.rows {
            Rows::Varying { most } => Some(most),
            Rows::One => None,
        });
        let rows = &entry.numbers[..self.entries.varying];
        let stored: u64 = self
            .sizes(entry)
            .iter()
            .map(|(_, stored)| *stored as u64)
            .sum();
        let end = entry.begin.checked_add(stored);
        end.is_some_and(|end| end <= self.bytes())
            && rows
                .iter()
                .zip(most)
                .all(|(rows, most)| *rows as usize <= most)
    }

    /// How records are stored.
    pub fn compression(&self) -> Compression {
        self.description.compression
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.origin.stamp().bytes
    }

    pub(super) fn entry(&self, sample: usize) -> Entry {
        let bytes = self.entries.bytes();
        let entry = &self.index[sample * bytes..(sample + 1) * bytes];
        let (head, numbers) = entry.split_at(12);
        Entry {
            begin: u64::from_le_bytes(head[..8].try_into().expect("eight")),
            crc32: u32::from_le_bytes(head[8..].try_into().expect("four")),
            numbers: numbers
                .as_chunks::<4>()
                .0
                .iter()
                .map(|one| u32::from_le_bytes(*one))
                .collect(),
        }
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> Result<(), DataError> {
        match self.origin.reading()?.read_exact_at(into, at) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(self.changed()),
            Err(error) => Err(DataError::of_system(self.origin.path(), &error)),
            Ok(()) => Ok(()),
        }
    }

    fn changed(&self) -> DataError {
        let reason = "it was written or cut while it was read; let nobody write data of a run, and start again";
        DataError::file(self.origin.path(), reason)
    }

    /// The bytes of each field: in memory, and stored.
    pub(super) fn sizes(&self, entry: &Entry) -> Vec<(usize, usize)> {
        let mut rows = entry.numbers[..self.entries.varying].iter();
        let mut stored = entry.numbers[self.entries.varying..].iter();
        let fields = self.description.fields.iter();
        fields
            .map(|field| {
                let bytes = match field.varies() {
                    true => (*rows.next().expect("one for each") as usize)
                        .saturating_mul(field.row_bytes()),
                    false => field.row_bytes(),
                };
                let stored = stored.next().map_or(bytes, |stored| *stored as usize);
                (bytes, stored)
            })
            .collect()
    }

    /// Reads the record into the rooms; its checksum.
    fn plain(&self, entry: &Entry, rooms: &mut [Room<'_>], check: bool) -> Result<u32, DataError> {
        let mut crc = crc32fast::Hasher::new();
        let mut at = entry.begin;
        for ((bytes, _), room) in self.sizes(entry).into_iter().zip(rooms) {
            let into = placed(room, bytes);
            self.read_at(into, at)?;
            if check {
                crc.update(into);
            }
            at += bytes as u64;
        }
        Ok(crc.finalize())
    }

    /// The same of a record that is compressed: `None` if it cannot be restored.
    fn compressed(
        &self,
        entry: &Entry,
        rooms: &mut [Room<'_>],
    ) -> Result<(u32, Option<()>), DataError> {
        let sizes = self.sizes(entry);
        let mut record = vec![0; sizes.iter().map(|(_, stored)| stored).sum()];
        self.read_at(&mut record, entry.begin)?;
        let crc32 = crc32fast::hash(&record);
        let (mut at, mut bytes_of) = (0, Vec::new());
        for ((field, room), (bytes, stored)) in self.description.fields.iter().zip(rooms).zip(sizes)
        {
            let into = placed(room, bytes);
            bytes_of.resize(bytes, 0);
            let restoring =
                lz4_flex::block::decompress_into(&record[at..at + stored], &mut bytes_of);
            if restoring.ok() != Some(bytes) {
                return Ok((crc32, None));
            }
            restored(&bytes_of, field.kind.bytes(), into);
            at += stored;
        }
        Ok((crc32, Some(())))
    }
}

/// The bytes of a section, if they are whole.
fn section(file: &File, section: Section, file_bytes: u64) -> io::Result<Option<Vec<u8>>> {
    let Section {
        begin,
        bytes,
        crc32,
    } = section;
    if begin.checked_add(bytes).is_none_or(|end| end > file_bytes) {
        return Ok(None);
    }
    let mut content = vec![0; bytes as usize];
    file.read_exact_at(&mut content, begin)?;
    Ok((crc32fast::hash(&content) == crc32).then_some(content))
}

impl Source for Packed {
    fn fields(&self) -> &[Field] {
        &self.description.fields
    }

    fn len(&self) -> usize {
        self.description.samples as usize
    }

    /// The file, the place in it, and where the sample came from.
    fn name(&self, sample: usize) -> String {
        let (name, begin) = (&self.names[sample], self.entry(sample).begin);
        format!("{} at byte {begin} ({name})", self.origin.path().display())
    }

    fn read(&self, sample: usize, rooms: &mut [Room<'_>]) -> Result<(), DataError> {
        let entry = self.entry(sample);
        let check = !self.checked.has(sample);
        let (crc32, whole) = match self.description.compression {
            Compression::None => (self.plain(&entry, rooms, check)?, Some(())),
            Compression::Lz4 => self.compressed(&entry, rooms)?,
        };
        if !self.origin.is_unchanged()? {
            return Err(self.changed());
        }
        if whole.is_none() || (check && crc32 != entry.crc32) {
            let reason = "its checksum does not fit; copy or pack the file again";
            return Err(unusable(self, sample, reason));
        }
        if check {
            self.checked.add(sample);
        }
        Ok(())
    }

    fn files(&self, samples: Range<usize>) -> Vec<PathBuf> {
        match samples.is_empty() {
            true => Vec::new(),
            false => vec![self.origin.path().into()],
        }
    }
}
