//! DDP's `Reducer`.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::time::Duration;

use tch::Tensor;

use super::watch::{self, Told};
use super::{C10dError, ProcessGroup, check, ffi, made};

/// DDP's `Reducer`: averages gradients over the ranks, bucket by bucket, while backward is still
/// computing others. Its hooks sit on the tensors until it is dropped.
#[derive(Debug)]
pub struct Reducer {
    raw: NonNull<ffi::Reducer>,
}

// SAFETY: as for Store. Its hooks run inside backward: on the CPU in the calling thread, on a GPU in
// one of autograd's while the calling one waits.
unsafe impl Send for Reducer {}

impl Reducer {
    /// A reducer over f32 leaf tensors that require gradients, in the order in which backward
    /// finishes them. Bucket `i` holds the next `bucket_sizes[i]` tensors.
    pub fn new(
        group: &ProcessGroup,
        tensors: &[Tensor],
        bucket_sizes: &[usize],
    ) -> Result<Self, C10dError> {
        let want = bucket_sizes.iter().sum();
        if tensors.len() != want {
            return Err(C10dError::Length {
                got: tensors.len(),
                want,
            });
        }
        let raw: Vec<*const c_void> = tensors.iter().map(|t| t.as_ptr().cast()).collect();
        let mut out = std::ptr::null_mut();
        // SAFETY: `raw` holds as many live tensors as `bucket_sizes` adds up to, and the reducer
        // takes references of its own to them and to the group.
        let message = unsafe {
            ffi::tradewind_reducer_new(
                group.raw.as_ptr(),
                raw.as_ptr(),
                bucket_sizes.as_ptr(),
                bucket_sizes.len(),
                &mut out,
            )
        };
        Ok(Self {
            raw: made("preparing the reduction of gradients", message, out)?,
        })
    }

    /// Tells of every bucket in each backward from the next one on, from a thread of the group, as
    /// soon as it is reduced. At most once, before the first backward.
    pub fn watch(&mut self, told: Told) -> Result<(), C10dError> {
        let (tell, release, context) = watch::handed_over(told);
        // SAFETY: `raw` is live and exclusively borrowed; the C side releases the context.
        check("watching the reduction of gradients", unsafe {
            ffi::tradewind_reducer_watch(self.raw.as_ptr(), tell, release, context)
        })
    }

    /// Before every backward: forgets the gradients of the step before.
    pub fn prepare(&mut self) -> Result<(), C10dError> {
        // SAFETY: `raw` is live and exclusively borrowed.
        check("preparing backward", unsafe {
            ffi::tradewind_reducer_prepare(self.raw.as_ptr())
        })
    }

    /// After every backward: how long backward, its computation done, waited for reductions.
    /// `None` if some tensor received no gradient, in which case buckets are unfinished.
    pub fn finish(&mut self) -> Result<Option<Duration>, C10dError> {
        let mut exposed_ns = -1;
        // SAFETY: `raw` is live and exclusively borrowed; `exposed_ns` outlives the call.
        check("finishing backward", unsafe {
            ffi::tradewind_reducer_finish(self.raw.as_ptr(), &mut exposed_ns)
        })?;
        Ok(u64::try_from(exposed_ns).ok().map(Duration::from_nanos))
    }

    /// How long the reductions of the last backward took: from the launch of the first to the end of
    /// the last, for which this waits; `None` if it is not known.
    pub fn reduced(&self) -> Result<Option<Duration>, C10dError> {
        let mut took_ns = -1;
        // SAFETY: `raw` is live; `took_ns` outlives the call.
        check("reading how long reductions took", unsafe {
            ffi::tradewind_reducer_reduced(self.raw.as_ptr(), &mut took_ns)
        })?;
        Ok(u64::try_from(took_ns).ok().map(Duration::from_nanos))
    }

    /// The gradients of a bucket's tensors, one after the other: a handle of the tensor that every
    /// backward writes, of one dimension, f32, contiguous.
    pub fn bucket(&self, bucket: usize) -> Result<Tensor, C10dError> {
        let mut tensor = std::ptr::null_mut();
        // SAFETY: `raw` is live; the out-pointer outlives the call.
        let message =
            unsafe { ffi::tradewind_reducer_bucket(self.raw.as_ptr(), bucket, &mut tensor) };
        let tensor = made("reading a bucket", message, tensor)?;
        // SAFETY: the C side has made this handle for us, and the tensor keeps its memory alive.
        Ok(unsafe { Tensor::from_ptr(tensor.as_ptr().cast()) })
    }
}

impl Drop for Reducer {
    fn drop(&mut self) {
        // SAFETY: `raw` came from this library and is freed once.
        unsafe { ffi::tradewind_reducer_free(self.raw.as_ptr()) }
    }
}
