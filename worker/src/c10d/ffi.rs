//! The C functions of csrc/c10d.h; see there for what each does.

use std::ffi::{c_char, c_int, c_void};

use super::Message;

#[repr(C)]
pub(super) struct Store(c_void);
#[repr(C)]
pub(super) struct Group(c_void);
#[repr(C)]
pub(super) struct Reducer(c_void);
#[repr(C)]
pub(super) struct Watch(c_void);
#[repr(C)]
pub(super) struct Breaker(c_void);
#[repr(C)]
pub(super) struct Half(c_void);

pub(super) type Told = unsafe extern "C" fn(*mut c_void, usize, *mut c_void);
/// Key, name and its bytes, value and its bytes, seal.
pub(super) type Sealer =
    unsafe extern "C" fn(*const u8, *const u8, usize, *const u8, usize, *mut u8);
pub(super) type Release = unsafe extern "C" fn(*mut c_void);

unsafe extern "C" {
    pub(super) fn tradewind_message_free(message: *mut c_char);
    pub(super) fn tradewind_store_serve(
        host: *const c_char,
        port: u16,
        listener: c_int,
        timeout_ms: i64,
        out: *mut *mut Store,
    ) -> Message;
    pub(super) fn tradewind_store_connect(
        host: *const c_char,
        port: u16,
        timeout_ms: i64,
        out: *mut *mut Store,
    ) -> Message;
    pub(super) fn tradewind_store_free(store: *mut Store);
    pub(super) fn tradewind_store_sealed(
        store: *const Store,
        sealer: Sealer,
        key: *const u8,
        out: *mut *mut Store,
    ) -> Message;
    pub(super) fn tradewind_store_set(
        store: *mut Store,
        key: *const c_char,
        value: *const u8,
        length: usize,
    ) -> Message;
    pub(super) fn tradewind_store_get(
        store: *mut Store,
        key: *const c_char,
        value: *mut u8,
        capacity: usize,
        length: *mut usize,
    ) -> Message;
    pub(super) fn tradewind_group_new(
        store: *const Store,
        prefix: *const c_char,
        rank: c_int,
        size: c_int,
        host: *const c_char,
        timeout_ms: i64,
        out: *mut *mut Group,
    ) -> Message;
    pub(super) fn tradewind_group_close(group: *mut Group);
    pub(super) fn tradewind_group_free(group: *mut Group);
    pub(super) fn tradewind_half_open(file: *const c_char, out: *mut *const Half) -> Message;
    pub(super) fn tradewind_half_version(half: *const Half) -> c_int;
    pub(super) fn tradewind_half_address(
        half: *const Half,
        device: c_int,
        text: *mut c_char,
        length: c_int,
    ) -> Message;
    pub(super) fn tradewind_group_add_nccl(
        group: *mut Group,
        half: *const Half,
        device: c_int,
        patience_ms: i64,
    ) -> Message;
    pub(super) fn tradewind_group_check(group: *const Group) -> Message;
    pub(super) fn tradewind_breaker_check(breaker: *const Breaker) -> Message;
    pub(super) fn tradewind_breaker_new(group: *const Group, out: *mut *mut Breaker) -> Message;
    pub(super) fn tradewind_breaker_break(breaker: *const Breaker);
    pub(super) fn tradewind_breaker_free(breaker: *mut Breaker);
    pub(super) fn tradewind_all_reduce(
        group: *mut Group,
        values: *mut c_void,
        length: usize,
        element: c_int,
    ) -> Message;
    pub(super) fn tradewind_all_reduce_tensor(group: *mut Group, tensor: *const c_void) -> Message;
    pub(super) fn tradewind_broadcast(
        group: *mut Group,
        values: *mut c_void,
        length: usize,
        element: c_int,
        root: c_int,
    ) -> Message;
    pub(super) fn tradewind_all_gather(
        group: *mut Group,
        all: *mut f32,
        own: *const f32,
        length: usize,
    ) -> Message;
    pub(super) fn tradewind_all_gather_tensor(
        group: *mut Group,
        all: *const c_void,
        own: *const c_void,
    ) -> Message;
    pub(super) fn tradewind_reducer_new(
        group: *const Group,
        tensors: *const *const c_void,
        bucket_sizes: *const usize,
        buckets: usize,
        out: *mut *mut Reducer,
    ) -> Message;
    pub(super) fn tradewind_reducer_prepare(reducer: *mut Reducer) -> Message;
    pub(super) fn tradewind_reducer_finish(reducer: *mut Reducer, exposed_ns: *mut i64) -> Message;
    pub(super) fn tradewind_reducer_reduced(reducer: *const Reducer, took_ns: *mut i64) -> Message;
    pub(super) fn tradewind_reducer_bucket(
        reducer: *const Reducer,
        bucket: usize,
        tensor: *mut *mut c_void,
    ) -> Message;
    pub(super) fn tradewind_reducer_free(reducer: *mut Reducer);
    pub(super) fn tradewind_reducer_watch(
        reducer: *mut Reducer,
        told: Told,
        release: Release,
        context: *mut c_void,
    ) -> Message;
    pub(super) fn tradewind_watch_new(
        tensors: *const *const c_void,
        bucket_sizes: *const usize,
        buckets: usize,
        told: Told,
        release: Release,
        context: *mut c_void,
        out: *mut *mut Watch,
    ) -> Message;
    pub(super) fn tradewind_watch_prepare(watch: *mut Watch) -> Message;
    pub(super) fn tradewind_watch_finish(watch: *mut Watch) -> Message;
    pub(super) fn tradewind_watch_free(watch: *mut Watch);
    pub(super) fn tradewind_set_grad(tensor: *mut c_void, gradient: *const c_void) -> Message;
}
