#include "half.h"

#include <cstdlib>
#include <string>

#include <dlfcn.h>

#include <torch/version.h>

#include "guard.h"

using tradewind::guard;

namespace {

template <typename Function>
void find(void* library, const char* name, Function& out) {
  out = reinterpret_cast<Function>(dlsym(library, name));
  TORCH_CHECK(out != nullptr, "it has no ", name, ": build it again with `make nccl`");
}

void demand(char* message) {
  if (message != nullptr) {
    const std::string text = message;
    free(message);
    TORCH_CHECK(false, text);
  }
}

} // namespace

c10::intrusive_ptr<c10d::Backend> tradewind_half::backend(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, int device,
    int64_t timeout_ms) const {
  c10::intrusive_ptr<c10d::Backend> backend;
  demand(make(store, rank, size, device, timeout_ms, backend));
  return backend;
}

bool tradewind_half::ready(c10d::Backend& backend, int device) const {
  bool ready = false;
  demand(ask(backend, device, ready));
  return ready;
}

char* tradewind_half_open(const char* file, const tradewind_half** out) {
  return guard([&] {
    // All symbols at once: what libtorch_cuda lacks is told here, and not in a step.
    void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    TORCH_CHECK(library != nullptr, dlerror());
    decltype(&tradewind_nccl_torch) torch;
    find(library, "tradewind_nccl_torch", torch);
    TORCH_CHECK(
        std::string(torch()) == TORCH_VERSION, "it was built for libtorch ", torch(),
        " and this program for ", TORCH_VERSION, ": build it again with `make nccl`");
    auto half = std::make_unique<tradewind_half>();
    find(library, "tradewind_nccl_version", half->version);
    find(library, "tradewind_nccl_address", half->address);
    find(library, "tradewind_nccl_backend", half->make);
    find(library, "tradewind_nccl_ready", half->ask);
    // Never closed: groups may outlive whoever opened it.
    *out = half.release();
  });
}

int tradewind_half_version(const tradewind_half* half) {
  return half->version();
}

char* tradewind_half_address(const tradewind_half* half, int device, char* text, int length) {
  return half->address(device, text, length);
}
