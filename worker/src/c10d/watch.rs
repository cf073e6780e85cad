//! Being told of gradients while backward runs.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use tch::Tensor;

use super::{C10dError, check, ffi, made};

/// Told of a bucket and its gradients, a contiguous f32 tensor of one dimension, from whichever
/// thread made them final. On a GPU they are final in the order of that thread's current stream. A
/// panic in it ends the process: there is no Rust above it to unwind to.
pub type Told = Arc<dyn Fn(usize, &Tensor) + Send + Sync>;

/// Tells when the gradients of each bucket are there, on a rank without peers. Its hooks sit on the
/// tensors until it is dropped.
#[derive(Debug)]
pub struct Watch {
    raw: NonNull<ffi::Watch>,
}

// SAFETY: the C++ object has no thread affinity; its hooks run inside backward, on the CPU in the
// calling thread, on a GPU in one of autograd's while the calling one waits.
unsafe impl Send for Watch {}

impl Watch {
    /// Bucket `i` holds the next `bucket_sizes[i]` tensors; their `.grad` lie one after the other,
    /// and stay where they are.
    pub fn new(tensors: &[Tensor], bucket_sizes: &[usize], told: Told) -> Result<Self, C10dError> {
        let (got, want) = (tensors.len(), bucket_sizes.iter().sum());
        if got != want {
            return Err(C10dError::Length { got, want });
        }
        let raw: Vec<*const c_void> = tensors.iter().map(|t| t.as_ptr().cast()).collect();
        let (tell, release, context) = handed_over(told);
        let mut out = std::ptr::null_mut();
        // SAFETY: `raw` holds as many live tensors as `bucket_sizes` adds up to; the watch takes
        // references of its own to them. The C side releases the context, also when it fails.
        let message = unsafe {
            ffi::tradewind_watch_new(
                raw.as_ptr(),
                bucket_sizes.as_ptr(),
                bucket_sizes.len(),
                tell,
                release,
                context,
                &mut out,
            )
        };
        Ok(Self {
            raw: made("watching gradients", message, out)?,
        })
    }

    /// Before every backward.
    pub fn prepare(&mut self) -> Result<(), C10dError> {
        // SAFETY: `raw` is live and exclusively borrowed.
        check("preparing backward", unsafe {
            ffi::tradewind_watch_prepare(self.raw.as_ptr())
        })
    }

    /// After every backward: tells of the buckets in which a tensor had no part in the loss.
    pub fn finish(&mut self) -> Result<(), C10dError> {
        // SAFETY: `raw` is live and exclusively borrowed.
        check("finishing backward", unsafe {
            ffi::tradewind_watch_finish(self.raw.as_ptr())
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // SAFETY: `raw` came from this library and is freed once; its hooks go with it.
        unsafe { ffi::tradewind_watch_free(self.raw.as_ptr()) }
    }
}

/// What the C side keeps until it calls the second function, once.
pub(super) fn handed_over(told: Told) -> (ffi::Told, ffi::Release, *mut c_void) {
    (tell, release, Box::into_raw(Box::new(told)).cast())
}

/// # Safety
/// `context` is of [`handed_over`] and not released; `gradient` is a live tensor that nobody
/// writes meanwhile.
unsafe extern "C" fn tell(context: *mut c_void, bucket: usize, gradient: *mut c_void) {
    // SAFETY: as promised; the caller's handle is borrowed, not dropped.
    let (told, gradient) = unsafe {
        let told = &*context.cast::<Told>();
        let gradient = ManuallyDrop::new(Tensor::from_ptr(gradient.cast()));
        (told, gradient)
    };
    told(bucket, &gradient);
}

/// # Safety
/// `context` is of [`handed_over`] and released once.
unsafe extern "C" fn release(context: *mut c_void) {
    // SAFETY: as promised.
    drop(unsafe { Box::from_raw(context.cast::<Told>()) });
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// What the C side does with it, in its place: nothing of libtorch is called, so that Miri can look.
    #[test]
    fn what_was_handed_over_is_told_and_released_once() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (tell, release, context) = handed_over({
            let seen = seen.clone();
            Arc::new(move |bucket, gradient| {
                seen.lock()
                    .unwrap()
                    .push((bucket, gradient.as_ptr() as usize));
            })
        });
        let gradient = NonNull::<c_void>::dangling().as_ptr();
        // SAFETY: the context is not released; only the address of the gradient is asked for.
        unsafe {
            tell(context, 3, gradient);
            tell(context, 1, gradient);
        }
        assert_eq!(
            *seen.lock().unwrap(),
            [3, 1].map(|bucket| (bucket, gradient as usize))
        );
        assert_eq!(Arc::strong_count(&seen), 2);
        // SAFETY: once.
        unsafe { release(context) };
        assert_eq!(Arc::strong_count(&seen), 1);
    }
}
