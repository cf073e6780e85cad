#include "bridge.h"

#include <thread>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "half.h"

using tradewind::Connections;
using tradewind::guard;
using tradewind::milliseconds;

struct tradewind_breaker {
  std::weak_ptr<Connections> connections;
};

namespace {

// Weeks. There is none at all, and the largest numbers overflow when a time is added to them.
constexpr milliseconds NO_TIMEOUT{INT32_MAX};

at::Tensor blob(void* values, size_t length, int type) {
  constexpr at::ScalarType types[] = {at::kFloat, at::kDouble, at::kLong};
  TORCH_CHECK(type >= 0 && type < 3, "no element type ", type);
  return at::from_blob(values, {static_cast<int64_t>(length)}, at::dtype(types[type]));
}

at::Tensor& tensor_of(void* raw) {
  return *static_cast<at::Tensor*>(raw);
}

// For tensors in main memory returns when they are there; for those on a GPU, when the current
// stream waits for them.
template <typename Begin>
void collective(tradewind_group* group, const at::Tensor& tensor, Begin begin) {
  auto& connections = *group->connections;
  TORCH_CHECK(!connections.broken, "the group was broken");
  try {
    auto work = begin(*connections.group);
    if (!tensor.is_cpu()) {
      connections.began(work);
    }
    work->wait();
  } catch (...) {
    connections.broken = true;
    throw;
  }
}

void sum(tradewind_group* group, at::Tensor values) {
  auto& members = *group->connections->group;
  if (!tradewind::is_short(members, values)) {
    std::vector<at::Tensor> tensors{values};
    collective(group, values, [&](auto& members) { return members.allreduce(tensors); });
    return;
  }
  auto all = at::empty({members.getSize() * values.numel()}, values.options());
  auto begin = [&](auto& members) { return tradewind::send_to_all(members, all, values); };
  collective(group, values, begin);
  tradewind::add_up(values, all);
}

void gather(tradewind_group* group, at::Tensor all, at::Tensor own) {
  collective(group, own, [&](auto& members) {
    return tradewind::is_short(members, own) ? tradewind::send_to_all(members, all, own)
                                             : members._allgather_base(all, own);
  });
}

c10::intrusive_ptr<c10d::Backend> over_tcp(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const char* host,
    milliseconds timeout) {
  using c10d::ProcessGroupGloo;
  auto options = ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(ProcessGroupGloo::createDeviceForHostname(host));
  return c10::make_intrusive<ProcessGroupGloo>(store, rank, size, options);
}

// NCCL connects the ranks behind, and a first collective then shows that it has. c10d would wait for
// that inside the collective, where nobody could call it back: so NCCL is asked before.
void meet(const Connections& connections, milliseconds patience) {
  const auto& nccl = connections.nccl;
  const auto end = std::chrono::steady_clock::now() + patience;
  const auto await = [&](auto done) {
    while (!done()) {
      TORCH_CHECK(!connections.broken, "the group was broken");
      TORCH_CHECK(
          std::chrono::steady_clock::now() < end, "the peers were not all there after ",
          patience.count(), " ms");
      std::this_thread::sleep_for(milliseconds(1));
    }
  };
  await([&] { return nccl.ready(); });
  const auto place = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(nccl.device));
  std::vector<at::Tensor> tensors{at::ones({1}, at::device(place).dtype(at::kFloat))};
  auto work = nccl.backend->allreduce(tensors);
  await([&] { return work->isCompleted(); });
  if (auto error = work->exception()) {
    std::rethrow_exception(error);
  }
  work->wait();
  const auto sum = tensors.front().item<float>();
  // Aborted, it has ended, too, with anything.
  TORCH_CHECK(!connections.broken, "the group was broken");
  TORCH_CHECK(
      sum == nccl.backend->getSize(), "a sum over ", nccl.backend->getSize(), " ranks came to ", sum);
}

} // namespace

char* tradewind_group_new(
    const tradewind_store* store, const char* prefix, int rank, int size, const char* host,
    int64_t timeout_ms, tradewind_group** out) {
  return guard([&] {
    auto connections = std::make_shared<Connections>();
    connections->patience = milliseconds(timeout_ms);
    connections->store = c10::make_intrusive<c10d::PrefixStore>(prefix, store->store);
    auto gloo = over_tcp(connections->store, rank, size, host, connections->patience);
    connections->gloo = gloo;
    auto group = c10::make_intrusive<c10d::ProcessGroup>(connections->store, rank, size);
    group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::GLOO, gloo);
    group->setDefaultBackend(c10d::ProcessGroup::GLOO);
    // The timeout was for the meeting. A rank may be as slow as it likes; whoever holds its lease
    // decides when it is gone.
    group->setTimeout(NO_TIMEOUT);
    connections->group = std::move(group);
    *out = new tradewind_group{std::move(connections)};
  });
}

char* tradewind_group_add_nccl(
    tradewind_group* group, const tradewind_half* half, int device, int64_t patience_ms) {
  return guard([&] {
    auto& connections = *group->connections;
    auto& members = *connections.group;
    const milliseconds patience{patience_ms};
    tradewind::wait_for_nccl(patience);
    const auto store = c10::make_intrusive<c10d::PrefixStore>("nccl", connections.store);
    auto backend =
        half->backend(store, members.getRank(), members.getSize(), device, NO_TIMEOUT.count());
    connections.add({backend, half, device});
    meet(connections, patience);
    connections.met();
    members.setBackend(at::kCUDA, c10d::ProcessGroup::NCCL, backend);
  });
}

void tradewind_group_close(tradewind_group* group) {
  tradewind::quietly([&] { group->connections->close(); });
}

void tradewind_group_free(tradewind_group* group) {
  tradewind::quietly([&] { delete group; });
}

char* tradewind_group_check(const tradewind_group* group) {
  return guard([&] { group->connections->check(); });
}

char* tradewind_breaker_new(const tradewind_group* group, tradewind_breaker** out) {
  return guard([&] { *out = new tradewind_breaker{group->connections}; });
}

void tradewind_breaker_break(const tradewind_breaker* breaker) {
  tradewind::quietly([&] {
    if (auto connections = breaker->connections.lock()) {
      connections->break_all();
    }
  });
}

char* tradewind_breaker_check(const tradewind_breaker* breaker) {
  return guard([&] {
    auto connections = breaker->connections.lock();
    TORCH_CHECK(connections != nullptr, "the group is gone");
    connections->check();
  });
}

void tradewind_breaker_free(tradewind_breaker* breaker) {
  tradewind::quietly([&] { delete breaker; });
}

char* tradewind_all_reduce(tradewind_group* group, void* values, size_t length, int type) {
  return guard([&] { sum(group, blob(values, length, type)); });
}

char* tradewind_all_reduce_tensor(tradewind_group* group, void* tensor) {
  return guard([&] { sum(group, tensor_of(tensor)); });
}

char* tradewind_broadcast(
    tradewind_group* group, void* values, size_t length, int type, int root) {
  return guard([&] {
    std::vector<at::Tensor> tensors{blob(values, length, type)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    auto begin = [&](auto& members) { return members.broadcast(tensors, options); };
    collective(group, tensors[0], begin);
  });
}

char* tradewind_all_gather(
    tradewind_group* group, float* all, const float* own, size_t length) {
  return guard([&] {
    auto input = blob(const_cast<float*>(own), length, TRADEWIND_F32);
    auto output = blob(all, length * group->connections->group->getSize(), TRADEWIND_F32);
    gather(group, output, input);
  });
}

char* tradewind_all_gather_tensor(tradewind_group* group, void* all, void* own) {
  return guard([&] { gather(group, tensor_of(all), tensor_of(own)); });
}
