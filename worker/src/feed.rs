//! A rank's batches, prepared ahead by a thread.

use tch::Device;
use tradewind_client::feed::{Feed as Samples, Lease};
use tradewind_client::ranks::Ranks;
use tradewind_common::Clock;

use crate::data::prefetch::Prefetch;
use crate::data::{Batch, Split};
use crate::model::Task;
use crate::train_error::TrainError;

/// Batches prepared ahead.
pub const DEPTH: usize = 2;

/// The batches of one rank.
pub struct Feed {
    samples: Samples,
    prefetch: Prefetch,
}

impl Feed {
    /// Batches of these samples of a task's training split, on their way to `device`.
    pub fn new(samples: Samples, task: &dyn Task, device: Device) -> Self {
        Self {
            samples,
            prefetch: Prefetch::new(task.dataset(), Split::Train, DEPTH, device),
        }
    }

    /// The next batch; the ones after it are being prepared when it is handed out.
    pub fn next(&mut self, ranks: &dyn Ranks, lease: Lease<'_>) -> Result<Batch, TrainError> {
        while self.prefetch.room() > 0 {
            let samples = self.samples.next(ranks, lease)?;
            self.prefetch.request(samples).expect("there is room");
        }
        self.samples.handed_out();
        Ok(self.prefetch.next().expect("asked for above")?)
    }

    /// The group goes on at `clock`, if it is not further: see [`Samples::go_on_at`].
    pub fn go_on_at(&mut self, clock: Clock) {
        for _ in 0..self.samples.go_on_at(clock) {
            // Prepared for nothing; whether it could be read does not matter.
            let _ = self.prefetch.next();
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
