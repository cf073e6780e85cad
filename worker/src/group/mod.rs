//! A group of ranks that step together: gradients are averaged over it while backward runs, and
//! its ranks share what each of them has pulled.
//!
//! [`Solo`] is a group of one rank; [`C10d`] is libtorch's c10d. A step of the training loop:
//!
//! ```text
//! let loss = task.loss(&batch);
//! let exposed = group.backward(&loss)?;
//! // … push group.gradient(bucket), pull this rank's slice into flat …
//! group.gather(&mut flat)?;
//! ```

mod c10d;
mod solo;

use std::time::Duration;

use tch::{Device, Tensor};
use tradewind_client::ranks::{Broken, Ranks};

use crate::c10d::{Breaker, C10dError, NcclError, Told};
use crate::flat::{Flat, FlatError};
use crate::stream::Event;

pub use self::c10d::{C10d, Rendezvous};
pub use self::solo::Solo;

/// Why a group could not do its part.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The model's tensors are not the layout's.
    #[error(transparent)]
    Flat(#[from] FlatError),
    /// The group could not be formed.
    #[error("the group was not formed: {0}")]
    Form(#[source] C10dError),
    /// There is no NCCL for a group on GPUs.
    #[error(transparent)]
    Nccl(#[from] NcclError),
    /// One group cannot be on both.
    #[error(
        "ranks {} of the group compute on CPUs and ranks {} on GPUs; set compute.device to \"cpu\" or \"cuda\" for all, and see that every node of the group has GPUs for its ranks",
        list(cpu),
        list(gpu)
    )]
    Mixed {
        /// Ranks on CPUs.
        cpu: Vec<u32>,
        /// Ranks on GPUs.
        gpu: Vec<u32>,
    },
    /// They would average values of different parameters.
    #[error(
        "ranks {} of the group have other buckets than its rank 0; give all ranks of a group the same exchange.bucket_bytes",
        list(ranks)
    )]
    Buckets {
        /// The ranks.
        ranks: Vec<u32>,
    },
    /// NCCL refuses that.
    #[error(
        "ranks {} of the group share one GPU, which NCCL refuses; give each a GPU of its own (compute.device = \"cuda\" takes that of the local rank), or make groups of one rank",
        list(ranks)
    )]
    Shared {
        /// The ranks.
        ranks: Vec<u32>,
    },
    /// The loss is not a single value that depends on the parameters. Nothing was sent.
    #[error("backward needs a loss of one value that requires a gradient; this one {0}")]
    Loss(String),
    /// Backward failed on a rank alone.
    #[error("backward failed: {0}")]
    Backward(String),
    /// These parameters had no part in the loss, so the reduction of their buckets cannot end.
    /// The group can no longer be used.
    #[error("no gradient reached {}; every parameter takes part in every loss", names.join(", "))]
    Unused {
        /// Names of the parameters.
        names: Vec<String>,
    },
    /// A peer is gone, or backward failed here and the peers cannot know. The group can no longer be used: drop it and form another.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// A flat vector of another model.
    #[error("a flat vector of {got} values where the group's has {want}")]
    Length {
        /// Its length.
        got: usize,
        /// The length of the flat vector.
        want: usize,
    },
}

/// Ranks that step together, with the gradients of their models. Elements are counted as in the layout that
/// the group was made with, and buckets are numbered as in its list of them.
pub trait Group: Ranks + Send {
    /// Where the flat vector and the gradients are.
    fn device(&self) -> Device;

    /// From the next backward on, `told` hears of each bucket once in a backward: its
    /// number and its gradient, final, as soon as it is reduced, which is mostly while backward
    /// still computes others, and in any case before it returns. Buckets come nearly in order. It
    /// is called from threads of the group; backward may wait for it to return, and it must not
    /// call the group. On a GPU the gradient is final in the order of the calling thread's current
    /// stream. At most once, before the first backward.
    fn watch(&mut self, told: Told) -> Result<(), GroupError>;

    /// What breaks the group from another thread, where it can be in need of that.
    fn breaker(&self) -> Result<Option<Breaker>, GroupError> {
        Ok(None)
    }

    /// An error if the group is broken, as far as is known here. On a GPU a collective that was
    /// broken off ends like any other, with anything in its tensors: to be asked after the device
    /// has been waited for, and before what it has computed is used. From other threads
    /// [`Breaker::check`] tells the same.
    fn check(&self) -> Result<(), GroupError> {
        Ok(())
    }

    /// Backward through `loss`, a scalar; on return every bucket's gradient is the mean over the
    /// ranks (of the ranks' own means: equal batches are the caller's business). Gradients of
    /// earlier steps are not added.
    ///
    /// Returns how long reductions kept this rank waiting after its own backward computation was
    /// done: the part of them that backward did not hide, a slower peer included. On a GPU, too,
    /// all of it is done on return.
    fn backward(&mut self, loss: &Tensor) -> Result<Duration, GroupError>;

    /// How long the reductions of the last [`backward`](Self::backward) took: from the launch of the
    /// first to the end of the last, with what they waited for in between. `None` where there are
    /// none, or where it is not known. On a GPU it waits for that end, which has passed when the
    /// ranks have agreed on what backward has left.
    fn reduced(&self) -> Result<Option<Duration>, GroupError> {
        Ok(None)
    }

    /// The gradient of a bucket as the last [`backward`](Self::backward) left it: f32, of one
    /// dimension, contiguous, as long as the bucket's element range, on the group's device, bit for
    /// bit the same on all ranks. Unspecified before the first backward. In main memory
    /// [`c10d::values`](crate::c10d::values) reads it.
    ///
    /// # Panics
    /// If there is no such bucket.
    fn gradient(&self, bucket: usize) -> &Tensor;

    /// Mean over the ranks, in place, of a contiguous f32 tensor on the group's device: for buffers
    /// such as BatchNorm's statistics.
    fn all_reduce_mean(&self, values: &mut Tensor) -> Result<(), GroupError>;

    /// In `flat`, on the group's device, the blocks of this rank's slice
    /// ([`Layout::slice`](tradewind_common::layout::Layout::slice)) are fresh; on return all
    /// blocks are, bit for bit.
    fn gather(&mut self, flat: &mut Flat) -> Result<(), GroupError>;
}

/// Bus bandwidth of reductions of `bytes` over `ranks` that took so long, bytes a second: what each
/// rank's link carries each way, whatever their number (NCCL's tests, doc/PERFORMANCE.md).
pub fn bus_bandwidth(bytes: usize, ranks: u32, took: Duration) -> Option<f64> {
    let (ranks, seconds) = (f64::from(ranks), took.as_secs_f64());
    (seconds > 0.0).then(|| 2.0 * (ranks - 1.0) / ranks * bytes as f64 / seconds)
}

/// Waits until `device` has done what it was told to: on a GPU backward returns before.
fn wait_for(device: Device) -> Result<(), GroupError> {
    let waited = Event::now(device).and_then(|event| event.wait());
    waited.map_err(|error| GroupError::Backward(error.to_string()))
}

fn list(ranks: &[u32]) -> String {
    let ranks: Vec<_> = ranks.iter().map(u32::to_string).collect();
    ranks.join(", ")
}

fn check_loss(loss: &Tensor) -> Result<(), GroupError> {
    if loss.numel() != 1 {
        Err(GroupError::Loss(format!("has shape {:?}", loss.size())))
    } else if !loss.requires_grad() {
        Err(GroupError::Loss("requires none".into()))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_bandwidth_is_that_of_a_link() {
        let check = |ranks, ms, want| {
            let got = bus_bandwidth(100_000_000, ranks, Duration::from_millis(ms));
            assert_eq!(got.map(f64::round), want, "{ranks} ranks, {ms} ms");
        };
        check(2, 100, Some(1e9));
        check(4, 100, Some(1.5e9));
        check(4, 50, Some(3e9));
        check(1, 100, Some(0.0));
        check(2, 0, None);
    }
}

#[cfg(test)]
mod testing {
    use tch::nn::{self, Module};
    use tch::{Device, Kind, Tensor};
    use tradewind_common::layout::{Bucket, Layout, TensorKind, TensorSpec};

    /// A small network with a buffer that takes no part, its tensors in order of creation.
    pub(crate) struct Model {
        pub(crate) tensors: Vec<(String, Tensor)>,
        net: nn::Sequential,
    }

    impl Model {
        /// Equal values on every call.
        pub(crate) fn new() -> Self {
            let vs = nn::VarStore::new(Device::Cpu);
            let root = vs.root();
            let net = nn::seq()
                .add(nn::linear(&root / "a", 3, 5, Default::default()))
                .add_fn(|x| x.tanh())
                .add(nn::linear(&root / "b", 5, 2, Default::default()));
            let buffer = root.zeros_no_train("mean", &[4]);
            let mut all = vs.variables();
            let mut tensors: Vec<_> = ["a.weight", "a.bias", "b.weight", "b.bias"]
                .into_iter()
                .map(|name| (name.to_owned(), all.remove(name).unwrap()))
                .collect();
            tensors.push(("mean".into(), buffer));
            tch::no_grad(|| {
                for (place, (_, tensor)) in tensors.iter().enumerate() {
                    let count = tensor.numel() as i64;
                    let values =
                        Tensor::arange(count, (Kind::Float, Device::Cpu)) * 0.7 + place as f64;
                    tensor
                        .shallow_clone()
                        .copy_(&values.sin().reshape_as(tensor));
                }
            });
            Self { tensors, net }
        }

        /// Mean squared output on inputs that follow from `seed`.
        pub(crate) fn loss(&self, seed: u32) -> Tensor {
            let x = (Tensor::arange(12, (Kind::Float, Device::Cpu)) * f64::from(seed + 1)).cos();
            self.net
                .forward(&x.reshape([4, 3]))
                .square()
                .mean(Kind::Float)
        }

        /// Several, of several blocks each.
        pub(crate) fn buckets(&self) -> Vec<Bucket> {
            self.layout().buckets(48)
        }

        pub(crate) fn layout(&self) -> Layout {
            let spec = |(name, tensor): &(String, Tensor)| TensorSpec {
                name: name.clone(),
                shape: tensor.size().iter().map(|&extent| extent as u64).collect(),
                kind: match tensor.requires_grad() {
                    true => TensorKind::Parameter,
                    false => TensorKind::Buffer,
                },
            };
            let specs: Vec<_> = self.tensors.iter().map(spec).collect();
            Layout::new(&specs, 12).unwrap()
        }

        /// The gradients of `loss(seed)` by libtorch alone, in flat order.
        pub(crate) fn plain_gradient(seed: u32) -> Vec<f32> {
            let model = Self::new();
            model.loss(seed).backward();
            let layout = model.layout();
            let tensors = layout.tensors.iter();
            let tensors = tensors.map(|placed| &model.tensors[placed.created].1);
            let trained = tensors.filter(|tensor| tensor.requires_grad());
            let flat = trained
                .flat_map(|tensor| Vec::<f32>::try_from(tensor.grad().reshape([-1])).unwrap());
            flat.collect()
        }
    }
}
