//! Where samples come from.

use crate::{DataError, Field};

/// Where a field of one sample is written to.
#[derive(Debug)]
pub enum Room<'a> {
    /// Of a field that has one shape: exactly its bytes.
    One(&'a mut [u8]),
    /// Of a field whose rows vary: they are added at the end.
    Varying(&'a mut Vec<u8>),
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
        Room::Varying(rows) => {
            let before = rows.len();
            rows.resize(before + bytes, 0);
            &mut rows[before..]
        }
    }
}
