//! The C functions of csrc/device.h; see there for what each does.

use std::ffi::{c_int, c_void};

use crate::c10d::Message;

#[repr(C)]
pub(super) struct Stream(c_void);
#[repr(C)]
pub(super) struct Event(c_void);

unsafe extern "C" {
    pub(super) fn tradewind_device_take(index: c_int) -> Message;
    pub(super) fn tradewind_stream_new(index: c_int, out: *mut *mut Stream) -> Message;
    pub(super) fn tradewind_stream_enter(
        stream: *const Stream,
        before: *mut *mut Stream,
    ) -> Message;
    pub(super) fn tradewind_stream_leave(before: *mut Stream) -> Message;
    pub(super) fn tradewind_stream_free(stream: *mut Stream);
    pub(super) fn tradewind_event_record(index: c_int, out: *mut *mut Event) -> Message;
    pub(super) fn tradewind_event_block(event: *const Event) -> Message;
    pub(super) fn tradewind_event_wait(event: *const Event) -> Message;
    pub(super) fn tradewind_event_free(event: *mut Event);
    pub(super) fn tradewind_page_locked(
        length: usize,
        kind: c_int,
        tensor: *mut *mut c_void,
    ) -> Message;
    pub(super) fn tradewind_bytes_of(
        bytes: *mut c_void,
        length: usize,
        free_owner: unsafe extern "C" fn(*mut c_void),
        owner: *mut c_void,
        tensor: *mut *mut c_void,
    ) -> Message;
    pub(super) fn tradewind_copy(to: *mut c_void, from: *const c_void) -> Message;
    pub(super) fn tradewind_copy_each(
        to: *const *mut c_void,
        from: *const *mut c_void,
        count: usize,
    ) -> Message;
    pub(super) fn tradewind_check_and_scale(
        values: *mut c_void,
        flag: *mut c_void,
        factor: *const c_void,
    ) -> Message;
    pub(super) fn tradewind_in_use(tensor: *const c_void) -> Message;
}
