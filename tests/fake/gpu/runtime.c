/* libcudart.so.13, played, but for memory (memory.c) and kernels (kernels.c); see gpu.h. */

#define _GNU_SOURCE
#include "gpu.h"

#include <cuda_runtime_api.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CUDA_13 = 13000, GIB = 1 << 30, ALIGNMENT = 512 };

static _Thread_local cudaError_t last_error;

static cudaError_t result(cudaError_t error) {
  if (error != cudaSuccess) {
    last_error = error;
  }
  return error;
}

void note_stream(const char *function, void *handle) {
  lock();
  struct stream *stream = stream_of(handle);
  unlock();
  use_device(function, stream->device);
  note(function, stream->device, stream->number, -1);
}

void wait_for_stream(void *handle) {
  lock();
  wait_for_work(stream_of(handle)->last);
  unlock();
}

/* The caller waits for work on a device, and sleeps or not. */
static void wait_for(struct work *work, int device, int sleeps) {
  lock();
  int done = is_done(work);
  unlock();
  if (!done && !sleeps) {
    note(SPINS, device, -1, -1);
  }
  lock();
  wait_for_work(work);
  unlock();
}

/* Devices. Those that only tell make no context. */

cudaError_t cudaGetDeviceCount(int *count) {
  *count = gpus();
  return result(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaDriverGetVersion(int *version) {
  *version = CUDA_13;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = CUDA_13;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  NOTE_DEVICE(device);
  if (device < 0 || device >= gpus()) {
    return result(cudaErrorInvalidDevice);
  }
  current_device = device;
  USE(device);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
  *properties = (struct cudaDeviceProp){
      .totalGlobalMem = 80ull * GIB,
      .sharedMemPerBlock = 48 << 10,
      .sharedMemPerBlockOptin = 227 << 10,
      .sharedMemPerMultiprocessor = 228 << 10,
      .regsPerBlock = 1 << 16,
      .regsPerMultiprocessor = 1 << 16,
      .warpSize = 32,
      .maxThreadsPerBlock = 1024,
      .maxThreadsPerMultiProcessor = 2048,
      .maxBlocksPerMultiProcessor = 32,
      .maxThreadsDim = {1024, 1024, 64},
      .maxGridSize = {INT32_MAX, 65535, 65535},
      .major = 9,
      .multiProcessorCount = 132,
      .textureAlignment = ALIGNMENT,
      .canMapHostMemory = 1,
      .concurrentKernels = 1,
      .unifiedAddressing = 1,
      .pciBusID = device + 1,
      .l2CacheSize = 50 << 20,
      .streamPrioritiesSupported = 1,
      .cooperativeLaunch = 1,
      .asyncEngineCount = 3,
  };
  snprintf(properties->name, sizeof properties->name, "Fake GPU %d", device);
  return result(device < gpus() ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
  return result(device < gpus() ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device) {
  snprintf(text, (size_t)length, "0000:%02x:00.0", device + 1);
  return result(device < gpus() ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  *can = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
  NOTE_DEVICE(current_device);
  USE(current_device);
  lock();
  struct work *all = stream_of(NULL)->last;
  for (struct stream *stream = all_streams(); stream != NULL; stream = stream->next) {
    if (stream->device == current_device) {
      all = after(all, stream->last);
    }
  }
  unlock();
  wait_for(all, current_device, sleeps_in_waits(current_device));
  return cudaSuccess;
}

/* Errors. */

cudaError_t cudaGetLastError(void) {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError(void) { return last_error; }

const char *cudaGetErrorString(cudaError_t error) {
  static _Thread_local char text[64];
  snprintf(text, sizeof text, "error %d of the fake CUDA runtime", (int)error);
  return text;
}

const char *cudaGetErrorName(cudaError_t error) { return cudaGetErrorString(error); }

/* Streams and events. */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
  USE(current_device);
  struct stream *made = new_stream(current_device);
  note(__func__, made->device, made->number, -1);
  *out = (cudaStream_t)made;
  return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
  *priority = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(
    cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
    cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
    size_t *count) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  NOTE_STREAM(stream);
  lock();
  int done = is_done(stream_of(stream)->last);
  unlock();
  return result(done ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  NOTE_STREAM(stream);
  lock();
  struct stream *waited = stream_of(stream);
  struct work *last = waited->last;
  unlock();
  wait_for(last, waited->device, sleeps_in_waits(waited->device));
  return cudaSuccess;
}

static void note_event(const char *function, struct event *event) {
  note(function, event->device, -1, event->number);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
  static int count;
  USE(current_device);
  struct event *made = calloc(1, sizeof *made);
  lock();
  *made = (struct event){current_device, ++count, flags, NULL};
  unlock();
  note_event(__func__, made);
  *out = (cudaEvent_t)made;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out) {
  return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  struct event *event = (struct event *)handle;
  note_event(__func__, event);
  free(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream, unsigned flags) {
  struct event *event = (struct event *)handle;
  lock();
  struct stream *on = stream_of(stream);
  event->at = on->last;
  unlock();
  USE(on->device);
  note(__func__, event->device, on->number, event->number);
  return result(on->device == event->device ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle, unsigned flags) {
  struct event *event = (struct event *)handle;
  lock();
  struct stream *waits = stream_of(stream);
  waits->last = after(waits->last, event->at);
  unlock();
  USE(waits->device);
  note(__func__, waits->device, waits->number, event->number);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  struct event *event = (struct event *)handle;
  note_event(__func__, event);
  lock();
  int done = is_done(event->at);
  unlock();
  return result(done ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  struct event *event = (struct event *)handle;
  note_event(__func__, event);
  lock();
  struct work *at = event->at;
  unlock();
  /* Here the event's own flags decide, and not those of the context. */
  wait_for(at, event->device, (event->flags & cudaEventBlockingSync) != 0);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
  *ms = 0;
  return cudaSuccess;
}

static void driver_function(void) { not_played("one of the driver's functions for memory"); }

cudaError_t cudaGetDriverEntryPointByVersion(
    const char *name, void **out, unsigned version, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *found) {
  *out = dlsym(RTLD_DEFAULT, name);
  /* It is asked for more than it calls. */
  if (*out == NULL) {
    *out = (void *)driver_function;
  }
  if (found != NULL) {
    *found = cudaDriverEntryPointSuccess;
  }
  return cudaSuccess;
}
