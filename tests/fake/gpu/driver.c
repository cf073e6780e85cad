/* libcuda.so.1, played; see gpu.h. */

#define _GNU_SOURCE
#include "gpu.h"

#include <cuda.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CUDA_13 = 13000, CALLS_MAX = 1 << 20 };

struct context {
  /* The call that made it, and the thread that called; NULL and 0 if there is none. */
  const char *function;
  int thread;
};

_Thread_local int current_device;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static struct fake_call *calls;
static size_t calls_count;
static struct context contexts[GPUS_MAX];
static unsigned context_flags[GPUS_MAX];
static struct stream defaults[GPUS_MAX];
static struct stream *streams;
static int streams_count;

void lock(void) { pthread_mutex_lock(&mutex); }
void unlock(void) { pthread_mutex_unlock(&mutex); }
void changed(void) { pthread_cond_broadcast(&change); }
void wait_for_change(void) { pthread_cond_wait(&change, &mutex); }

void not_played(const char *function) {
  fprintf(stderr, "%s is not played: add it to tests/fake/gpu\n", function);
  abort();
}

int gpus(void) {
  const char *told = getenv("FAKE_GPUS");
  int count = told == NULL ? 2 : atoi(told);
  return count < 0 || count > GPUS_MAX ? 0 : count;
}

static int this_thread(void) { return (int)syscall(SYS_gettid); }

void note(const char *function, int about, int stream, int event) {
  static _Thread_local size_t last = CALLS_MAX;
  lock();
  if (calls == NULL) {
    calls = calloc(CALLS_MAX, sizeof *calls);
  }
  if (calls_count == CALLS_MAX) {
    not_played("more than 2^20 calls");
  }
  struct fake_call *before = last < calls_count ? &calls[last] : NULL;
  if (before != NULL && before->thread == this_thread() && before->device == current_device &&
      strcmp(before->function, function) == 0 && before->about == about &&
      before->stream == stream && before->event == event) {
    ++before->times;
  } else {
    last = calls_count;
    calls[calls_count++] =
        (struct fake_call){this_thread(), current_device, function, about, stream, event, 1};
  }
  unlock();
}

void use_device(const char *function, int device) {
  lock();
  if (device >= 0 && device < gpus() && contexts[device].thread == 0) {
    contexts[device] = (struct context){function, this_thread()};
  }
  unlock();
}

int has_context(int device) {
  lock();
  int has = device >= 0 && device < GPUS_MAX && contexts[device].thread != 0;
  unlock();
  return has;
}

int sleeps_in_waits(int device) {
  lock();
  int sleeps = (context_flags[device] & CU_CTX_SCHED_BLOCKING_SYNC) != 0;
  unlock();
  return sleeps;
}

struct stream *stream_of(void *handle) {
  /* 1 and 2 are CUDA's names of the default stream. */
  if ((uintptr_t)handle > 2) {
    return handle;
  }
  struct stream *own = &defaults[current_device];
  own->device = current_device;
  return own;
}

struct stream *new_stream(int device) {
  struct stream *made = calloc(1, sizeof *made);
  lock();
  *made = (struct stream){device, ++streams_count, NULL, streams};
  streams = made;
  unlock();
  return made;
}

struct stream *all_streams(void) { return streams; }

int is_done(struct work *work) {
  if (work == NULL) {
    return 1;
  }
  for (int at = 0; at < 2; ++at) {
    if (is_done(work->before[at])) {
      work->before[at] = NULL;
    }
  }
  return work->done && work->before[0] == NULL && work->before[1] == NULL;
}

struct work *after(struct work *one, struct work *other) {
  one = is_done(one) ? NULL : one;
  other = is_done(other) ? NULL : other;
  if (one == NULL || other == NULL || one == other) {
    return one != NULL ? one : other;
  }
  struct work *both = calloc(1, sizeof *both);
  *both = (struct work){1, {one, other}};
  return both;
}

void wait_for_work(struct work *work) {
  while (!is_done(work)) {
    wait_for_change();
  }
}

/* What tests ask. */

size_t fake_calls(struct fake_call *out, size_t max) {
  lock();
  size_t count = calls_count;
  memcpy(out, calls, (count < max ? count : max) * sizeof *out);
  unlock();
  return count;
}

/* The call that has made the context of a device, and its thread; NULL if there is none. */
const char *fake_context(int device, int *thread) {
  lock();
  struct context context = contexts[device];
  unlock();
  *thread = context.thread;
  return context.function;
}

/* The driver's interface: cuda.h. */

CUresult cuInit(unsigned flags) {
  NOTE();
  return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDriverGetVersion(int *version) {
  *version = CUDA_13;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
  *count = gpus();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int number) {
  *device = number;
  return number < gpus() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  snprintf(name, (size_t)length, "Fake GPU %d", device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
  memset(uuid, 77, sizeof *uuid);
  uuid->bytes[0] = (char)device;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : 0;
  return device < gpus() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuGetErrorString(CUresult code, const char **words) {
  static _Thread_local char text[64];
  snprintf(text, sizeof text, "error %d of the fake driver", (int)code);
  *words = text;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  NOTE_DEVICE(device);
  *flags = 0;
  *active = has_context(device);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  NOTE_DEVICE(device);
  if (device >= gpus()) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  lock();
  context_flags[device] = flags;
  unlock();
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  NOTE_DEVICE(device);
  USE(device);
  *context = (CUcontext)&contexts[device];
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
  NOTE();
  *context = has_context(current_device) ? (CUcontext)&contexts[current_device] : NULL;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  struct context *own = (struct context *)context;
  NOTE_DEVICE(own == NULL ? -1 : (int)(own - contexts));
  current_device = own == NULL ? 0 : (int)(own - contexts);
  return CUDA_SUCCESS;
}
