//! A rank's batches, read ahead.

use std::sync::Arc;

use tch::Device;
use tradewind_client::feed::{Feed as Samples, Lease};
use tradewind_client::ranks::Ranks;
use tradewind_common::Clock;
use tradewind_config::{Compute, Loader};
use tradewind_data::{Ahead, Staging};

use crate::c10d::C10dError;
use crate::data::ahead::BatchesAhead;
use crate::data::{Batch, Copied, Dataset, Split};
use crate::model::Task;
use crate::on_device::OnDevice;
use crate::train_error::TrainError;

/// What the configuration says of it.
pub fn ahead(loader: &Loader) -> Ahead {
    Ahead {
        readers: loader.readers as usize,
        batches: loader.batches_ahead as usize,
        bytes: loader.bytes_ahead as usize,
    }
}

/// The batches of one rank.
pub struct Feed {
    samples: Samples,
    batches: BatchesAhead,
    device: OnDevice,
    dataset: Arc<dyn Dataset>,
    /// Begun with the first set.
    staging: Option<Staging>,
}

impl Feed {
    /// Batches of these samples of a task's training split, brought to what `compute` computes on.
    ///
    /// # Errors
    /// A device that has no stream for copies.
    pub fn new(
        samples: Samples,
        task: &dyn Task,
        ahead: Ahead,
        (device, compute): (Device, &Compute),
    ) -> Result<Self, C10dError> {
        Ok(Self {
            samples,
            batches: BatchesAhead::new(task.dataset(), Split::Train, ahead, device),
            device: OnDevice::new(device, compute.channels_last)?,
            dataset: task.dataset(),
            staging: None,
        })
    }

    /// What this process has copied to its node's own disk so far.
    pub fn copied(&self) -> Copied {
        self.dataset.copied()
    }

    /// The next batch, on the device; the ones after it are being prepared when it is handed out.
    pub fn next(&mut self, ranks: &dyn Ranks, lease: Lease<'_>) -> Result<Batch, TrainError> {
        let none = |feed: &Self| feed.batches.is_empty() && feed.device.is_empty();
        while self.room() > 0 && (none(self) || self.samples.may_ask(ranks)) {
            let samples = self.samples.next(ranks, lease)?;
            self.batches.request(samples, self.samples.epoch())?;
            self.stage(ranks);
        }
        self.samples.handed_out();
        if let Some(begun) = self.device.take() {
            return begun;
        }
        let batch = self.batches.next().expect("asked for above")?;
        Ok(self.device.bring(batch)?)
    }

    /// How many more batches may be asked for now: the same on all ranks of the group, which lease together what
    /// they ask for. One that is on its way to the device counts as before, since that depends on how fast a
    /// rank's own was read.
    fn room(&self) -> usize {
        self.batches.room() - usize::from(!self.device.is_empty())
    }

    /// Begins to copy the batch after the one that was handed out, if it is ready: to be called while the device
    /// has work.
    pub fn copy_next(&mut self) {
        if self.device.has_room()
            && self.batches.is_ready()
            && let Some(batch) = self.batches.next()
        {
            self.device.begin(batch);
        }
    }

    /// Has the files of sets copied that the group takes samples of.
    fn stage(&mut self, ranks: &dyn Ranks) {
        for samples in self.samples.take_wanted() {
            let dataset = &self.dataset;
            let staging = self.staging.get_or_insert_with(|| {
                let dataset = Arc::clone(dataset);
                Staging::new(move |samples, stop| dataset.stage(samples, stop))
            });
            staging.want(samples, ranks.rank().0, ranks.size());
        }
    }

    /// The group goes on at `clock`, if it is not further: see [`Samples::go_on_at`].
    pub fn go_on_at(&mut self, clock: Clock) {
        for _ in 0..self.samples.go_on_at(clock) {
            // Prepared for nothing; whether it could be read does not matter.
            if self.device.take().is_none() {
                let _ = self.batches.next();
            }
        }
    }

    /// The batch that was handed out first has been applied, or skipped, or is in the values of a
    /// group between two exchanges.
    pub fn done(&mut self) {
        self.samples.done();
    }

    /// Chunks of which every step has been applied, and that nobody was told of.
    pub fn take_finished(&mut self) -> Vec<u64> {
        self.samples.take_finished()
    }
}
