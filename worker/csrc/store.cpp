#include "bridge.h"

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

using std::chrono::milliseconds;
using tradewind::guard;

namespace {

tradewind_store* make_store(const char* host, const c10d::TCPStoreOptions& options) {
  return new tradewind_store{c10::make_intrusive<c10d::TCPStore>(host, options)};
}

} // namespace

char* tradewind_store_serve(
    const char* host, uint16_t port, int listener, int64_t timeout_ms, tradewind_store** out) {
  return guard([&] {
    c10d::TCPStoreOptions options;
    options.port = port;
    options.isServer = true;
    options.waitWorkers = false;
    options.timeout = milliseconds(timeout_ms);
    options.masterListenFd = listener;
    *out = make_store(host, options);
  });
}

char* tradewind_store_connect(
    const char* host, uint16_t port, int64_t timeout_ms, tradewind_store** out) {
  return guard([&] {
    c10d::TCPStoreOptions options;
    options.port = port;
    options.waitWorkers = false;
    options.timeout = milliseconds(timeout_ms);
    *out = make_store(host, options);
  });
}
