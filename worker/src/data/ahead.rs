//! Batches read ahead of their use.

use std::sync::Arc;

use tch::Device;
use tradewind_data::{Ahead, Readers, batch_bytes};

use super::{Asked, Batch, DataError, Dataset, Split};

/// A batch that is asked for.
struct Wanted {
    epoch: Option<u64>,
    samples: Vec<usize>,
}

/// Batches of a data set's split in the order asked for, left in main memory, where `device` takes them from.
pub struct BatchesAhead {
    readers: Readers<Result<Batch, DataError>, Wanted>,
    /// Bytes of a sample, and of all batches that are read ahead.
    sample_bytes: usize,
    bytes_max: usize,
}

impl BatchesAhead {
    /// Starts the readers.
    pub fn new(dataset: Arc<dyn Dataset>, split: Split, ahead: Ahead, device: Device) -> Self {
        let sample_bytes = batch_bytes(&dataset.fields(), 1);
        let read = move |Wanted { epoch, samples }: &Wanted| {
            let batch = dataset.batch(Asked {
                split,
                epoch: *epoch,
                samples,
                device,
            });
            batch.and_then(|batch| batch.staged(device))
        };
        Self {
            readers: Readers::new(ahead, read, move |wanted: &Wanted| {
                sample_bytes * wanted.samples.len()
            }),
            sample_bytes,
            bytes_max: ahead.bytes,
        }
    }

    /// How many more batches may be asked for now.
    pub fn room(&self) -> usize {
        self.readers.room()
    }

    /// Whether none is asked for.
    pub fn is_empty(&self) -> bool {
        self.readers.is_empty()
    }

    /// Whether [`next`](Self::next) would not wait.
    pub fn is_ready(&self) -> bool {
        self.readers.is_ready()
    }

    /// Asks for one batch of an epoch, for which there is [`room`](Self::room); returns at once.
    ///
    /// # Errors
    /// A batch that takes more bytes than all may take together.
    ///
    /// # Panics
    /// If there is no room.
    pub fn request(&mut self, samples: Vec<usize>, epoch: Option<u64>) -> Result<(), DataError> {
        let (count, bytes) = (samples.len(), self.sample_bytes * samples.len());
        if bytes > self.bytes_max {
            return Err(DataError::Ahead {
                samples: count,
                bytes,
                most: self.bytes_max,
            });
        }
        let wanted = Wanted { epoch, samples };
        self.readers.request(wanted).expect("there is room");
        Ok(())
    }

    /// The oldest batch that was asked for, waiting until it is ready; `None` when none is.
    ///
    /// # Errors
    /// Data that cannot be read.
    #[expect(
        clippy::should_implement_trait,
        reason = "None is not the end: more may be asked for"
    )]
    pub fn next(&mut self) -> Option<Result<Batch, DataError>> {
        let batch = self.readers.next()?;
        Some(batch.unwrap_or_else(|ended| Err(tradewind_data::DataError::from(ended).into())))
    }
}

#[cfg(test)]
mod tests {
    use tch::Tensor;
    use tradewind_data::{Field, Kind};

    use super::*;

    /// Sample `i` is the number `i`; sample 13 cannot be read, sample 99 panics.
    struct Numbers;

    impl Dataset for Numbers {
        fn fields(&self) -> Vec<Field> {
            vec![Field::new("number", Kind::F32, &[])]
        }

        fn len(&self, _: Split) -> usize {
            100
        }

        fn batch(&self, asked: Asked<'_>) -> Result<Batch, DataError> {
            let Asked { split, samples, .. } = asked;
            assert!(!samples.contains(&99), "unlucky");
            if samples.contains(&13) {
                let (sample, len) = (13, 13);
                return Err(DataError::Sample { split, sample, len });
            }
            let values: Vec<f32> = samples.iter().map(|sample| *sample as f32).collect();
            Ok(Batch::of(samples).with("number", Tensor::from_slice(&values)))
        }
    }

    #[test]
    fn batches_errors_and_panics_come_in_the_order_asked_for() {
        let ahead = Ahead {
            readers: 2,
            batches: 4,
            bytes: 8,
        };
        let mut batches = BatchesAhead::new(Arc::new(Numbers), Split::Train, ahead, Device::Cpu);
        for samples in [vec![4, 2], vec![13], vec![99], vec![7]] {
            batches.request(samples, None).unwrap();
        }
        assert_eq!(batches.room(), 0);
        let first = batches.next().unwrap().unwrap();
        assert_eq!(first.samples, [4, 2]);
        assert_eq!(Vec::<f32>::try_from(&first["number"]).unwrap(), [4.0, 2.0]);
        let error = batches.next().unwrap().unwrap_err();
        assert!(matches!(error, DataError::Sample { sample: 13, .. }));
        let error = batches.next().unwrap().unwrap_err().to_string();
        assert!(error.contains("ended unexpectedly"), "{error}");
        let error = batches
            .request(vec![1, 2, 3], None)
            .unwrap_err()
            .to_string();
        let want = "a batch of 3 samples takes 12 bytes, and batches that are read ahead may take 8; raise loader.bytes_ahead, or lower train.batch";
        assert_eq!(error, want);
        assert_eq!(batches.next().unwrap().unwrap().samples, [7]);
        assert!(batches.next().is_none());
    }
}
