/* GPUs played in main memory, so that the path of calls to them is tested where there is none: what
 * driver.c, runtime.c with memory.c and kernels.c, and nccl.c share. They stand in for libcuda.so.1, libcudart.so.13 and
 * libnccl.so.2, and the driver holds what all of them know.
 *
 * There are FAKE_GPUS devices, 2 if it is not set. Their memory is main memory. Of kernels only the
 * one that fills with a value is played; launches of others are noted and do nothing. What is
 * enqueued on a stream is done at once, but collectives of NCCL, which end when all ranks have
 * begun them: until then the stream has work, and so has an event that is recorded on it. (A copy on
 * such a stream makes its caller wait, where CUDA would not.) Ranks are threads of one process.
 *
 * Every call is noted. Each that makes a context, as CUDA 13 does at the first use of a device and
 * in cudaSetDevice, notes the context. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { GPUS_MAX = 8 };

/* What a test reads: fake_calls. Devices and numbers are -1 where a call has none. */
struct fake_call {
  /* The thread, as the system counts them. */
  int thread;
  /* Its current device when it called. */
  int device;
  const char *function;
  /* The device that the call is about: that of its stream or event, or the one that it names. */
  int about;
  /* Counted from 1 as they are made, each by itself; the default stream of each device is 0. */
  int stream, event;
  /* How often the thread made it before it made another. */
  int times;
};

/* Work that a stream may have to wait for; it is never freed. */
struct work {
  int done;
  struct work *before[2];
};

struct stream {
  int device, number;
  struct work *last;
  struct stream *next;
};

struct event {
  int device, number;
  unsigned flags;
  struct work *at;
};

int gpus(void);
/* Of the calling thread. */
extern _Thread_local int current_device;

void note(const char *function, int about, int stream, int event);
#define NOTE() note(__func__, -1, -1, -1)
#define NOTE_DEVICE(device) note(__func__, device, -1, -1)
/* The calling thread uses a device in a call: it has a context from here on. */
void use_device(const char *function, int device);
#define USE(device) use_device(__func__, device)
int has_context(int device);
/* Whether threads sleep that wait for a stream of a device, or for all of it, as its context's flags say. */
int sleeps_in_waits(int device);
/* Noted as a call of its own, by a thread that has to wait and does not sleep. */
#define SPINS "a wait that spins"

/* One lock for all state. Whoever has changed what others wait for says so, with the lock. */
void lock(void);
void unlock(void);
void changed(void);
/* With the lock, which others get meanwhile. */
void wait_for_change(void);

/* The stream that a call names; NULL is the default stream of the current device. With the lock. */
struct stream *stream_of(void *handle);
struct stream *new_stream(int device);
/* Every stream that there is, with the lock. */
struct stream *all_streams(void);
/* With the lock. */
int is_done(struct work *work);
struct work *after(struct work *one, struct work *other);
void wait_for_work(struct work *work);

/* A call of the runtime's on a stream. */
void note_stream(const char *function, void *handle);
#define NOTE_STREAM(handle) note_stream(__func__, handle)
void wait_for_stream(void *handle);

/* Where code is missing that a test needs, it is named, and the process ends. */
_Noreturn void not_played(const char *function);
