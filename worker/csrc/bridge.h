// What the parts of the bridge share; c10d.h is what they export.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "c10d.h"
#include "guard.h"

struct tradewind_half;

struct tradewind_store {
  c10::intrusive_ptr<c10d::Store> store;
};

namespace tradewind {

using std::chrono::milliseconds;

// How long a rank waits for an NCCL communicator that is being formed, in whole seconds; libtorch
// reads it once, when the first one is.
void wait_for_nccl(milliseconds timeout);

// NCCL's part of a group: its backend, the half of the bridge that speaks with it, and the rank's GPU.
struct OverNccl {
  // Whether its communicator has nothing of its own under way; throws if it has failed.
  bool ready() const;

  c10::intrusive_ptr<c10d::Backend> backend;
  const tradewind_half* half = nullptr;
  int device = 0;
};

// What moves the bytes of a group: Gloo those in main memory, NCCL those on a GPU.
struct Connections {
  ~Connections();

  // From any thread. What is under way fails or ends, and what comes later fails.
  void break_all();
  // Throws if the group is broken. NCCL's collectives are only begun when their call returns, and
  // when they are aborted they end like any other, with anything in their tensors: so whoever has
  // waited for what a GPU did asks here before using it.
  void check() const;
  // NCCL comes to the group, to be aborted with it from here on. Throws if the group is broken.
  void add(OverNccl over);
  // The ranks have met over NCCL: `check` asks it, too.
  void met() { asks_nccl = true; }
  // To be told of each collective on a GPU.
  void began(c10::intrusive_ptr<c10d::Work> work) { last = std::move(work); }
  // Waits for the collectives on a GPU that are under way, unless the group is broken; then breaks
  // it.
  void close();

  c10::intrusive_ptr<c10d::ProcessGroup> group;
  // Where the group meets.
  c10::intrusive_ptr<c10d::Store> store;
  // NULL until the ranks have met.
  c10::intrusive_ptr<c10d::Backend> gloo;
  // Without a backend for a group in main memory. Written once, by `add`.
  OverNccl nccl;
  // For peers, when it is not them that are waited for.
  milliseconds patience{0};
  std::atomic<bool> broken{false};

 private:
  void settle() const;

  c10::intrusive_ptr<c10d::Work> last;
  std::atomic<bool> asks_nccl{false};
  std::mutex breaking;
  bool aborted = false;
};

// Gloo sums in a ring: 2 (N - 1) messages, one after the other, and each is a wait for a thread of the
// next rank. Where the values of all ranks together are few, every rank sends its own to all at once
// and adds up what comes, in the order of ranks: the same bits everywhere.
bool is_short(const c10d::ProcessGroup& group, const at::Tensor& values);
// `all`, which is as long as `own` times the ranks, receives `own` of each of them. Contiguous.
c10::intrusive_ptr<c10d::Work> send_to_all(
    c10d::ProcessGroup& group, at::Tensor& all, const at::Tensor& own);
void add_up(at::Tensor sum, const at::Tensor& all);

// Whoever is told of buckets; released with the last holder.
struct Told {
  Told(tradewind_told told, tradewind_release release, void* context)
      : told(told), release(release), context(context) {}
  Told(const Told&) = delete;
  ~Told() { release(context); }

  void operator()(size_t bucket, at::Tensor gradient) const { told(context, bucket, &gradient); }

  const tradewind_told told;
  const tradewind_release release;
  void* const context;
};

} // namespace tradewind

struct tradewind_group {
  std::shared_ptr<tradewind::Connections> connections;
};
