// What the NCCL half of the bridge exports: a shared library of its own, since it alone needs the
// headers of CUDA and NCCL, and libtorch_cuda at run time. `make nccl` builds it, group.cpp loads it.
#pragma once

#include <stdint.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

extern "C" {

// The libtorch whose headers it was compiled with, such as "2.11.0"; C++ classes are handed over,
// so it must be the one that is loaded.
const char* tradewind_nccl_torch();

// The NCCL that libtorch has loaded, as NCCL counts: 22809 is 2.28.9.
int tradewind_nccl_version();

// Writes the PCI address of a GPU, which is what NCCL tells GPUs of one host apart by.
char* tradewind_nccl_address(int device, char* text, int length);

// A backend of `size` ranks that meet in `store`, whose communicator is on its way: NCCL goes on
// connecting behind, and the first collective waits for that. Collectives have the timeout of
// `timeout_ms` until the group sets another one. NULL, or a message for tradewind_message_free.
char* tradewind_nccl_backend(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, int device,
    int64_t timeout_ms, c10::intrusive_ptr<c10d::Backend>& out);

// Whether the communicator of `backend`, one of the above, has no operation of NCCL's own under way,
// such as connecting its ranks; a message if it has failed, as when a peer is gone. Waits for nothing.
// From any thread.
char* tradewind_nccl_ready(c10d::Backend& backend, int device, bool& ready);

} // extern "C"
