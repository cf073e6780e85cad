//! The host's side of a model: what its exchanges read and write in main memory.
//!
//! | | shared | staged |
//! |---|---|---|
//! | the model is | in main memory | on a device |
//! | a gradient is pushed from | where libtorch left it | page-locked vectors, to which each bucket is copied while backward goes on |
//! | whether it is finite, and the loss | is looked at where it is | is found out there; one copy brings all of it |
//! | fresh values come | into a vector beside the flat one | into page-locked memory, and block by block into a double on the device |
//! | a step begins | with a copy | with a copy on the device |
//!
//! Staging works in main memory, too, with nothing to gain: tests compare the two, bit for bit.

pub mod buffers;
mod fresh;
mod giver;
mod outgoing;
mod shared;
mod staged;

use std::sync::Arc;

use tch::Tensor;
use tradewind_client::parts::{Parts, Plan};
use tradewind_common::layout::Bucket;
use tradewind_common::{BlockId, Compression, Layout};

use crate::c10d::C10dError;
use crate::flat::{Flat, FlatError};
use crate::group::{Group, GroupError};
use buffers::Buffers;
use shared::{Shared, SharedBuckets};
use staged::Staged;

pub use fresh::Fresh;
pub use shared::InPlace;

/// Why the host's side could not do its part.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The device, or libtorch.
    #[error(transparent)]
    Device(#[from] C10dError),
    /// The flat vector.
    #[error(transparent)]
    Flat(#[from] FlatError),
    /// The group, in which buffers are averaged.
    #[error(transparent)]
    Group(#[from] GroupError),
}

/// The path of whole gradients to main memory: what backward leaves is pushed when the ranks have agreed.
pub trait GradientPath {
    /// Before a step's forward and backward. Gradients come multiplied with the loss's scale, the inverse
    /// of `factor`, which is a power of two.
    fn begin(&mut self, factor: f64) -> Result<(), HostError>;

    /// With [`Leaves::later`]: now, as the group has them.
    fn leave(&mut self, group: &dyn Group) -> Result<(), HostError>;

    /// After a backward, and after the buffers were [taken](Buffers::take): waits until the step is
    /// computed.
    fn check(&mut self, loss: &Tensor, group: &dyn Group) -> Result<Checked, HostError>;

    /// Multiplies a finite gradient by `factor`, the one that the step began with, unless that has been
    /// done on the way.
    fn unscale(&mut self, factor: f64, group: &dyn Group);

    /// With [`Leaves::later`]: multiplies a finite gradient, which is [unscaled](Self::unscale), by `factor`, and
    /// lets it leave.
    fn shorten(&mut self, factor: f64, group: &dyn Group) -> Result<(), HostError>;

    /// What the step that was checked pushes. At most once a step, and not for one that is skipped.
    ///
    /// # Safety
    /// While what this returns is held, or what was taken of it, nobody writes the gradients: no backward, no other
    /// call of this path, no operation in place on what the group or a tensor's `grad` lends.
    unsafe fn push<'a>(&mut self, group: &'a dyn Group, buffers: &'a Buffers) -> Pushed<'a>;
}

/// The path of gradients to main memory bucket by bucket, during backward.
pub trait BucketPath {
    /// Before a backward: each of its buckets is given to `parts` as it comes; one that is not finite is
    /// skipped.
    fn begin(&mut self, parts: &Arc<Parts>) -> Result<(), HostError>;

    /// After a backward, and after the buffers were [taken](Buffers::take): waits until the step is
    /// computed.
    fn check(&mut self, loss: &Tensor) -> Result<Checked, HostError>;
}

/// When buckets leave the device that the model is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaves {
    /// Not when they are reduced: [`GradientPath::leave`] or [`GradientPath::shorten`] says when.
    pub later: bool,
    /// Gradients that there is memory for, in turn.
    pub turns: usize,
}

impl Leaves {
    /// When they are reduced. Their exchange ends before the next backward.
    pub const REDUCED: Self = Self {
        later: false,
        turns: 1,
    };
    /// When they are reduced. Their exchange goes on during the next backward.
    pub const IN_TURNS: Self = Self {
        later: false,
        turns: 2,
    };
    /// Not as backward leaves them. Their exchange ends before the next backward.
    pub const LATER: Self = Self {
        later: true,
        turns: 1,
    };
}

/// What is known of a step after its backward.
#[derive(Clone, Copy, Debug)]
pub struct Checked {
    /// Of the rank's own batch; NaN if it cannot be read.
    pub loss: f64,
    /// Buckets whose gradients are not finite.
    pub bad: usize,
}

/// What a step pushes.
pub enum Pushed<'a> {
    /// Whatever libtorch has.
    InPlace(InPlace<'a>),
    /// What was copied, and is there when its copies are done.
    Parts(Arc<Parts>),
}

/// The host's side of a model, of which a rank exchanges its slice: makes what is the rank's for one
/// incarnation of its group.
pub struct HostSide {
    layout: Arc<Layout>,
    buckets: Arc<[Bucket]>,
    slice: Vec<BlockId>,
    plan: Arc<Plan>,
    staged: bool,
    up: Compression,
}

impl HostSide {
    /// For a group that averages in `buckets`. `staged` is by way of memory for it: needed where the model
    /// is on a device. Gradients travel as `up` says.
    pub fn new(
        layout: &Arc<Layout>,
        buckets: &Arc<[Bucket]>,
        slice: Vec<BlockId>,
        staged: bool,
        up: Compression,
    ) -> Self {
        Self {
            plan: Arc::new(Plan::new(layout, buckets, &slice)),
            layout: layout.clone(),
            buckets: buckets.clone(),
            slice,
            staged,
            up,
        }
    }

    /// The flat vector's blocks.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Those of the group.
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// The blocks that the rank exchanges.
    pub fn slice(&self) -> &[BlockId] {
        &self.slice
    }

    /// What of each bucket the rank sends.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The path of whole gradients, which are on `group`'s device. From here on `group` tells it of its
    /// buckets, if it has to.
    pub fn gradient_path(
        &self,
        group: &mut dyn Group,
        leaves: Leaves,
    ) -> Result<Box<dyn GradientPath>, HostError> {
        Ok(match self.staged {
            true => Box::new(self.stage(group, leaves)?),
            false => Box::new(Shared::new(&self.layout, &self.buckets)),
        })
    }

    /// The path bucket by bucket of gradients, which are on `group`'s device. From here on `group` tells it
    /// of its buckets.
    pub fn bucket_path(&self, group: &mut dyn Group) -> Result<Box<dyn BucketPath>, HostError> {
        Ok(match self.staged {
            true => Box::new(self.stage(group, Leaves::REDUCED)?),
            false => Box::new(SharedBuckets::new(group)?),
        })
    }

    /// Where the slice's fresh values come beside `flat`.
    pub fn fresh(&self, flat: &Flat) -> Result<Box<dyn Fresh>, HostError> {
        let runs = self.layout.runs(&self.slice).into_iter();
        let stretches = runs.flat_map(|run| flat.memory().stretches(&run).collect::<Vec<_>>());
        let slice: Vec<_> = stretches.collect();
        Ok(match self.staged {
            true => Box::new(fresh::Double::new(&self.layout, &slice, flat)?),
            false => Box::new(fresh::Beside::new(&self.layout, slice)),
        })
    }

    /// The model's buffers.
    pub fn buffers(&self, flat: &Flat) -> Result<Buffers, HostError> {
        Buffers::new(&self.layout, flat, self.staged)
    }

    fn stage(&self, group: &mut dyn Group, leaves: Leaves) -> Result<Staged, HostError> {
        Staged::new(&self.buckets, &self.plan, group, self.up, leaves)
    }
}

#[cfg(test)]
mod tests;
