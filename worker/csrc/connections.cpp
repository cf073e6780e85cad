#include "bridge.h"

#include <thread>

#include "half.h"

namespace {

using tradewind::milliseconds;

// Gloo ends what waits for a peer whose connection is lost; but where one collective has failed, a
// message to it that comes late blocks the connection it came on, and what waits for that waits for
// ever, also for its end (Gloo of torch 2.11: Pair::read returns at a buffer that is gone). Nothing
// takes a collective back. A receive that times out closes all connections, though, whatever their
// state, and wakes whoever waits: so something that nobody sends is asked for.
void break_connections(c10d::Backend& gloo) {
  constexpr int tag = INT32_MAX;
  constexpr milliseconds soon{1};
  auto nothing = at::zeros({1});
  for (int peer = 0; peer < gloo.getSize(); ++peer) {
    if (peer == gloo.getRank()) {
      continue;
    }
    try {
      std::vector<at::Tensor> tensors{nothing};
      gloo.recv(tensors, peer, tag)->wait(soon);
    } catch (...) {
      // As intended; or this connection was closed already, and the next one is tried.
    }
  }
}

} // namespace

namespace tradewind {

Connections::~Connections() {
  close();
}

void Connections::close() {
  // The end of a group that did its work must not undo the last of it.
  quietly([&] { settle(); });
  // The end of its backends waits for their collectives.
  break_all();
}

bool OverNccl::ready() const {
  return half->ready(*backend, device);
}

void Connections::add(OverNccl over) {
  std::lock_guard<std::mutex> lock(breaking);
  nccl = std::move(over);
  // Whoever has broken the group before found nothing to abort; the end of the group does.
  TORCH_CHECK(!broken, "the group was broken");
}

void Connections::break_all() {
  // Before anything ends: whoever waits for it asks `check` afterwards.
  broken = true;
  if (gloo != nullptr) {
    quietly([&] { break_connections(*gloo); });
  }
  // Whoever comes second waits until the first has done it: the end of the backend must not find
  // it half done. Its destructor throws if it has to abort and cannot, which ends the process.
  std::lock_guard<std::mutex> lock(breaking);
  if (nccl.backend != nullptr && !aborted) {
    quietly([&] { nccl.backend->abort(); });
    aborted = true;
  }
}

void Connections::check() const {
  TORCH_CHECK(!broken, "the group was broken");
  // NCCL's own word decides, not c10d's.
  if (asks_nccl) {
    nccl.ready();
  }
}

void Connections::settle() const {
  constexpr milliseconds pause{1};
  const auto end = std::chrono::steady_clock::now() + patience;
  while (last != nullptr && !last->isCompleted() && std::chrono::steady_clock::now() < end) {
    check();
    std::this_thread::sleep_for(pause);
  }
}

} // namespace tradewind
