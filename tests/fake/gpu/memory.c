/* Memory of libcudart.so.13, played; see gpu.h. */

#include "gpu.h"

#include <cuda_runtime_api.h>

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

enum { GIB = 1 << 30, ALIGNMENT = 512 };

struct memory {
  char *at;
  size_t bytes;
  enum cudaMemoryType type;
  int device;
  struct memory *next;
};
static struct memory *memories;

static cudaError_t take(
    const char *function, void **out, size_t bytes, enum cudaMemoryType type) {
  use_device(function, current_device);
  struct memory *made = calloc(1, sizeof *made);
  lock();
  *made = (struct memory){memalign(ALIGNMENT, bytes), bytes, type, current_device, memories};
  memories = made;
  unlock();
  /* What no kernel writes is 0, and so finite. */
  memset(made->at, 0, bytes);
  *out = made->at;
  return cudaSuccess;
}

static void give(void *memory) {
  lock();
  for (struct memory **at = &memories; *at != NULL; at = &(*at)->next) {
    if ((*at)->at == memory) {
      struct memory *gone = *at;
      *at = gone->next;
      free(gone->at);
      free(gone);
      break;
    }
  }
  unlock();
}

cudaError_t cudaMalloc(void **memory, size_t bytes) {
  NOTE_DEVICE(current_device);
  return take(__func__, memory, bytes, cudaMemoryTypeDevice);
}

cudaError_t cudaFree(void *memory) {
  NOTE_DEVICE(current_device);
  USE(current_device);
  give(memory);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags) {
  NOTE_DEVICE(current_device);
  return take(__func__, memory, bytes, cudaMemoryTypeHost);
}

cudaError_t cudaFreeHost(void *memory) {
  NOTE();
  give(memory);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer) {
  *attributes = (struct cudaPointerAttributes){.type = cudaMemoryTypeUnregistered, .device = -1};
  lock();
  for (struct memory *at = memories; at != NULL; at = at->next) {
    if (at->at <= (char *)pointer && (char *)pointer < at->at + at->bytes) {
      attributes->type = at->type;
      attributes->device = at->device;
    }
  }
  unlock();
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *all) {
  NOTE_DEVICE(current_device);
  USE(current_device);
  *left = *all = 80ull * GIB;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(
    void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
  NOTE_STREAM(stream);
  wait_for_stream(stream);
  memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream) {
  NOTE_STREAM(stream);
  wait_for_stream(stream);
  memset(at, value, bytes);
  return cudaSuccess;
}
