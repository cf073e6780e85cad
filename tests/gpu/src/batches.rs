//! The batches of the plain loop: those that a rank which is alone takes, in the same order.

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::Context;
use tch::Device;
use tradewind_client::order::permutation;
use tradewind_config::Config;
use tradewind_worker::data::ahead::BatchesAhead;
use tradewind_worker::data::{Batch, Dataset, Split};
use tradewind_worker::feed::ahead;
use tradewind_worker::model::Task;
use tradewind_worker::on_device::OnDevice;

use crate::exact::doubled;

/// Batches of the training split on a device, read ahead as a rank reads them.
pub(crate) struct Batches {
    ahead: BatchesAhead,
    order: Order,
    dataset: Arc<dyn Dataset>,
    to: OnDevice,
    /// Whether they are f64.
    double: bool,
}

impl Batches {
    pub(crate) fn new(
        config: &Config,
        task: &dyn Task,
        device: Device,
        double: bool,
    ) -> anyhow::Result<Self> {
        let ahead = ahead(&config.loader);
        Ok(Self {
            ahead: BatchesAhead::new(task.dataset(), Split::Train, ahead, device),
            order: Order::new(config, task.samples()),
            dataset: task.dataset(),
            to: OnDevice::new(device, config.compute.channels_last)?,
            double,
        })
    }

    /// The next one.
    pub(crate) fn next(&mut self) -> anyhow::Result<Batch> {
        while self.ahead.room() > 0 {
            self.ahead.request(self.order.next(), None)?;
        }
        let mut batch = self.ahead.next().context("it was asked for")??;
        if self.double {
            batch = doubled(&batch, &*self.dataset);
        }
        Ok(self.to.bring(batch)?)
    }
}

/// Samples of batches, one epoch after the other.
struct Order {
    seed: u64,
    samples: usize,
    batch: usize,
    epoch: u64,
    left: VecDeque<u32>,
}

impl Order {
    fn new(config: &Config, samples: usize) -> Self {
        Self {
            seed: config.seed,
            samples,
            batch: config.train.batch as usize,
            epoch: 0,
            left: VecDeque::new(),
        }
    }

    fn next(&mut self) -> Vec<usize> {
        if self.left.len() < self.batch {
            self.left = permutation(self.seed, self.epoch, self.samples).into();
            self.epoch += 1;
        }
        let batch = self.batch.min(self.left.len());
        self.left
            .drain(..batch)
            .map(|sample| sample as usize)
            .collect()
    }
}
