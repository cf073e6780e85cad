//! The host's side of a model: what its exchanges read and write in main memory.
//!
//! | | shared | staged |
//! |---|---|---|
//! | the model is | in main memory | on a device |
//! | a gradient is pushed from | where libtorch left it | page-locked vectors, to which each bucket is copied while backward goes on |
//! | whether it is finite, and the loss | is looked at where it is | is found out there; one copy brings all of it |
//! | fresh values come | into the flat vector, or into a vector beside it | into page-locked memory, and block by block into a double on the device |
//! | a step begins | with them, or with a copy | with a copy on the device |
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
use tradewind_common::{BlockId, Compression, Layout};

use crate::c10d::C10dError;
use crate::flat::FlatError;
use crate::group::{Group, GroupError};
use buffers::Buffers;

pub use fresh::Fresh;
pub use shared::{InPlace, Shared};
pub use staged::Staged;

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

/// How a rank's gradients are pushed.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// By way of memory for it: needed where the model is on a device.
    pub staged: bool,
    /// While the next step computes.
    pub overlap: bool,
    /// While backward goes on.
    pub by_bucket: bool,
    /// Not as backward leaves them: [`Host::leave`] says when.
    pub later: bool,
    /// In this form.
    pub up: Compression,
}

/// The way of gradients to main memory.
pub enum Host {
    /// They are there.
    Shared(Shared),
    /// They are copied.
    Staged(Staged),
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

impl Host {
    /// The side of a model whose groups' gradients are on `group`'s device. From here on `group`
    /// tells this of its buckets, if it has to.
    pub fn new(
        layout: &Layout,
        plan: &Arc<Plan>,
        group: &mut dyn Group,
        how: How,
    ) -> Result<Self, HostError> {
        Ok(if how.staged {
            Self::Staged(Staged::new(layout, plan, group, how)?)
        } else {
            Self::Shared(Shared::new(layout, group, how.by_bucket)?)
        })
    }

    /// Before a step's forward and backward. Gradients come multiplied with the loss's scale, the
    /// inverse of `factor`, which is a power of two. With `parts`, each bucket is given to them as
    /// it comes.
    pub fn begin(&mut self, factor: f64, parts: Option<&Arc<Parts>>) -> Result<(), HostError> {
        match self {
            Self::Shared(shared) => shared.begin(parts),
            Self::Staged(staged) => staged.begin(factor, parts)?,
        }
        Ok(())
    }

    /// Where gradients are pushed later: now, as the group has them.
    pub fn leave(&mut self, group: &dyn Group) -> Result<(), HostError> {
        match self {
            Self::Shared(_) => Ok(()),
            Self::Staged(staged) => staged.leave(group),
        }
    }

    /// After a backward, and after the buffers were [taken](Buffers::take): waits until
    /// the step is computed.
    pub fn check(&mut self, loss: &Tensor, group: &dyn Group) -> Result<Checked, HostError> {
        match self {
            Self::Shared(shared) => Ok(shared.check(loss, group)),
            Self::Staged(staged) => staged.check(loss),
        }
    }

    /// What the step that was checked pushes, unless it is skipped. At most once a step, and not
    /// where buckets were given as they came.
    pub fn pushed<'a>(
        &mut self,
        group: &'a dyn Group,
        layout: &'a Layout,
        buffers: &'a Buffers,
    ) -> Pushed<'a> {
        match self {
            Self::Shared(_) => Pushed::InPlace(InPlace::new(group, layout, buffers)),
            Self::Staged(staged) => Pushed::Parts(staged.push(layout, buffers)),
        }
    }
}

/// Adjoining blocks of a slice as one range of the flat vector.
fn runs(layout: &Layout, slice: &[BlockId]) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for id in slice {
        let elements = &layout.block(*id).expect("a block of the slice").elements;
        match runs.last_mut() {
            Some(run) if run.end == elements.start => run.end = elements.end,
            _ => runs.push(elements.clone()),
        }
    }
    runs
}

#[cfg(test)]
mod tests;
