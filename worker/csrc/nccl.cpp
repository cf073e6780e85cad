#include "tradewind_nccl.h"

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>

#include <cuda_runtime_api.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <torch/version.h>

#include "guard.h"

// What is compiled in must be what NCCL and CUDA of the pinned libtorch understand.
static_assert(NCCL_MAJOR == 2, "ProcessGroupNCCL speaks NCCL 2");

namespace {

// c10d waits for a communicator that is being formed with the lock that aborting it needs, and its own
// getError() keeps the `in progress` of that time for ever (NCCLComm::waitReady and checkForNcclError,
// 2.11). So NCCL is asked here, by the communicator behind c10d's object, whose members are not for
// others: a pointer to a member may name a protected one of a base class, and the argument of an
// explicit instantiation any.
struct OfGroup : c10d::ProcessGroupNCCL {
  static constexpr auto comm = &OfGroup::getNCCLComm;
};

struct OfComm : c10d::NCCLComm {
  static constexpr auto mutex = &OfComm::mutex_;
};

ncclComm_t handle(const c10d::NCCLComm& comm);

template <ncclComm_t c10d::NCCLComm::*member>
struct OfCommPrivate {
  friend ncclComm_t handle(const c10d::NCCLComm& comm) { return comm.*member; }
};
template struct OfCommPrivate<&c10d::NCCLComm::ncclComm_>;

} // namespace

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

char* tradewind_nccl_ready(c10d::Backend& backend, int device, bool& ready) {
  return tradewind::guard([&] {
    ready = false;
    auto& group = static_cast<c10d::ProcessGroupNCCL&>(backend);
    const auto comm = (group.*OfGroup::comm)(std::to_string(device));
    TORCH_CHECK(comm != nullptr, "there is no communicator of GPU ", device);
    // Who holds it waits for the communicator, or aborts it, and says what comes of that.
    std::unique_lock lock((*comm).*OfComm::mutex, std::try_to_lock);
    if (!lock) {
      return;
    }
    const auto nccl = handle(*comm);
    TORCH_CHECK(nccl != nullptr, "the communicator has been aborted");
    auto state = ncclSuccess;
    const auto asked = ncclCommGetAsyncError(nccl, &state);
    const auto told = asked == ncclSuccess ? state : asked;
    ready = told == ncclSuccess;
    TORCH_CHECK(
        ready || told == ncclInProgress, "NCCL reports: ", c10d::ncclGetErrorWithVersion(told));
  });
}
