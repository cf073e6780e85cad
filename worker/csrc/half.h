// The NCCL half of the bridge, loaded.
#pragma once

#include "c10d.h"
#include "tradewind_nccl.h"

struct tradewind_half {
  decltype(&tradewind_nccl_version) version;
  decltype(&tradewind_nccl_address) address;
  decltype(&tradewind_nccl_backend) make;
  decltype(&tradewind_nccl_ready) ask;

  // Throws what `make` says.
  c10::intrusive_ptr<c10d::Backend> backend(
      const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, int device,
      int64_t timeout_ms) const;
  // Throws what `ask` says.
  bool ready(c10d::Backend& backend, int device) const;
};
