//! Where samples come from.

use std::ops::{Deref, Range};
use std::path::PathBuf;

use crate::{DataError, Field, Filling};

/// Where a field of one sample is written to.
#[derive(Debug)]
pub enum Room<'a> {
    /// Of a field that has one shape: exactly its bytes.
    One(&'a mut [u8]),
    /// Of a field whose rows vary: they are added at the end.
    Varying(Appended<'a>),
}

impl Room<'_> {
    /// How many bytes were written to it before, by other samples.
    pub(crate) fn before(&self) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Varying(rows) => rows.len(),
        }
    }

    /// What is in it.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::One(place) => place,
            Self::Varying(rows) => rows,
        }
    }
}

/// Rows one after the other, in memory that has room for as many as there may be.
#[derive(Debug)]
pub struct Appended<'a> {
    place: &'a mut [u8],
    filled: &'a mut usize,
}

impl<'a> Appended<'a> {
    /// In this memory, of which so many bytes are filled.
    ///
    /// # Panics
    /// If it has not so many.
    pub fn new(place: &'a mut [u8], filled: &'a mut usize) -> Self {
        assert!(*filled <= place.len(), "{filled} bytes are filled");
        Self { place, filled }
    }

    /// Adds room for so many bytes, whatever is in them.
    ///
    /// # Panics
    /// If a sample has more rows than its field says.
    pub fn add(&mut self, bytes: usize) -> &mut [u8] {
        let (begin, room) = (*self.filled, self.place.len());
        assert!(
            bytes <= room - begin,
            "{bytes} bytes of rows, and {} are left of {room}: a sample has more rows than its field says",
            room - begin
        );
        *self.filled += bytes;
        &mut self.place[begin..begin + bytes]
    }

    /// Adds these bytes.
    ///
    /// # Panics
    /// If a sample has more rows than its field says.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.add(bytes.len()).copy_from_slice(bytes);
    }

    /// Takes back all but the first bytes.
    pub fn truncate(&mut self, bytes: usize) {
        *self.filled = bytes.min(*self.filled);
    }
}

/// What is filled.
impl Deref for Appended<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.place[..*self.filled]
    }
}

/// Numbered samples of the same fields. Read from several threads at once.
pub trait Source: Send + Sync {
    /// What every sample is made of.
    fn fields(&self) -> &[Field];

    /// Number of samples; their numbers are `0..len`.
    fn len(&self) -> usize;

    /// Whether there is no sample.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where a sample is, in words for people: a file, or a place in one.
    fn name(&self, sample: usize) -> String;

    /// Reads a sample: `rooms` has one for each field, in their order.
    ///
    /// # Errors
    /// [`DataError::Sample`] for one that is damaged; [`DataError::File`] where a file is gone or has changed.
    ///
    /// # Panics
    /// May panic if there is no such sample, or if rooms do not fit the fields.
    fn read(&self, sample: usize, rooms: &mut [Room<'_>]) -> Result<(), DataError>;

    /// Reads samples, each into the next row, up to the first error: all rows before that one are filled.
    ///
    /// # Errors
    /// As of [`read`](Self::read).
    ///
    /// # Panics
    /// As [`read`](Self::read).
    fn read_many(&self, samples: &[usize], filling: &mut Filling<'_>) -> Result<(), DataError> {
        let mut samples = samples.iter();
        samples.try_for_each(|sample| filling.next(|rooms| self.read(*sample, rooms)))
    }

    /// The files that these samples are in, in their order and each once; none of a source without files.
    fn files(&self, _samples: Range<usize>) -> Vec<PathBuf> {
        Vec::new()
    }
}

/// The error of a sample of this source.
pub(crate) fn unusable(source: &dyn Source, number: usize, reason: impl ToString) -> DataError {
    DataError::Sample {
        number,
        name: source.name(number),
        reason: reason.to_string(),
    }
}

/// The bytes of a room that a field of so many bytes is written to.
pub(crate) fn placed<'a>(room: &'a mut Room<'_>, bytes: usize) -> &'a mut [u8] {
    match room {
        Room::One(place) => place,
        Room::Varying(rows) => rows.add(bytes),
    }
}
