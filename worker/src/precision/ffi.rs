//! The C functions of csrc/precision.h; see there for what each does.

use std::ffi::{c_char, c_int, c_void};

use crate::c10d::Message;

#[repr(C)]
pub(super) struct Autocast(c_void);

pub(super) const CPU: c_int = 0;
pub(super) const CUDA: c_int = 1;
pub(super) const BF16: c_int = 0;
pub(super) const F16: c_int = 1;

unsafe extern "C" {
    pub(super) fn tradewind_autocast_enter(
        device: c_int,
        kind: c_int,
        out: *mut *mut Autocast,
    ) -> Message;
    pub(super) fn tradewind_autocast_leave(before: *mut Autocast);
    pub(super) fn tradewind_arithmetic(
        tf32: c_int,
        deterministic: c_int,
        autotune: c_int,
    ) -> Message;
    pub(super) fn tradewind_libtorch() -> *const c_char;
}
