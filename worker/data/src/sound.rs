//! Training on in spite of damaged samples: others are read in their place.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tradewind_common::mix::mixed;

use crate::source::unusable;
use crate::{DataError, Field, Filling, Room, Source};

/// How many samples are tried in place of one.
const TRIES: u64 = 64;

/// A source of which samples that are damaged are left out: another one is read in the place of each. Which one
/// follows from the sample's number alone, so that it is the same in every process, whatever the number of readers.
///
/// Each is named once in the log. A file that is gone or has changed is an error still.
pub struct Sound {
    source: Arc<dyn Source>,
    left_out: Mutex<BTreeMap<usize, LeftOut>>,
}

/// A sample that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// What is wrong with it.
    pub error: DataError,
    /// The sample that was read in its place first.
    pub instead: Option<usize>,
}

impl Sound {
    /// Leaves out those of this source.
    pub fn new(source: Arc<dyn Source>) -> Self {
        Self {
            source,
            left_out: Mutex::default(),
        }
    }

    /// The samples that were found to be damaged so far, by number.
    pub fn left_out(&self) -> Vec<LeftOut> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, LeftOut>> {
        // Nothing panics while it is held.
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_damaged(&self, sample: usize) -> bool {
        self.lock().contains_key(&sample)
    }

    /// A sample is damaged: it is named, if it is for the first time.
    fn damaged(&self, sample: usize, error: DataError) {
        self.lock().entry(sample).or_insert_with(|| {
            tracing::warn!("left out: {error}");
            let instead = None;
            LeftOut { error, instead }
        });
    }

    /// Reads another sample in the place of one that is damaged.
    fn read_instead(
        &self,
        sample: usize,
        read: &mut dyn FnMut(usize) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let len = self.source.len() as u64;
        for attempt in 0..TRIES {
            let other = (mixed(sample as u64, [attempt]) % len) as usize;
            if self.is_damaged(other) {
                continue;
            }
            match read(other) {
                Err(error @ DataError::Sample { .. }) => self.damaged(other, error),
                Err(error) => return Err(error),
                Ok(()) => {
                    if let Some(left_out) = self.lock().get_mut(&sample) {
                        left_out.instead = Some(other);
                    }
                    return Ok(());
                }
            }
        }
        let error = self
            .lock()
            .get(&sample)
            .map(|left_out| left_out.error.to_string());
        let reason = format!(
            "it is damaged, and so are all {TRIES} samples that were tried in its place; look at the data with `tradewind data verify` ({})",
            error.unwrap_or_default()
        );
        Err(unusable(self, sample, reason))
    }
}

impl Source for Sound {
    fn fields(&self) -> &[Field] {
        self.source.fields()
    }

    fn len(&self) -> usize {
        self.source.len()
    }

    /// Where the sample itself is.
    fn name(&self, sample: usize) -> String {
        self.source.name(sample)
    }

    fn read(&self, sample: usize, rooms: &mut [Room<'_>]) -> Result<(), DataError> {
        let before: Vec<usize> = rooms.iter().map(Room::before).collect();
        let mut read = |sample: usize| {
            let read = self.source.read(sample, rooms);
            if read.is_err() {
                for (room, before) in rooms.iter_mut().zip(&before) {
                    if let Room::Varying(rows) = room {
                        rows.truncate(*before);
                    }
                }
            }
            read
        };
        if !self.is_damaged(sample) {
            match read(sample) {
                Err(error @ DataError::Sample { .. }) => self.damaged(sample, error),
                read => return read,
            }
        }
        self.read_instead(sample, &mut read)
    }

    fn read_many(&self, samples: &[usize], filling: &mut Filling<'_>) -> Result<(), DataError> {
        let mut rest = samples;
        while let Some(first) = rest.first() {
            if self.is_damaged(*first) {
                self.read_instead(*first, &mut |other| {
                    self.source.read_many(&[other], filling)
                })?;
                rest = &rest[1..];
                continue;
            }
            let known = rest.iter().position(|sample| self.is_damaged(*sample));
            let (now, before) = (&rest[..known.unwrap_or(rest.len())], filling.rows());
            let read = self.source.read_many(now, filling);
            let filled = filling.rows() - before;
            match read {
                Err(error @ DataError::Sample { .. }) => self.damaged(now[filled], error),
                read => read?,
            }
            rest = &rest[filled..];
        }
        Ok(())
    }

    fn files(&self, samples: Range<usize>) -> Vec<PathBuf> {
        self.source.files(samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::testing::Numbers;
    use crate::{Batch, Kind, Memory, read_batch};

    /// Numbers of which many are damaged, after some of their rows were read.
    struct Source90 {
        numbers: Numbers,
        is_damaged: fn(usize) -> bool,
        gone: Option<usize>,
        reads: Mutex<Vec<usize>>,
    }

    fn sound(is_damaged: fn(usize) -> bool) -> (Sound, Arc<Source90>) {
        let source = Arc::new(Source90 {
            numbers: Numbers::of(90),
            is_damaged,
            gone: None,
            reads: Mutex::default(),
        });
        (Sound::new(source.clone()), source)
    }

    impl Source for Source90 {
        fn fields(&self) -> &[Field] {
            self.numbers.fields()
        }

        fn len(&self) -> usize {
            self.numbers.len()
        }

        fn name(&self, sample: usize) -> String {
            self.numbers.name(sample)
        }

        fn read(&self, sample: usize, rooms: &mut [Room<'_>]) -> Result<(), DataError> {
            self.reads.lock().unwrap().push(sample);
            if self.gone == Some(sample) {
                return Err(DataError::Asked("the file is gone".into()));
            }
            if (self.is_damaged)(sample) {
                let Room::Varying(rows) = &mut rooms[1] else {
                    panic!("{rooms:?}");
                };
                rows.extend_from_slice(&[0xEE; 2]);
                return Err(unusable(self, sample, "it is damaged"));
            }
            self.numbers.read(sample, rooms)
        }
    }

    fn numbers(batch: &Batch<Vec<u8>>) -> Vec<usize> {
        let column = batch.column("number").unwrap();
        let numbers = column.field.kind.numbers(&column.values);
        numbers.map(|number| number as usize).collect()
    }

    fn is_even_or_13(sample: usize) -> bool {
        sample.is_multiple_of(2) || sample == 13
    }

    #[test]
    fn another_sample_is_read_in_the_place_of_a_damaged_one() {
        let asked: Vec<usize> = vec![1, 4, 3, 13, 6, 6, 9];
        let (first, source) = sound(is_even_or_13);
        let batch = read_batch(&first, &asked, &mut Memory {}).unwrap();
        let read = numbers(&batch);
        assert_eq!(batch.samples, asked);
        let is_right = |(asked, read): (&usize, &usize)| match is_even_or_13(*asked) {
            true => !is_even_or_13(*read),
            false => asked == read,
        };
        assert!(asked.iter().zip(&read).all(is_right), "{read:?}");
        // Rows are those of the samples that were read, and of nothing that was taken back.
        let rows = batch.column("rows").unwrap();
        let want = read
            .iter()
            .flat_map(|n| (0..n % 3).flat_map(move |row| [row as u8, *n as u8]));
        assert_eq!(rows.values, want.collect::<Vec<_>>());
        // The same in another process, in another order, one by one, and again.
        let (second, _) = sound(is_even_or_13);
        for (asked, want) in asked.iter().zip(&read).rev() {
            let batch = read_batch(&second, &[*asked], &mut Memory {}).unwrap();
            assert_eq!(numbers(&batch), [*want]);
        }
        let left_out = first.left_out();
        let of = |number: usize| {
            let is_it = |one: &&LeftOut| matches!(&one.error, DataError::Sample { number: n, .. } if *n == number);
            left_out.iter().find(is_it).unwrap()
        };
        assert_eq!(
            (of(4).instead, of(13).instead),
            (Some(read[1]), Some(read[3]))
        );
        let numbers: Vec<_> = left_out.iter().map(|one| one.error.to_string()).collect();
        assert!(
            numbers
                .iter()
                .any(|text| text == "sample 13, the number 13: it is damaged")
        );
        // What is damaged is read once.
        read_batch(&first, &asked, &mut Memory {}).unwrap();
        let reads = source.reads.lock().unwrap();
        let of_four = reads.iter().filter(|sample| **sample == 4).count();
        assert_eq!((of_four, first.left_out().len()), (1, left_out.len()));
    }

    #[test]
    fn rooms_are_as_before() {
        let (sound, _) = sound(is_even_or_13);
        let (mut number, mut rows, mut filled) = ([0; 4], [7; 30], 10);
        let mut rooms = [
            Room::One(&mut number),
            Room::Varying(crate::Appended::new(&mut rows, &mut filled)),
        ];
        sound.read(8, &mut rooms).unwrap();
        let read = Kind::I32.numbers(&number).next().unwrap() as usize;
        assert_eq!(filled, 10 + 2 * (read % 3));
        assert!(rows[..10] == [7; 10] && !is_even_or_13(read));
    }

    #[test]
    fn it_ends_where_nearly_all_are_damaged_and_at_other_errors() {
        let read = |is_damaged, gone| {
            let source = Arc::new(Source90 {
                numbers: Numbers::of(90),
                is_damaged,
                gone,
                reads: Mutex::default(),
            });
            let error = read_batch(&Sound::new(source.clone()), &[7], &mut Memory {}).unwrap_err();
            let reads = source.reads.lock().unwrap().len();
            (error.to_string(), reads)
        };
        let (error, reads) = read(|_| true, None);
        let want = "sample 7, the number 7: it is damaged, and so are all 64 samples that were tried in its place";
        assert!(reads <= 65 && error.starts_with(want), "{error}");
        let (error, reads) = read(|_| false, Some(7));
        assert_eq!((error.as_str(), reads), ("the file is gone", 1));
    }
}
