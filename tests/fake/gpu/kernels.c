/* Kernels of libcudart.so.13, played; see gpu.h. Code that nvcc has compiled registers them, by the address of a
 * function of the host. */

#include "gpu.h"

#include <cuda_runtime_api.h>

#include <stdlib.h>
#include <string.h>

struct kernel {
  const void *function;
  const char *name;
};
static struct kernel *kernels;
static size_t kernels_count, kernels_sorted;

void **__cudaRegisterFatBinary(void *binary) {
  static void *handle;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void **handle) {}
void __cudaUnregisterFatBinary(void **handle) {}
char __cudaInitModule(void **handle) { return 1; }
void __cudaRegisterVar(
    void **handle, char *host, char *device, const char *name, int ext, size_t size, int constant,
    int global) {}

void __cudaRegisterFunction(
    void **handle, const char *function, char *device, const char *name, int threads, void *tid,
    void *bid, void *block, void *grid, int *warp) {
  lock();
  if ((kernels_count & (kernels_count - 1)) == 0) {
    size_t room = kernels_count == 0 ? 1 : 2 * kernels_count;
    kernels = realloc(kernels, room * sizeof *kernels);
  }
  kernels[kernels_count++] = (struct kernel){function, name};
  unlock();
}

static int compare(const void *one, const void *other) {
  uintptr_t a = (uintptr_t)((const struct kernel *)one)->function;
  uintptr_t b = (uintptr_t)((const struct kernel *)other)->function;
  return (a > b) - (a < b);
}

static const char *kernel_name(const void *function) {
  lock();
  if (kernels_sorted != kernels_count) {
    qsort(kernels, kernels_count, sizeof *kernels, compare);
    kernels_sorted = kernels_count;
  }
  struct kernel wanted = {function, NULL};
  struct kernel *found = bsearch(&wanted, kernels, kernels_count, sizeof wanted, compare);
  unlock();
  return found == NULL ? "a kernel that nobody has registered" : found->name;
}

static cudaError_t launch(const void *function, void **arguments, cudaStream_t stream) {
  const char *name = kernel_name(function);
  note_stream(name, stream);
  wait_for_stream(stream);
  if (strstr(name, "vectorized_elementwise_kernel") && strstr(name, "FillFunctorIfE")) {
    int count = *(int *)arguments[0];
    float value = *(float *)arguments[1];
    float *values = *(float **)arguments[2];
    for (int at = 0; at < count; ++at) {
      values[at] = value;
    }
  }
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) {
  *kernel = (cudaKernel_t)function;
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(
    cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
    cudaStream_t stream) {
  return launch((const void *)kernel, arguments, stream);
}

cudaError_t cudaLaunchKernel(
    const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
    cudaStream_t stream) {
  return launch(function, arguments, stream);
}

static _Thread_local struct {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
} configuration;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  configuration.grid = grid;
  configuration.block = block;
  configuration.shared = shared;
  configuration.stream = stream;
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  *grid = configuration.grid;
  *block = configuration.block;
  *shared = configuration.shared;
  *(cudaStream_t *)stream = configuration.stream;
  return cudaSuccess;
}
