#include "bridge.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

using std::chrono::milliseconds;
using tradewind::guard;

namespace {

tradewind_store* make_store(const char* host, const c10d::TCPStoreOptions& options) {
  return new tradewind_store{c10::make_intrusive<c10d::TCPStore>(host, options)};
}

constexpr size_t SEAL_BYTES = TRADEWIND_SEAL_BYTES;

// A store whose values are sealed: who cannot make seals cannot make a rank believe a value. It can
// still delete keys, and count counters; then ranks wait in vain, or fail.
class SealedStore : public c10d::Store {
 public:
  SealedStore(
      c10::intrusive_ptr<c10d::Store> inner, tradewind_sealer sealer, const uint8_t* key)
      : c10d::Store(inner->getTimeout()), inner_(std::move(inner)), sealer_(sealer) {
    std::copy_n(key, SEAL_BYTES, key_.begin());
  }

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<SealedStore>(inner_->clone(), sealer_, key_.data());
  }

  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    inner_->set(key, sealed(key, value));
  }

  std::vector<uint8_t> get(const std::string& key) override {
    return opened(key, inner_->get(key));
  }

  std::vector<uint8_t> compareSet(
      const std::string& key, const std::vector<uint8_t>& expected,
      const std::vector<uint8_t>& desired) override {
    // What is expected is nothing where there may be nothing.
    const auto want = expected.empty() ? expected : sealed(key, expected);
    const auto found = inner_->compareSet(key, want, sealed(key, desired));
    return found.empty() ? found : opened(key, found);
  }

  int64_t add(const std::string& key, int64_t value) override { return inner_->add(key, value); }
  bool deleteKey(const std::string& key) override { return inner_->deleteKey(key); }
  bool check(const std::vector<std::string>& keys) override { return inner_->check(keys); }
  int64_t getNumKeys() override { return inner_->getNumKeys(); }
  void wait(const std::vector<std::string>& keys) override { inner_->wait(keys); }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    inner_->wait(keys, timeout);
  }
  const milliseconds& getTimeout() const noexcept override { return inner_->getTimeout(); }
  void setTimeout(const milliseconds& timeout) override { inner_->setTimeout(timeout); }
  // Several values in one message are not sealed one by one; who asks uses get and set instead.
  bool hasExtendedApi() const override { return false; }

 private:
  std::array<uint8_t, SEAL_BYTES> seal(
      const std::string& key, const uint8_t* value, size_t length) const {
    std::array<uint8_t, SEAL_BYTES> made{};
    const auto* name = reinterpret_cast<const uint8_t*>(key.data());
    sealer_(key_.data(), name, key.size(), value, length, made.data());
    return made;
  }

  std::vector<uint8_t> sealed(const std::string& key, const std::vector<uint8_t>& value) const {
    const auto made = seal(key, value.data(), value.size());
    auto all = value;
    all.insert(all.end(), made.begin(), made.end());
    return all;
  }

  std::vector<uint8_t> opened(const std::string& key, std::vector<uint8_t> all) const {
    const auto length = all.size() - std::min(all.size(), SEAL_BYTES);
    const auto made = seal(key, all.data(), length);
    // In time that does not depend on where they differ.
    uint8_t differs = all.size() < SEAL_BYTES ? 1 : 0;
    for (size_t at = 0; at < SEAL_BYTES && length + at < all.size(); ++at) {
      differs |= made[at] ^ all[length + at];
    }
    TORCH_CHECK(
        differs == 0,
        "somebody who does not know the run's token has written to the group's store, under ", key);
    all.resize(length);
    return all;
  }

  c10::intrusive_ptr<c10d::Store> inner_;
  tradewind_sealer sealer_;
  std::array<uint8_t, SEAL_BYTES> key_{};
};

} // namespace

char* tradewind_store_sealed(
    const tradewind_store* store, tradewind_sealer sealer, const uint8_t* key,
    tradewind_store** out) {
  return guard([&] {
    *out = new tradewind_store{c10::make_intrusive<SealedStore>(store->store, sealer, key)};
  });
}

char* tradewind_store_set(
    tradewind_store* store, const char* key, const uint8_t* value, size_t length) {
  return guard([&] { store->store->set(key, std::vector<uint8_t>(value, value + length)); });
}

char* tradewind_store_get(
    tradewind_store* store, const char* key, uint8_t* value, size_t capacity, size_t* length) {
  return guard([&] {
    const auto found = store->store->get(key);
    TORCH_CHECK(found.size() <= capacity, "a value of ", found.size(), " bytes");
    std::copy(found.begin(), found.end(), value);
    *length = found.size();
  });
}

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
