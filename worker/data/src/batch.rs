//! Batches: columns of samples, in memory that somebody else chooses.

use crate::{Appended, DataError, Field, Room, Source};

/// Memory of a column.
pub trait Place {
    /// Its bytes.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// Gives back what is behind the first `rows` rows of the field that it was made for.
    fn keep(&mut self, field: &Field, rows: usize);
}

impl Place for Vec<u8> {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }

    fn keep(&mut self, field: &Field, rows: usize) {
        self.truncate(rows * field.row_bytes());
        self.shrink_to_fit();
    }
}

/// Gives memory for columns: main memory, page-locked memory, a tensor's.
pub trait Places {
    /// What it gives.
    type Place: Place;

    /// Memory for `rows` rows of a field: `rows × field.row_bytes()` bytes, whatever is in them. Where rows vary it
    /// is for as many as there may be, and what is not needed is [given back](Place::keep).
    ///
    /// # Errors
    /// There is not so much.
    fn place(&mut self, field: &Field, rows: usize) -> Result<Self::Place, DataError>;
}

/// Main memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {}

impl Places for Memory {
    type Place = Vec<u8>;

    fn place(&mut self, field: &Field, rows: usize) -> Result<Vec<u8>, DataError> {
        let bytes = field.rows_bytes(rows);
        match isize::try_from(bytes) {
            Ok(_) => Ok(vec![0; bytes]),
            Err(_) => Err(DataError::Memory(format!(
                "{rows} rows of {field} take more memory than there can be"
            ))),
        }
    }
}

/// A field of several samples, one after the other.
#[derive(Debug)]
pub struct Column<P> {
    /// The field.
    pub field: Field,
    /// The numbers, as on disk.
    pub values: P,
    /// Where the rows of each sample begin, and at last where they end, if their number varies.
    pub offsets: Option<Vec<usize>>,
}

/// Samples as columns.
#[derive(Debug)]
pub struct Batch<P> {
    /// Numbers of the samples, in the order of the rows.
    pub samples: Vec<usize>,
    /// One for each field.
    pub columns: Vec<Column<P>>,
}

impl<P> Batch<P> {
    /// The column of this name.
    pub fn column(&self, name: &str) -> Option<&Column<P>> {
        self.columns.iter().find(|column| column.field.name == name)
    }
}

/// Most bytes that a batch of so many samples takes; `usize::MAX` where there are more than can be counted.
pub fn batch_bytes(fields: &[Field], samples: usize) -> usize {
    let sample = fields.iter().map(Field::bytes_max);
    sample
        .fold(0, usize::saturating_add)
        .saturating_mul(samples)
}

/// Rows that are filled one after the other, each by one sample.
#[derive(Debug)]
pub struct Filling<'a> {
    columns: Vec<Part<'a>>,
    rows: usize,
}

/// A field of the rows.
#[derive(Debug)]
struct Part<'a> {
    bytes: &'a mut [u8],
    row_bytes: usize,
    /// Of a field whose rows vary: bytes that are filled, and where the rows of each sample end.
    varying: Option<(usize, Vec<usize>)>,
}

impl<'a> Filling<'a> {
    /// Of these fields in this memory, for as many samples as it has room for.
    pub(crate) fn new(fields: &[Field], places: impl Iterator<Item = &'a mut [u8]>) -> Self {
        let part = |(field, bytes): (&Field, &'a mut [u8])| Part {
            bytes,
            row_bytes: field.row_bytes(),
            varying: field.varies().then(|| (0, vec![0])),
        };
        Self {
            columns: fields.iter().zip(places).map(part).collect(),
            rows: 0,
        }
    }

    /// How many are filled.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Fills the next row by `read`, which is given a room for each field. After an error it is as before.
    ///
    /// # Errors
    /// Those of `read`.
    ///
    /// # Panics
    /// If all rows are filled.
    pub fn next<E>(
        &mut self,
        read: impl FnOnce(&mut [Room<'_>]) -> Result<(), E>,
    ) -> Result<(), E> {
        let row = self.rows;
        let rooms = self.columns.iter_mut().map(|part| match &mut part.varying {
            None => Room::One(&mut part.bytes[row * part.row_bytes..][..part.row_bytes]),
            Some((filled, _)) => Room::Varying(Appended::new(part.bytes, filled)),
        });
        let mut rooms: Vec<Room<'_>> = rooms.collect();
        let read = read(&mut rooms);
        self.rows += usize::from(read.is_ok());
        for part in &mut self.columns {
            let row_bytes = part.row_bytes.max(1);
            if let Some((filled, ends)) = &mut part.varying {
                match read {
                    Ok(()) => ends.push(*filled / row_bytes),
                    Err(_) => *filled = ends[row] * part.row_bytes,
                }
            }
        }
        read
    }

    /// Where the rows of each sample begin, and at last where they end, field by field.
    fn offsets(self) -> Vec<Option<Vec<usize>>> {
        let ends = |part: Part<'_>| part.varying.map(|(_, ends)| ends);
        self.columns.into_iter().map(ends).collect()
    }
}

/// Reads samples, in this order; a number may occur more than once.
///
/// # Errors
/// A number that the source does not have, a sample that cannot be read, no memory.
pub fn read_batch<P: Places>(
    source: &dyn Source,
    samples: &[usize],
    places: &mut P,
) -> Result<Batch<P::Place>, DataError> {
    let (fields, len) = (source.fields(), source.len());
    if let Some(sample) = samples.iter().find(|sample| **sample >= len) {
        let asked = format!("there are samples 0..{len}, asked for {sample}");
        return Err(DataError::Asked(asked));
    }
    let place = |field: &Field| places.place(field, field.rows_max() * samples.len());
    let mut placed = fields.iter().map(place).collect::<Result<Vec<_>, _>>()?;
    let mut filling = Filling::new(fields, placed.iter_mut().map(Place::bytes_mut));
    source.read_many(samples, &mut filling)?;
    assert_eq!(filling.rows(), samples.len(), "each sample fills a row");
    let offsets = filling.offsets();
    let columns = fields.iter().zip(placed).zip(offsets);
    let columns = columns.map(|((field, mut values), offsets)| {
        if let Some(rows) = offsets.as_ref().and_then(|offsets| offsets.last()) {
            values.keep(field, *rows);
        }
        Column {
            field: field.clone(),
            values,
            offsets,
        }
    });
    Ok(Batch {
        columns: columns.collect(),
        samples: samples.into(),
    })
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::Kind;

    /// Sample `n` has the number `n` and `n % 3` rows of two bytes; sample 13 is damaged, 99 panics.
    pub struct Numbers(pub [Field; 2], usize);

    impl Numbers {
        pub fn new() -> Self {
            Self::of(100)
        }

        /// The first of them.
        pub fn of(samples: usize) -> Self {
            let fields = [
                Field::new("number", Kind::I32, &[]),
                Field::varying("rows", Kind::U8, &[2], 2),
            ];
            Self(fields, samples)
        }
    }

    impl Source for Numbers {
        fn fields(&self) -> &[Field] {
            &self.0
        }

        fn len(&self) -> usize {
            self.1
        }

        fn name(&self, sample: usize) -> String {
            format!("the number {sample}")
        }

        fn read(&self, sample: usize, rooms: &mut [Room<'_>]) -> Result<(), DataError> {
            assert_ne!(sample, 99, "unlucky");
            let [Room::One(number), Room::Varying(rows)] = rooms else {
                panic!("{rooms:?}");
            };
            if sample == 13 {
                return Err(crate::source::unusable(self, sample, "unlucky"));
            }
            number.copy_from_slice(&(sample as i32).to_le_bytes());
            for row in 0..sample % 3 {
                rows.extend_from_slice(&[row as u8, sample as u8]);
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::Numbers;
    use super::*;

    #[test]
    fn columns_hold_samples_in_the_order_asked_for() {
        let batch = read_batch(&Numbers::new(), &[4, 3, 5, 4], &mut Memory {}).unwrap();
        assert_eq!(batch.samples, [4, 3, 5, 4]);
        let [number, rows] = &batch.columns[..] else {
            panic!("{batch:?}");
        };
        assert_eq!(
            number.values,
            [4, 0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0, 4, 0, 0, 0]
        );
        assert_eq!(number.offsets, None);
        assert_eq!(rows.values, [0, 4, 0, 5, 1, 5, 0, 4]);
        assert_eq!(rows.offsets.as_deref(), Some(&[0, 1, 1, 3, 4][..]));
        assert_eq!(batch_bytes(&Numbers::new().0, 3), 3 * 8);
        let endless = Field::new("endless", Kind::F32, &[1 << 60, 2]);
        assert_eq!(
            batch_bytes(&[endless.clone(), endless.clone()], 3),
            usize::MAX
        );
        let text = Memory {}.place(&endless, 1).unwrap_err().to_string();
        assert_eq!(
            text,
            format!("1 rows of {endless} take more memory than there can be")
        );
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let read = |samples: &[usize]| read_batch(&Numbers::new(), samples, &mut Memory {});
        let text = read(&[1, 13]).unwrap_err().to_string();
        assert_eq!(text, "sample 13, the number 13: unlucky");
        let text = read(&[100]).unwrap_err().to_string();
        assert_eq!(text, "there are samples 0..100, asked for 100");
        assert!(read(&[]).unwrap().columns[0].values.is_empty());
    }
}
