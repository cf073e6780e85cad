//! A group on libtorch's c10d: its `Reducer` averages its buckets while backward is still computing others.

mod gather;
mod together;

use std::fmt;
use std::time::Duration;

use tch::{Device, Tensor};
use tradewind_client::ranks::{Broken, Ranks};
use tradewind_common::ids::Rank;
use tradewind_common::layout::{Bucket, Layout};

use self::gather::Gather;
use super::{Group, GroupError, check_loss, wait_for};
use crate::c10d::{Breaker, C10dError, ProcessGroup, Reducer, Store, Told, without_stack};
use crate::flat::{Flat, in_layout_order};

/// Where and how the ranks of a group meet.
pub struct Rendezvous<'a> {
    /// Served by one of them ([`Store::serve`]), connected to by the others ([`Store::connect`]).
    pub store: &'a Store,
    /// A name that no other group uses in this store: one for each incarnation of the group.
    pub prefix: &'a str,
    /// This rank's own network address, or a name that resolves to it on this machine: the peers
    /// connect to it.
    pub host: &'a str,
    /// Bounds the wait for the peers; NCCL has a minute at least. Collectives have none, so that no rank
    /// is too slow for its group. A peer that dies is noticed at once; with one that hangs the group must
    /// be broken.
    pub timeout: Duration,
    /// Told what breaks the group, as soon as there is something to break: on GPUs before NCCL has
    /// connected the ranks.
    pub breaks: &'a dyn Fn(Breaker),
}

impl fmt::Debug for Rendezvous<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (prefix, host, timeout) = (self.prefix, self.host, self.timeout);
        write!(f, "{prefix} at {host}, within {timeout:?}")
    }
}

/// Several ranks, one process each, over Gloo and, on GPUs, NCCL. After [`GroupError::Broken`] it is of no use:
/// drop it and make another, of as many ranks as there are then, on the same tensors.
#[derive(Debug)]
pub struct C10d {
    rank: Rank,
    size: u32,
    // Dropped before the process group, whose last collectives it may still have to collect.
    reducer: Reducer,
    process_group: ProcessGroup,
    /// The gradient of each bucket, which is the reducer's.
    buckets: Vec<Tensor>,
    parameters: Vec<(String, Tensor)>,
    gather: Gather,
    device: Device,
}

impl C10d {
    /// Forms the group: returns when all `size` ranks are connected. `tensors` are the model's
    /// own, named, in its order of creation: those that [`Flat::new`](crate::flat::Flat::new) has
    /// taken. Their `.grad` belongs to the group until it is dropped.
    pub fn new(
        rank: Rank,
        size: u32,
        rendezvous: &Rendezvous<'_>,
        layout: &Layout,
        buckets: &[Bucket],
        tensors: &[(String, Tensor)],
    ) -> Result<Self, GroupError> {
        let tensors = in_layout_order(layout, tensors)?;
        let Rendezvous {
            store,
            prefix,
            host,
            timeout,
            breaks,
        } = rendezvous;
        let met = ProcessGroup::new(store, prefix, rank.0, size, host, *timeout);
        let mut process_group = met.map_err(GroupError::Form)?;
        breaks(process_group.breaker().map_err(GroupError::Form)?);
        let device = tensors.first().map_or(Device::Cpu, Tensor::device);
        let own = together::Told::new(device, buckets)?;
        together::meet(&mut process_group, rank, size, device, own, *timeout)?;

        let mut parameters = tensors;
        parameters.retain(Tensor::requires_grad);
        let names = layout.tensors.iter().map(|placed| placed.spec.name.clone());
        let sizes: Vec<_> = buckets.iter().map(|bucket| bucket.tensors.len()).collect();
        let reducer =
            Reducer::new(&process_group, &parameters, &sizes).map_err(GroupError::Form)?;
        let buckets = (0..sizes.len()).map(|bucket| reducer.bucket(bucket));
        let buckets = buckets
            .collect::<Result<_, _>>()
            .map_err(GroupError::Form)?;
        Ok(Self {
            rank,
            size,
            reducer,
            process_group,
            buckets,
            parameters: names.zip(parameters).collect(),
            gather: Gather::new(layout, rank, size, device)?,
            device,
        })
    }

    fn without_gradient(&self) -> Vec<String> {
        let without = self
            .parameters
            .iter()
            .filter(|(_, tensor)| !tensor.grad().defined());
        without.map(|(name, _)| name.clone()).collect()
    }
}

impl Drop for C10d {
    fn drop(&mut self) {
        // Whoever is told of buckets goes with the reducer, and may wait for a GPU that waits for a
        // peer.
        self.process_group.close();
    }
}

impl Ranks for C10d {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn all_reduce_sum(&self, values: &mut [f64]) -> Result<(), Broken> {
        let reduced = self.process_group.all_reduce_sum(values);
        // What a step decides here rests on what a GPU has computed.
        let checked = reduced.and_then(|()| self.process_group.check());
        checked.map_err(broken)
    }

    fn broadcast(&self, values: &mut [i64]) -> Result<(), Broken> {
        self.process_group.broadcast(values, 0).map_err(broken)
    }
}

impl Group for C10d {
    fn device(&self) -> Device {
        self.device
    }

    fn watch(&mut self, told: Told) -> Result<(), GroupError> {
        self.reducer.watch(told).map_err(GroupError::Form)
    }

    fn breaker(&self) -> Result<Option<Breaker>, GroupError> {
        self.process_group
            .breaker()
            .map(Some)
            .map_err(GroupError::Form)
    }

    fn check(&self) -> Result<(), GroupError> {
        Ok(self.process_group.check().map_err(broken)?)
    }

    fn backward(&mut self, loss: &Tensor) -> Result<Duration, GroupError> {
        check_loss(loss)?;
        self.reducer.prepare().map_err(broken)?;
        // The reducer's hooks run inside, so a peer's death arrives here as libtorch's error.
        loss.f_backward().map_err(|error| Broken {
            message: without_stack(&error.to_string()),
        })?;
        wait_for(self.device)?;
        match self.reducer.finish().map_err(broken)? {
            Some(exposed) => Ok(exposed),
            None => Err(GroupError::Unused {
                names: self.without_gradient(),
            }),
        }
    }

    fn reduced(&self) -> Result<Option<Duration>, GroupError> {
        Ok(self.reducer.reduced().map_err(broken)?)
    }

    fn gradient(&self, bucket: usize) -> &Tensor {
        &self.buckets[bucket]
    }

    fn all_reduce_mean(&self, values: &mut Tensor) -> Result<(), GroupError> {
        let reduced = self.process_group.all_reduce_sum_tensor(values);
        reduced.map_err(broken)?;
        let divided = values.f_divide_scalar_(f64::from(self.size));
        let divided = divided.map(drop).map_err(|error| Broken {
            message: without_stack(&error.to_string()),
        });
        Ok(divided?)
    }

    fn gather(&mut self, flat: &mut Flat) -> Result<(), GroupError> {
        self.gather.run(&self.process_group, flat)
    }
}

fn broken(error: C10dError) -> Broken {
    Broken {
        message: error.to_string(),
    }
}

#[cfg(test)]
mod tests;
