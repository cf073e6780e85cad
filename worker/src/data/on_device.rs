//! The next batch on its way to the device while that computes with the one before.

use tch::Device;

use super::{Batch, DataError};
use crate::c10d::C10dError;
use crate::stream::{Event, Stream, in_use};
use crate::train_error::TrainError;

/// Brings batches to a device, at most one ahead of its use.
pub struct OnDevice {
    device: Device,
    channels_last: bool,
    /// Where copies are made; a batch in main memory is there.
    stream: Option<Stream>,
    /// What was begun, and when it will be there.
    begun: Option<Result<(Batch, Event), TrainError>>,
}

impl OnDevice {
    /// To `device`, with the channels of maps last if so asked.
    ///
    /// # Errors
    /// A device that has no stream.
    pub fn new(device: Device, channels_last: bool) -> Result<Self, C10dError> {
        let stream = device.is_cuda().then(|| Stream::new(device));
        Ok(Self {
            device,
            channels_last,
            stream: stream.transpose()?,
            begun: None,
        })
    }

    /// Whether a batch may be begun: on a GPU, one at a time.
    pub fn has_room(&self) -> bool {
        self.stream.is_some() && self.begun.is_none()
    }

    /// Whether none is begun.
    pub fn is_empty(&self) -> bool {
        self.begun.is_none()
    }

    /// Begins to copy a batch, beside what the device does already. That it could not be read is kept until it is
    /// [taken](Self::take).
    pub fn begin(&mut self, batch: Result<Batch, DataError>) {
        let begun = batch.map_err(TrainError::from);
        self.begun = Some(begun.and_then(|batch| self.copied(batch)));
    }

    /// The batch that was begun: what the device is told from now on comes after its copy, and nobody else waits.
    pub fn take(&mut self) -> Option<Result<Batch, TrainError>> {
        let begun = self.begun.take()?;
        Some(begun.and_then(|(batch, there)| {
            let ordered = || {
                there.block()?;
                batch.tensors().try_for_each(in_use)
            };
            ordered().map_err(TrainError::Copy)?;
            Ok(batch)
        }))
    }

    /// A batch that nobody has begun.
    pub fn bring(&self, batch: Batch) -> Result<Batch, DataError> {
        let batch = batch.to(self.device)?;
        match self.channels_last {
            true => batch.channels_last(),
            false => Ok(batch),
        }
    }

    fn copied(&self, batch: Batch) -> Result<(Batch, Event), TrainError> {
        let stream = self.stream.as_ref().expect("asked whether there is room");
        let batch = stream
            .with(|| self.bring(batch))
            .map_err(TrainError::Copy)??;
        let there = stream.event().map_err(TrainError::Copy)?;
        Ok((batch, there))
    }
}

#[cfg(test)]
mod tests {
    use tch::{Kind, Tensor};

    use super::*;

    fn batch() -> Batch {
        let maps = Tensor::arange(2 * 3 * 4 * 5, (Kind::Float, Device::Cpu)).view([2, 3, 4, 5]);
        let rows = Tensor::arange(6, (Kind::Float, Device::Cpu)).view([2, 3]);
        Batch::of(&[7, 8]).with("map", maps).with("row", rows)
    }

    #[test]
    fn channels_come_last_in_memory_and_nowhere_else() {
        for (channels_last, strides) in [(false, [60, 20, 5, 1]), (true, [60, 1, 15, 3])] {
            let to = OnDevice::new(Device::Cpu, channels_last).unwrap();
            let (got, want) = (to.bring(batch()).unwrap(), batch());
            assert_eq!(got["map"].stride(), strides);
            assert_eq!(got["row"].stride(), [3, 1]);
            for name in ["map", "row"] {
                assert!(got[name] == want[name], "{name}");
            }
        }
    }

    #[test]
    fn a_batch_in_main_memory_is_there() {
        let mut to = OnDevice::new(Device::Cpu, false).unwrap();
        assert!(!to.has_room() && to.is_empty());
        assert!(to.take().is_none());
    }
}
