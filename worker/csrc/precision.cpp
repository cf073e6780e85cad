#include "precision.h"

#include <cstdlib>
#include <memory>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/util/env.h>
#include <torch/version.h>

#include "guard.h"

struct tradewind_autocast {
  at::DeviceType device;
  bool enabled;
  at::ScalarType type;
  bool cached;
};

namespace {

at::DeviceType device_of(int device) {
  TORCH_CHECK(device == TRADEWIND_CPU || device == TRADEWIND_CUDA, "no device ", device);
  return device == TRADEWIND_CUDA ? at::kCUDA : at::kCPU;
}

at::ScalarType type_of(int type) {
  TORCH_CHECK(type == TRADEWIND_BF16 || type == TRADEWIND_F16, "no type ", type);
  return type == TRADEWIND_F16 ? at::kHalf : at::kBFloat16;
}

} // namespace

char* tradewind_autocast_enter(int device_number, int type_number, tradewind_autocast** out) {
  return tradewind::guard([&] {
    using namespace at::autocast;
    const auto device = device_of(device_number);
    const auto type = type_of(type_number);
    auto before = std::make_unique<tradewind_autocast>(tradewind_autocast{
        device, is_autocast_enabled(device), get_autocast_dtype(device),
        is_autocast_cache_enabled()});
    // As torch.autocast's __enter__.
    set_autocast_enabled(device, true);
    set_autocast_dtype(device, type);
    set_autocast_cache_enabled(true);
    increment_nesting();
    *out = before.release();
  });
}

void tradewind_autocast_leave(tradewind_autocast* raw) {
  free(tradewind::guard([&] {
    using namespace at::autocast;
    const std::unique_ptr<tradewind_autocast> before(raw);
    if (decrement_nesting() == 0) {
      clear_cache();
    }
    set_autocast_enabled(before->device, before->enabled);
    set_autocast_dtype(before->device, before->type);
    set_autocast_cache_enabled(before->cached);
  }));
}

char* tradewind_arithmetic(int tf32, int deterministic, int autotune) {
  return tradewind::guard([&] {
    auto& context = at::globalContext();
    // These keep libtorch's two ways of saying it in agreement; the newer way alone does not.
    context.setAllowTF32CuBLAS(tf32 != 0);
    context.setAllowTF32CuDNN(tf32 != 0);
    context.setBenchmarkCuDNN(autotune != 0);
    context.setDeterministicCuDNN(deterministic != 0);
    context.setDeterministicAlgorithms(deterministic != 0, /*warn_only=*/false);
    if (deterministic != 0) {
      // cuBLAS repeats bits only with workspaces of its own for each stream (cuBLAS, "Results
      // Reproducibility"); libtorch refuses to multiply without.
      c10::utils::set_env("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/false);
    }
  });
}

const char* tradewind_libtorch(void) {
  return TORCH_VERSION;
}
