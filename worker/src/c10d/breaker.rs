//! Breaking a group from another thread than the one that is in its collectives.

use std::ptr::NonNull;

use super::{C10dError, ProcessGroup, ffi};

/// Breaks the connections of a group.
#[derive(Debug)]
pub struct Breaker {
    raw: NonNull<ffi::Breaker>,
}

// SAFETY: the C++ object holds a weak reference that is never changed; taking a strong one is
// atomic, and Gloo's connections are made for several threads.
unsafe impl Send for Breaker {}
// SAFETY: as above.
unsafe impl Sync for Breaker {}

impl Breaker {
    pub(super) fn new(group: &ProcessGroup) -> Result<Self, C10dError> {
        let mut out = std::ptr::null_mut();
        // SAFETY: the group is live, and `out` outlives the call.
        let message = unsafe { ffi::tradewind_breaker_new(group.raw.as_ptr(), &mut out) };
        let raw = super::made("watching the group", message, out)?;
        Ok(Self { raw })
    }

    /// An error if the group is broken or gone, as far as is known here. On a GPU a collective that
    /// was broken off ends like any other, with anything in its tensors: whoever has waited for one
    /// asks this before using what it has left.
    pub fn check(&self) -> Result<(), C10dError> {
        // SAFETY: `raw` is live.
        super::check("collectives", unsafe {
            ffi::tradewind_breaker_check(self.raw.as_ptr())
        })
    }

    /// Collectives that are under way fail: here at once, and at the peers, whose connections to
    /// this rank are closed. On a GPU they end. Nothing happens to a group that has been dropped.
    pub fn break_group(&self) {
        // SAFETY: `raw` is live.
        unsafe { ffi::tradewind_breaker_break(self.raw.as_ptr()) }
    }
}

impl Drop for Breaker {
    fn drop(&mut self) {
        // SAFETY: `raw` came from this library and is freed once.
        unsafe { ffi::tradewind_breaker_free(self.raw.as_ptr()) }
    }
}
