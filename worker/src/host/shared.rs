//! A model in main memory: what libtorch has is what is pushed.

use std::sync::{Arc, Mutex, PoisonError};

use tch::Tensor;
use tradewind_client::parts::Parts;
use tradewind_common::finite::all_finite;
use tradewind_common::{BlockId, Layout, TensorKind};

use super::Checked;
use crate::c10d;
use crate::group::{Group, GroupError};
use crate::host::buffers::Buffers;

/// See [`Host::Shared`](super::Host::Shared).
pub struct Shared {
    /// Where the group's threads give what is reduced, if it goes bucket by bucket.
    open: Arc<Mutex<Option<Arc<Parts>>>>,
    buckets: usize,
}

impl Shared {
    /// Where exchanges go bucket by bucket, `group` tells this of its buckets from here on.
    pub fn new(
        layout: &Layout,
        group: &mut dyn Group,
        by_bucket: bool,
    ) -> Result<Self, GroupError> {
        let open = Arc::<Mutex<Option<Arc<Parts>>>>::default();
        if by_bucket {
            let open = open.clone();
            group.watch(Arc::new(move |bucket, gradient| {
                let parts = open.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let parts = parts.expect("opened before backward");
                let gradient = plain(gradient);
                parts.give(bucket, all_finite(gradient).then_some(gradient));
            }))?;
        }
        Ok(Self {
            open,
            buckets: layout.buckets.len(),
        })
    }

    pub(super) fn begin(&mut self, parts: Option<&Arc<Parts>>) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = parts.cloned();
    }

    pub(super) fn check(&self, loss: &Tensor, group: &dyn Group) -> Checked {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let bad = match &*open {
            Some(parts) => parts.skipped(),
            None => {
                let gradients = (0..self.buckets).filter_map(|bucket| group.gradient(bucket));
                gradients
                    .filter(|gradient| !all_finite(plain(gradient)))
                    .count()
            }
        };
        let loss = f64::try_from(loss).unwrap_or(f64::NAN);
        Checked { loss, bad }
    }
}

/// Gradients where the group has them, and what has become of buffers.
pub struct InPlace<'a> {
    group: &'a dyn Group,
    layout: &'a Layout,
    buffers: &'a Buffers,
}

impl<'a> InPlace<'a> {
    pub(super) fn new(group: &'a dyn Group, layout: &'a Layout, buffers: &'a Buffers) -> Self {
        Self {
            group,
            layout,
            buffers,
        }
    }

    /// What a step pushes for a block: the gradient of parameters, the values of buffers.
    ///
    /// # Panics
    /// If there is no such block.
    pub fn block(&self, id: BlockId) -> &'a [f32] {
        let block = self.layout.block(id).expect("a block of the slice");
        match block.kind {
            TensorKind::Parameter => self.gradient(id),
            TensorKind::Buffer => self.buffers.values(&block.elements),
        }
    }

    fn gradient(&self, id: BlockId) -> &'a [f32] {
        let holds = |blocks: &std::ops::Range<usize>| blocks.contains(&(id.0 as usize));
        let buckets = &self.layout.buckets;
        let at = buckets.iter().position(|b| holds(&b.blocks));
        let at = at.expect("every block has a bucket");
        let (bucket, block) = (&buckets[at], &self.layout.blocks[id.0 as usize]);
        let gradient = self.group.gradient(at).expect("parameters have a gradient");
        let start = block.elements.start - bucket.elements.start;
        &plain(gradient)[start..start + block.elements.len()]
    }
}

fn plain(gradient: &Tensor) -> &[f32] {
    c10d::values(gradient).expect("the group is in main memory, and no bucket is empty")
}
