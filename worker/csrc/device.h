// The bridge to what a device does beside the computation: streams, events, page-locked memory.
// Nothing here names CUDA: libtorch finds the device's own functions once its libraries are loaded.
//
// Conventions as in c10d.h: a call returns NULL or a message, tensors are `at::Tensor*`. The
// current stream is the calling thread's on the device in question. No call waits for a device,
// except `tradewind_event_wait`, and copies between a device and memory that is not page-locked.
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

typedef struct tradewind_stream tradewind_stream;
typedef struct tradewind_event tradewind_event;

// Makes CUDA device `index` the calling thread's, for good. Every call below that names a device, a
// stream or an event does so: a process computes on one device. A thread that was put on none is on the
// first, where libtorch's streams and events leave it, with a context of half a gigabyte.
char* tradewind_device_take(int index);

// A stream of its own on CUDA device `index`.
char* tradewind_stream_new(int index, tradewind_stream** out);
// Makes `stream` current until `tradewind_stream_leave` on the same thread, which wants `before`.
char* tradewind_stream_enter(const tradewind_stream* stream, tradewind_stream** before);
char* tradewind_stream_leave(tradewind_stream* before);
void tradewind_stream_free(tradewind_stream* stream);

// What is under way on the current stream of CUDA device `index`.
char* tradewind_event_record(int index, tradewind_event** out);
// What comes on the current stream of that device waits for the event; the caller does not.
char* tradewind_event_block(const tradewind_event* event);
// The caller waits.
char* tradewind_event_wait(const tradewind_event* event);
void tradewind_event_free(tradewind_event* event);

// A page-locked tensor in main memory: of f32 (type 0), bf16 (1) or bytes (2).
char* tradewind_page_locked(size_t length, int type, void** tensor);
// A tensor of the `length` bytes at `bytes`, more than 0. When nothing uses them any more `free_owner(owner)` is
// called, on any thread, also if this call fails.
char* tradewind_bytes_of(
    void* bytes, size_t length, void (*free_owner)(void*), void* owner, void** tensor);

// Copies, on the current stream. Between a device and memory that is not page-locked it waits until
// that is done.
char* tradewind_copy(void* to, const void* from);
// Copies each of `count`, in as few launches as possible.
char* tradewind_copy_each(void* const* to, void* const* from, size_t count);
// Makes `flag`, one f32, 1 if a value is not finite, and multiplies all by `factor`, another one.
char* tradewind_check_and_scale(void* values, void* flag, const void* factor);
// The memory of a tensor is not given to another one before what is under way on the current
// stream is done, even if the tensor is freed.
char* tradewind_in_use(const void* tensor);

} // extern "C"
