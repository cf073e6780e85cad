//! Some of the samples of a source, as a source.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{DataError, Field, Filling, Room, Source};

/// Samples of a source that follow one another, numbered from 0.
pub struct Part {
    whole: Arc<dyn Source>,
    samples: Range<usize>,
}

impl Part {
    /// The samples of these numbers.
    ///
    /// # Panics
    /// If the source does not have them.
    pub fn new(whole: Arc<dyn Source>, samples: Range<usize>) -> Self {
        let len = whole.len();
        assert!(
            samples.start <= samples.end && samples.end <= len,
            "{samples:?} of {len} samples"
        );
        Self { whole, samples }
    }

    fn number(&self, sample: usize) -> usize {
        assert!(sample < self.len(), "{sample} of {} samples", self.len());
        self.samples.start + sample
    }
}

impl Source for Part {
    fn fields(&self) -> &[Field] {
        self.whole.fields()
    }

    fn len(&self) -> usize {
        self.samples.len()
    }

    fn name(&self, sample: usize) -> String {
        self.whole.name(self.number(sample))
    }

    /// An error has the sample's number in the whole.
    fn read(&self, sample: usize, rooms: &mut [Room<'_>]) -> Result<(), DataError> {
        self.whole.read(self.number(sample), rooms)
    }

    fn read_many(&self, samples: &[usize], filling: &mut Filling<'_>) -> Result<(), DataError> {
        let numbers: Vec<_> = samples.iter().map(|sample| self.number(*sample)).collect();
        self.whole.read_many(&numbers, filling)
    }

    fn files(&self, samples: Range<usize>) -> Vec<PathBuf> {
        let begin = self.samples.start;
        self.whole.files(begin + samples.start..begin + samples.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::testing::Numbers;
    use crate::{Memory, read_batch};

    #[test]
    fn a_part_counts_from_0_and_ends() {
        let part = Part::new(Arc::new(Numbers::new()), 10..14);
        assert_eq!((part.len(), part.name(2)), (4, "the number 12".into()));
        let batch = read_batch(&part, &[2, 0], &mut Memory::default()).unwrap();
        assert_eq!(batch.columns[0].values, [12, 0, 0, 0, 10, 0, 0, 0]);
        let text = |samples: &[usize]| {
            let read = read_batch(&part, samples, &mut Memory::default());
            read.unwrap_err().to_string()
        };
        assert_eq!(text(&[4]), "there are samples 0..4, asked for 4");
        assert_eq!(text(&[3]), "sample 13, the number 13: unlucky");
    }

    #[test]
    #[should_panic(expected = "90..101 of 100 samples")]
    fn a_part_is_of_samples_that_there_are() {
        Part::new(Arc::new(Numbers::new()), 90..101);
    }
}
