//! Work beside the computation: streams, events, page-locked memory, and the few operations that
//! are used there.
//!
//! On a GPU they are CUDA's, and nothing here waits for the whole device. The *current* stream is
//! that of the calling thread, on which the model computes. In main memory the computation is
//! whoever calls, and a stream is a queue that nobody works on before its work is waited
//! for.

mod batch_memory;
mod ffi;
mod page_locked;
mod queue;

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use tch::{Device, Tensor};

use crate::c10d::{C10dError, check, made, without_stack};

pub use self::batch_memory::BatchMemory;
pub use self::page_locked::PageLocked;

/// Makes a GPU the calling thread's, for good, as whatever is done here with its streams and events does:
/// a thread on none is on the first one, and would make a context there.
pub fn take(device: Device) -> Result<(), C10dError> {
    match cuda(device) {
        // SAFETY: a number goes in.
        Some(index) => check("taking a device", unsafe {
            ffi::tradewind_device_take(index)
        }),
        None => Ok(()),
    }
}

/// A stream beside the computation's.
pub struct Stream(Place);

enum Place {
    Cuda {
        index: c_int,
        raw: NonNull<ffi::Stream>,
    },
    Main(queue::Queue),
}

// SAFETY: a handle without thread affinity; libtorch's own streams are shared between threads.
unsafe impl Send for Stream {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream of `device`.
    pub fn new(device: Device) -> Result<Self, C10dError> {
        let Some(index) = cuda(device) else {
            return Ok(Self(Place::Main(queue::Queue::default())));
        };
        let mut out = std::ptr::null_mut();
        // SAFETY: `out` outlives the call.
        let message = unsafe { ffi::tradewind_stream_new(index, &mut out) };
        let raw = made("making a stream", message, out)?;
        Ok(Self(Place::Cuda { index, raw }))
    }

    /// Has `work` done after what was enqueued before: it enqueues on the current stream, which is
    /// this one meanwhile, and waits for nothing.
    pub fn enqueue(
        &self,
        work: impl FnOnce() -> Result<(), C10dError> + Send + 'static,
    ) -> Result<(), C10dError> {
        match &self.0 {
            Place::Cuda { .. } => self.with(work)?,
            Place::Main(queue) => {
                queue.push(Box::new(work));
                Ok(())
            }
        }
    }

    /// What is enqueued from now on comes after `event`.
    pub fn after(&self, event: Event) -> Result<(), C10dError> {
        self.enqueue(move || event.block())
    }

    /// All that is enqueued so far.
    pub fn event(&self) -> Result<Event, C10dError> {
        match &self.0 {
            Place::Cuda { index, .. } => self.with(|| Event::record(*index))?,
            Place::Main(queue) => Ok(Event(Moment::Main(queue.end()))),
        }
    }

    /// Does `work` at once with this stream as the current one, on a GPU: what it enqueues there is beside the
    /// computation.
    pub fn with<T>(&self, work: impl FnOnce() -> T) -> Result<T, C10dError> {
        let Place::Cuda { raw, .. } = &self.0 else {
            return Ok(work());
        };
        let mut before = std::ptr::null_mut();
        // SAFETY: `raw` is live; `before` outlives the call.
        let message = unsafe { ffi::tradewind_stream_enter(raw.as_ptr(), &mut before) };
        let _left = Before(made("entering a stream", message, before)?);
        Ok(work())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Place::Cuda { raw, .. } = &self.0 {
            // SAFETY: it came from `new` and is freed once.
            unsafe { ffi::tradewind_stream_free(raw.as_ptr()) }
        }
    }
}

/// The stream that was current, and is again when this is dropped, on the same thread.
struct Before(NonNull<ffi::Stream>);

impl Drop for Before {
    fn drop(&mut self) {
        // SAFETY: it came from `tradewind_stream_enter` and is given back once.
        let left = check("leaving a stream", unsafe {
            ffi::tradewind_stream_leave(self.0.as_ptr())
        });
        left.expect("a stream that was current can be so again");
    }
}

/// The work of a stream up to a moment.
pub struct Event(Moment);

enum Moment {
    Cuda(NonNull<ffi::Event>),
    Main(queue::Place),
    /// The computation in main memory has no work that is not done.
    Past,
}

// SAFETY: CUDA's events may be waited for and freed from any thread.
unsafe impl Send for Event {}

impl Event {
    /// What the computation on `device` has been told to do so far.
    pub fn now(device: Device) -> Result<Self, C10dError> {
        cuda(device).map_or(Ok(Self(Moment::Past)), Self::record)
    }

    fn record(index: c_int) -> Result<Self, C10dError> {
        let mut out = std::ptr::null_mut();
        // SAFETY: `out` outlives the call.
        let message = unsafe { ffi::tradewind_event_record(index, &mut out) };
        let raw = made("recording an event", message, out)?;
        Ok(Self(Moment::Cuda(raw)))
    }

    /// What comes on the current stream is done after it. The caller does not wait, on a GPU.
    pub fn block(&self) -> Result<(), C10dError> {
        match &self.0 {
            // SAFETY: it is live.
            Moment::Cuda(raw) => check("ordering streams", unsafe {
                ffi::tradewind_event_block(raw.as_ptr())
            }),
            Moment::Main(_) | Moment::Past => self.wait(),
        }
    }

    /// Waits until it is done: then main memory holds what was copied there.
    pub fn wait(&self) -> Result<(), C10dError> {
        match &self.0 {
            // SAFETY: it is live.
            Moment::Cuda(raw) => check("waiting for a device", unsafe {
                ffi::tradewind_event_wait(raw.as_ptr())
            }),
            Moment::Main(place) => place.reach(),
            Moment::Past => Ok(()),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Moment::Cuda(raw) = &self.0 {
            // SAFETY: it came from `record` and is freed once.
            unsafe { ffi::tradewind_event_free(raw.as_ptr()) }
        }
    }
}

/// Copies values, on the current stream.
pub fn copy(to: &Tensor, from: &Tensor) -> Result<(), C10dError> {
    // SAFETY: both are live tensors.
    check("copying values", unsafe {
        ffi::tradewind_copy(raw(to), raw(from))
    })
}

/// Copies each of `from` to its place in `to`, in few launches.
pub fn copy_each(to: &[Tensor], from: &[Tensor]) -> Result<(), C10dError> {
    assert_eq!(to.len(), from.len(), "a place for each");
    if to.is_empty() {
        return Ok(());
    }
    let raw = |tensors: &[Tensor]| -> Vec<_> { tensors.iter().map(raw).collect() };
    let (to, from) = (raw(to), raw(from));
    // SAFETY: both hold so many live tensors.
    check("copying values", unsafe {
        ffi::tradewind_copy_each(to.as_ptr(), from.as_ptr(), to.len())
    })
}

/// Makes `flag` 1 if a value is NaN or infinite, and leaves it alone otherwise; multiplies all by
/// `factor`. Both are one f32 on the device of `values`.
pub fn check_and_scale(values: &Tensor, flag: &Tensor, factor: &Tensor) -> Result<(), C10dError> {
    // SAFETY: all are live tensors.
    check("checking a gradient", unsafe {
        ffi::tradewind_check_and_scale(raw(values), raw(flag), raw(factor))
    })
}

/// The memory of `tensor` is not used for another one before the current stream has done what it
/// was told so far, even if the tensor is freed.
pub fn in_use(tensor: &Tensor) -> Result<(), C10dError> {
    if cuda(tensor.device()).is_none() {
        return Ok(());
    }
    // SAFETY: a live tensor.
    check("keeping memory", unsafe {
        ffi::tradewind_in_use(raw(tensor))
    })
}

/// What libtorch said to an operation that tch wraps.
pub(crate) fn torch(what: &'static str) -> impl Fn(tch::TchError) -> C10dError {
    move |error| C10dError::Torch {
        what,
        message: without_stack(&error.to_string()),
    }
}

fn raw(tensor: &Tensor) -> *mut c_void {
    tensor.as_ptr().cast_mut().cast()
}

fn cuda(device: Device) -> Option<c_int> {
    match device {
        Device::Cuda(index) => Some(index as c_int),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn work_in_main_memory_is_done_in_order_and_only_when_it_is_waited_for() {
        let [out, back] = [(); 2].map(|()| Stream::new(Device::Cpu).unwrap());
        let done = Arc::new(Mutex::new(Vec::new()));
        let note = |what| {
            let done = done.clone();
            move || {
                done.lock().unwrap().push(what);
                Ok(())
            }
        };
        back.enqueue(note("back")).unwrap();
        out.enqueue(note("first")).unwrap();
        let first = out.event().unwrap();
        out.after(back.event().unwrap()).unwrap();
        out.enqueue(note("second")).unwrap();
        let second = out.event().unwrap();
        let seen = || done.lock().unwrap().clone();
        assert!(seen().is_empty());
        first.wait().unwrap();
        assert_eq!(seen(), ["first"]);
        second.block().unwrap();
        first.wait().unwrap();
        assert_eq!(seen(), ["first", "back", "second"]);
    }

    #[test]
    fn a_failure_is_told_to_whoever_waits() {
        let stream = Stream::new(Device::Cpu).unwrap();
        let short = Tensor::from_slice(&[1f32]);
        let long = Tensor::from_slice(&[1f32, 2.0, 3.0]);
        stream.enqueue(move || copy(&short, &long)).unwrap();
        let error = stream.event().unwrap().wait().unwrap_err().to_string();
        assert!(error.contains("copying values"), "{error}");
    }

    #[test]
    fn one_bad_value_raises_the_flag_and_none_lowers_it() {
        let check = |values: &[f32], before: f32, want: (f32, &[f32])| {
            let values = Tensor::from_slice(values);
            let (flag, factor) = (
                Tensor::from_slice(&[before]),
                Tensor::from_slice(&[0.25f32]),
            );
            check_and_scale(&values, &flag, &factor).unwrap();
            assert_eq!(flag.double_value(&[0]) as f32, want.0);
            if want.0 == 0.0 {
                assert_eq!(Vec::<f32>::try_from(values).unwrap(), want.1);
            }
        };
        check(&[4.0, -8.0], 0.0, (0.0, &[1.0, -2.0]));
        check(&[4.0, f32::NAN], 0.0, (1.0, &[]));
        check(&[f32::INFINITY, 1.0], 0.0, (1.0, &[]));
        check(&[4.0, -8.0], 1.0, (1.0, &[]));
    }
}
