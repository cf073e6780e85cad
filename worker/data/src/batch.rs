//! Batches: columns of samples, in memory that somebody else chooses.

use crate::{DataError, Field, Room, Rows, Source};

/// Memory of a column.
pub trait Place {
    /// Its bytes.
    fn bytes_mut(&mut self) -> &mut [u8];
}

impl Place for Vec<u8> {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// Gives memory for columns: main memory, page-locked memory, a tensor's.
pub trait Places {
    /// What it gives.
    type Place: Place;

    /// Memory for `rows` rows of a field: `rows × field.row_bytes()` bytes, whatever is in them.
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
        Ok(vec![0; rows * field.row_bytes()])
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

/// Most bytes that a batch of so many samples takes.
pub fn batch_bytes(fields: &[Field], samples: usize) -> usize {
    fields.iter().map(Field::bytes_max).sum::<usize>() * samples
}

/// Memory of a field while a batch is read.
enum Filling<P> {
    One(P),
    Varying { rows: Vec<u8>, ends: Vec<usize> },
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
    let mut filling = Vec::with_capacity(fields.len());
    for field in fields {
        filling.push(match field.rows {
            Rows::One => Filling::One(places.place(field, samples.len())?),
            Rows::Varying { .. } => Filling::Varying {
                rows: Vec::new(),
                ends: vec![0],
            },
        });
    }
    for (row, sample) in samples.iter().enumerate() {
        let mut rooms: Vec<_> = fields
            .iter()
            .zip(&mut filling)
            .map(|(field, filling)| match filling {
                Filling::One(place) => {
                    let bytes = field.row_bytes();
                    Room::One(&mut place.bytes_mut()[row * bytes..(row + 1) * bytes])
                }
                Filling::Varying { rows, .. } => Room::Varying(rows),
            })
            .collect();
        source.read(*sample, &mut rooms)?;
        for (field, filling) in fields.iter().zip(&mut filling) {
            if let Filling::Varying { rows, ends } = filling {
                ends.push(rows.len() / field.row_bytes().max(1));
            }
        }
    }
    let mut columns = Vec::with_capacity(fields.len());
    for (field, filling) in fields.iter().zip(filling) {
        let (values, offsets) = match filling {
            Filling::One(place) => (place, None),
            Filling::Varying { rows, ends } => {
                let count = *ends.last().expect("it begins with one");
                let mut place = places.place(field, count)?;
                place.bytes_mut().copy_from_slice(&rows);
                (place, Some(ends))
            }
        };
        columns.push(Column {
            field: field.clone(),
            values,
            offsets,
        });
    }
    Ok(Batch {
        samples: samples.into(),
        columns,
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
            rows.extend((0..sample % 3).flat_map(|row| [row as u8, sample as u8]));
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
