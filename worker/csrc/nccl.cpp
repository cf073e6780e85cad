#include "tradewind_nccl.h"

#include <chrono>
#include <cstdlib>

#include <cuda_runtime_api.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <torch/version.h>

#include "guard.h"

// What is compiled in must be what NCCL and CUDA of the pinned libtorch understand.
static_assert(NCCL_MAJOR == 2, "ProcessGroupNCCL speaks NCCL 2");

const char* tradewind_nccl_torch() {
  return TORCH_VERSION;
}

int tradewind_nccl_version() {
  return c10d::getNcclVersionNumber();
}

char* tradewind_nccl_address(int device, char* text, int length) {
  return tradewind::guard([&] {
    auto error = cudaDeviceGetPCIBusId(text, length, device);
    TORCH_CHECK(error == cudaSuccess, "GPU ", device, ": ", cudaGetErrorString(error));
  });
}

char* tradewind_nccl_backend(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, int device,
    int64_t timeout_ms, c10::intrusive_ptr<c10d::Backend>& out) {
  return tradewind::guard([&] {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = std::chrono::milliseconds(timeout_ms);
    // With blocking communicators, NCCL's default, a rank that waits for a peer that died while the
    // group forms cannot be called back: there is no communicator to abort yet.
    if (std::getenv("TORCH_NCCL_USE_COMM_NONBLOCKING") == nullptr) {
      options->config.blocking = 0;
    }
    auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
    try {
      backend->eagerConnectSingleDevice(
          at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
    } catch (...) {
      // Otherwise its destructor does it, from which nothing may be thrown.
      tradewind::quietly([&] { backend->abort(); });
      throw;
    }
    out = std::move(backend);
  });
}
