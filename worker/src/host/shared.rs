//! A model in main memory: what libtorch has is what is pushed.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tch::Tensor;
use tradewind_client::parts::Parts;
use tradewind_common::finite::all_finite;
use tradewind_common::layout::Bucket;
use tradewind_common::{BlockId, Layout, TensorKind};

use super::{BucketPath, Checked, GradientPath, HostError, Pushed};
use crate::c10d;
use crate::group::{Group, GroupError};
use crate::host::buffers::Buffers;

/// The path of whole gradients: there is none to go.
pub(super) struct Shared {
    layout: Arc<Layout>,
    buckets: Arc<[Bucket]>,
}

impl Shared {
    pub(super) fn new(layout: &Arc<Layout>, buckets: &Arc<[Bucket]>) -> Self {
        Self {
            layout: layout.clone(),
            buckets: buckets.clone(),
        }
    }

    fn gradients<'a>(&self, group: &'a dyn Group) -> impl Iterator<Item = &'a Tensor> {
        (0..self.buckets.len()).map(|bucket| group.gradient(bucket))
    }
}

impl GradientPath for Shared {
    fn begin(&mut self, _factor: f64) -> Result<(), HostError> {
        Ok(())
    }

    fn leave(&mut self, _group: &dyn Group) -> Result<(), HostError> {
        Ok(())
    }

    fn check(&mut self, loss: &Tensor, group: &dyn Group) -> Result<Checked, HostError> {
        let gradients = self.gradients(group);
        // SAFETY: the slice ends here, between a backward and the next, on the thread that runs them.
        let bad = gradients.filter(|gradient| !all_finite(unsafe { plain(gradient) }));
        Ok(Checked {
            bad: bad.count(),
            loss: read(loss),
        })
    }

    /// Exactly where the factor is a power of two.
    fn unscale(&mut self, factor: f64, group: &dyn Group) {
        for gradient in self.gradients(group) {
            let _ = gradient.shallow_clone().g_mul_scalar_(factor);
        }
    }

    fn shorten(&mut self, factor: f64, group: &dyn Group) -> Result<(), HostError> {
        if factor != 1.0 {
            self.unscale(factor, group);
        }
        Ok(())
    }

    unsafe fn push<'a>(&mut self, group: &'a dyn Group, buffers: &'a Buffers) -> Pushed<'a> {
        Pushed::InPlace(InPlace {
            group,
            layout: self.layout.clone(),
            buckets: self.buckets.clone(),
            buffers,
        })
    }
}

/// The path bucket by bucket: the group's threads copy what is reduced.
pub(super) struct SharedBuckets {
    /// To where: those of the exchange that was begun last.
    open: Arc<Mutex<Option<Arc<Parts>>>>,
}

impl SharedBuckets {
    /// `group` tells this of its buckets from here on.
    pub(super) fn new(group: &mut dyn Group) -> Result<Self, GroupError> {
        let open = Arc::<Mutex<Option<Arc<Parts>>>>::default();
        let told = open.clone();
        group.watch(Arc::new(move |bucket, gradient| {
            let parts = lock(&told).clone();
            let parts = parts.expect("opened before backward");
            // SAFETY: whoever tells of a bucket waits for this, and lets nobody write the bucket meanwhile.
            let gradient = unsafe { plain(gradient) };
            parts.give(bucket, all_finite(gradient).then_some(gradient));
        }))?;
        Ok(Self { open })
    }
}

impl BucketPath for SharedBuckets {
    fn begin(&mut self, parts: &Arc<Parts>) -> Result<(), HostError> {
        *lock(&self.open) = Some(parts.clone());
        Ok(())
    }

    fn check(&mut self, loss: &Tensor) -> Result<Checked, HostError> {
        let open = lock(&self.open);
        Ok(Checked {
            bad: open.as_ref().map_or(0, |parts| parts.skipped()),
            loss: read(loss),
        })
    }
}

fn lock(open: &Mutex<Option<Arc<Parts>>>) -> MutexGuard<'_, Option<Arc<Parts>>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(loss: &Tensor) -> f64 {
    f64::try_from(loss).unwrap_or(f64::NAN)
}

/// Gradients where the group has them, and what has become of buffers.
pub struct InPlace<'a> {
    group: &'a dyn Group,
    layout: Arc<Layout>,
    buckets: Arc<[Bucket]>,
    buffers: &'a Buffers,
}

impl<'a> InPlace<'a> {
    /// What a step pushes for a block: the gradient of parameters, the values of buffers. Copied only where
    /// the block has parts of several buckets.
    ///
    /// # Panics
    /// If there is no such block.
    pub fn block(&self, id: BlockId) -> Cow<'a, [f32]> {
        let block = self.layout.block(id).expect("a block of the slice");
        match block.kind {
            TensorKind::Parameter => self.gradient(&block.elements),
            TensorKind::Buffer => self.buffers.values(&block.elements).into(),
        }
    }

    fn gradient(&self, elements: &Range<usize>) -> Cow<'a, [f32]> {
        let before = |bucket: &Bucket| bucket.elements.end <= elements.start;
        let first = self.buckets.partition_point(before);
        let reached = self.buckets.iter().enumerate().skip(first);
        let reached = reached.take_while(|(_, bucket)| bucket.elements.start < elements.end);
        let parts = reached.map(|(at, bucket)| {
            let of = &bucket.elements;
            let (begin, end) = (elements.start.max(of.start), elements.end.min(of.end));
            // SAFETY: nobody writes gradients while this is held: whoever called `push` answers for it.
            let gradient = unsafe { plain(self.group.gradient(at)) };
            &gradient[begin - of.start..end - of.start]
        });
        let all = parts.map(Cow::Borrowed);
        let joined = all.reduce(|before, part: Cow<'a, [f32]>| [before, part].concat().into());
        joined.expect("buckets tile the parameters")
    }
}

/// # Safety
/// As for [`c10d::values`].
unsafe fn plain(gradient: &Tensor) -> &[f32] {
    // SAFETY: the caller's.
    let values = unsafe { c10d::values(gradient) };
    values.expect("the group is in main memory, and no bucket is empty")
}
