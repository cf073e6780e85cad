//! libtorch's c10d, made safe: a rendezvous store, a group of ranks, DDP's `Reducer`; and the
//! memory of tensors as slices.
//!
//! This file and those under `c10d/` are one part of the bridge, where the worker is unsafe; the others
//! are `stream.rs` and `precision.rs` with what is under them, and `device/` where libraries are
//! loaded. `csrc/c10d.h` states the conventions of the C side: a call returns null or a message,
//! objects belong to one thread at a time.

mod breaker;
mod ffi;
mod memory;
mod message;
mod nccl;
mod reducer;
mod store;
mod watch;

use std::ffi::{CString, c_char, c_int};
use std::ptr::NonNull;
use std::time::Duration;

use tch::Tensor;

pub use self::breaker::Breaker;
pub use self::memory::{set_grad, values, values_mut};
pub(crate) use self::message::{Message, check, made, without_stack};
pub use self::nccl::{Nccl, NcclError};
pub use self::reducer::Reducer;
pub use self::store::Store;
pub use self::watch::{Told, Watch};

/// Why a call into c10d failed.
#[derive(Debug, thiserror::Error)]
pub enum C10dError {
    /// c10d refused or failed: what was tried, and c10d's own words.
    #[error("{what}: {message}")]
    Torch {
        /// What was tried.
        what: &'static str,
        /// The exception's text, without its stack.
        message: String,
    },
    /// No socket for the store.
    #[error("cannot serve a store on {host}: {source}")]
    Listen {
        /// The address that was asked for.
        host: String,
        /// Why not.
        source: std::io::Error,
    },
    /// A name that C cannot hold.
    #[error("the name {0:?} contains a zero byte")]
    Name(String),
    /// Slices whose lengths do not fit each other.
    #[error("a buffer of {got} elements where {want} are needed")]
    Length {
        /// Its length.
        got: usize,
        /// The length that was needed.
        want: usize,
    },
}

/// An element type of collectives.
pub trait Element: sealed::Element {}
impl<T: sealed::Element> Element for T {}

mod sealed {
    /// The C side's number of a type of plain numbers.
    pub trait Element: Copy {
        const TYPE: std::ffi::c_int;
    }
    impl Element for f32 {
        const TYPE: std::ffi::c_int = 0;
    }
    impl Element for f64 {
        const TYPE: std::ffi::c_int = 1;
    }
    impl Element for i64 {
        const TYPE: std::ffi::c_int = 2;
    }
}

/// Ranks that are connected to each other. All ranks make the same calls in the same order.
///
/// Dropping it breaks the collectives that are under way, and waits for their end. Those on a GPU of
/// a group that is whole come to their end before, as long as a peer was waited for at the meeting.
#[derive(Debug)]
pub struct ProcessGroup {
    raw: NonNull<ffi::Group>,
    size: u32,
}

// SAFETY: as for Store.
unsafe impl Send for ProcessGroup {}

impl ProcessGroup {
    /// Joins the `size` ranks that meet in `store` under `prefix`, which is used only once in a
    /// store; returns when all are connected, or with an error after `timeout`. Collectives have
    /// no timeout. `host` names this rank's network address.
    pub fn new(
        store: &Store,
        prefix: &str,
        rank: u32,
        size: u32,
        host: &str,
        timeout: Duration,
    ) -> Result<Self, C10dError> {
        let (prefix, host) = (c_string(prefix)?, c_string(host)?);
        let mut out = std::ptr::null_mut();
        // SAFETY: all pointers outlive the call; the group keeps the store's object alive itself.
        let message = unsafe {
            ffi::tradewind_group_new(
                store.raw.as_ptr(),
                prefix.as_ptr(),
                rank as c_int,
                size as c_int,
                host.as_ptr(),
                millis(timeout),
                &mut out,
            )
        };
        Ok(Self {
            raw: made("forming the group", message, out)?,
            size,
        })
    }

    /// Adds NCCL, for tensors on this rank's GPU `device`. All ranks call it; returns when a first
    /// collective has come to its end, or with an error when the group has been broken or `patience`
    /// has passed. After an error the group is of no use.
    pub fn add_nccl(
        &mut self,
        nccl: &Nccl,
        device: usize,
        patience: Duration,
    ) -> Result<(), C10dError> {
        let (raw, device) = (self.raw.as_ptr(), device as c_int);
        // SAFETY: `raw` is live and exclusively borrowed; what `nccl` holds is never freed.
        check("connecting the GPUs", unsafe {
            ffi::tradewind_group_add_nccl(raw, nccl.raw(), device, millis(patience))
        })
    }

    /// The end of the group, before it is dropped: what drop does, with nobody's memory freed.
    pub fn close(&mut self) {
        // SAFETY: `raw` is live and exclusively borrowed.
        unsafe { ffi::tradewind_group_close(self.raw.as_ptr()) }
    }

    /// An error if the group is broken, as far as is known here: see [`Breaker::check`].
    pub fn check(&self) -> Result<(), C10dError> {
        // SAFETY: `raw` is live.
        check("collectives", unsafe {
            ffi::tradewind_group_check(self.raw.as_ptr())
        })
    }

    /// What breaks the group from another thread.
    pub fn breaker(&self) -> Result<Breaker, C10dError> {
        Breaker::new(self)
    }

    /// Sums over the ranks, in place; the same bits on all ranks. All ranks give equal lengths.
    pub fn all_reduce_sum<T: Element>(&self, values: &mut [T]) -> Result<(), C10dError> {
        if values.is_empty() {
            return Ok(());
        }
        let data = values.as_mut_ptr().cast();
        // SAFETY: `values` is exclusively borrowed until the call returns, when the collective
        // has ended, well or not; its type is told.
        check("all-reduce", unsafe {
            ffi::tradewind_all_reduce(self.raw.as_ptr(), data, values.len(), T::TYPE)
        })
    }

    /// Sums a contiguous tensor over the ranks, in place; the same bits on all ranks.
    pub fn all_reduce_sum_tensor(&self, tensor: &mut Tensor) -> Result<(), C10dError> {
        // SAFETY: the tensor is live and exclusively borrowed until the call returns.
        check("all-reduce", unsafe {
            ffi::tradewind_all_reduce_tensor(self.raw.as_ptr(), tensor.as_ptr().cast())
        })
    }

    /// Copies the values of rank `root` to all. All ranks give equal lengths.
    pub fn broadcast<T: Element>(&self, values: &mut [T], root: u32) -> Result<(), C10dError> {
        if values.is_empty() {
            return Ok(());
        }
        let data = values.as_mut_ptr().cast();
        // SAFETY: as in all_reduce_sum.
        check("broadcast", unsafe {
            ffi::tradewind_broadcast(
                self.raw.as_ptr(),
                data,
                values.len(),
                T::TYPE,
                root as c_int,
            )
        })
    }

    /// Copies `own` of every rank, in the order of ranks, into `all`, which is size times as long
    /// as `own`. Bits are kept.
    pub fn all_gather(&self, all: &mut [f32], own: &[f32]) -> Result<(), C10dError> {
        let want = own.len() * self.size as usize;
        if all.len() != want {
            return Err(C10dError::Length {
                got: all.len(),
                want,
            });
        }
        if own.is_empty() {
            return Ok(());
        }
        // SAFETY: the lengths were checked, the slices are borrowed until the collective has
        // ended, and `own` is only read.
        check("all-gather", unsafe {
            ffi::tradewind_all_gather(self.raw.as_ptr(), all.as_mut_ptr(), own.as_ptr(), own.len())
        })
    }
}

impl ProcessGroup {
    /// As [`all_gather`](Self::all_gather), of contiguous f32 tensors of one dimension on the
    /// device of the group.
    pub fn all_gather_tensor(&self, all: &mut Tensor, own: &Tensor) -> Result<(), C10dError> {
        let (got, want) = (all.numel(), own.numel() * self.size as usize);
        if got != want {
            return Err(C10dError::Length { got, want });
        }
        // SAFETY: both tensors are live, `all` is exclusively borrowed and `own` only read. On a GPU
        // the streams keep them until the collective has ended.
        check("all-gather", unsafe {
            ffi::tradewind_all_gather_tensor(
                self.raw.as_ptr(),
                all.as_ptr().cast(),
                own.as_ptr().cast(),
            )
        })
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // SAFETY: `raw` came from this library and is freed once; a Reducer holds its own
        // reference to what is inside.
        unsafe { ffi::tradewind_group_free(self.raw.as_ptr()) }
    }
}

fn c_string(text: &str) -> Result<CString, C10dError> {
    CString::new(text).map_err(|_| C10dError::Name(text.into()))
}

fn millis(timeout: Duration) -> i64 {
    // Zero would mean no limit in places.
    i64::try_from(timeout.as_millis())
        .unwrap_or(i64::MAX)
        .clamp(1, i64::from(i32::MAX))
}
