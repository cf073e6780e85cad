#include "device.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "guard.h"

struct tradewind_stream {
  c10::Stream stream;
};

struct tradewind_event {
  c10::Event event;
  c10::Device device;
};

namespace {

using tradewind::guard;

c10::impl::VirtualGuardImpl cuda() {
  return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA);
}

c10::Device device(int index) {
  return c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index));
}

// CUDAGuardImpl::record, block and destroyEvent put the thread back on the device it was on, and since
// CUDA 12 that makes a context there.
void take(c10::Device device) {
  const auto guard = cuda();
  if (guard.getDevice() != device) {
    guard.setDevice(device);
  }
}

// c10's events are of the kind for which CUDA's own wait spins a core, whatever the context's flags say.
// Asked for by and by, an event is told of at most a 64th of its time late.
void sleep_until(const c10::Event& event) {
  using std::chrono::microseconds;
  using clock = std::chrono::steady_clock;
  const auto begin = clock::now();
  while (!event.query()) {
    const auto waited = std::chrono::duration_cast<microseconds>(clock::now() - begin);
    const auto pause = std::clamp(waited / 64, microseconds(10), microseconds(200));
    std::this_thread::sleep_for(pause);
  }
}

const at::Tensor& tensor(const void* raw) {
  return *static_cast<const at::Tensor*>(raw);
}

std::vector<at::Tensor> all(void* const* raw, size_t count) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    tensors.push_back(tensor(raw[i]));
  }
  return tensors;
}

} // namespace

char* tradewind_device_take(int index) {
  return guard([&] { take(device(index)); });
}

char* tradewind_stream_new(int index, tradewind_stream** out) {
  return guard([&] {
    take(device(index));
    *out = new tradewind_stream{cuda().getStreamFromGlobalPool(device(index))};
  });
}

char* tradewind_stream_enter(const tradewind_stream* stream, tradewind_stream** before) {
  return guard([&] {
    take(stream->stream.device());
    *before = new tradewind_stream{cuda().exchangeStream(stream->stream)};
  });
}

char* tradewind_stream_leave(tradewind_stream* before) {
  return guard([&] {
    std::unique_ptr<tradewind_stream> own(before);
    cuda().exchangeStream(own->stream);
  });
}

void tradewind_stream_free(tradewind_stream* stream) {
  delete stream;
}

char* tradewind_event_record(int index, tradewind_event** out) {
  return guard([&] {
    auto event = std::make_unique<tradewind_event>(
        tradewind_event{c10::Event(c10::DeviceType::CUDA), device(index)});
    take(event->device);
    event->event.record(cuda().getStream(event->device));
    *out = event.release();
  });
}

char* tradewind_event_block(const tradewind_event* event) {
  return guard([&] {
    take(event->device);
    event->event.block(cuda().getStream(event->device));
  });
}

char* tradewind_event_wait(const tradewind_event* event) {
  return guard([&] {
    take(event->device);
    sleep_until(event->event);
  });
}

void tradewind_event_free(tradewind_event* event) {
  free(guard([&] {
    take(event->device);
    delete event;
  }));
}

char* tradewind_page_locked(size_t length, int type, void** out) {
  return guard([&] {
    constexpr at::ScalarType types[] = {at::kFloat, at::kBFloat16, at::kByte};
    TORCH_CHECK(type >= 0 && type < 3, "no element type ", type);
    auto options = at::dtype(types[type]).pinned_memory(true);
    *out = new at::Tensor(at::empty({static_cast<int64_t>(length)}, options));
  });
}

char* tradewind_bytes_of(
    void* bytes, size_t length, void (*free_owner)(void*), void* owner, void** out) {
  return guard([&] {
    std::shared_ptr<void> owned(owner, free_owner);
    auto free_bytes = [owned](void*) mutable { owned.reset(); };
    *out = new at::Tensor(at::from_blob(
        bytes, {static_cast<int64_t>(length)}, std::move(free_bytes), at::dtype(at::kByte)));
  });
}

char* tradewind_copy(void* to, const void* from) {
  return guard([&] {
    at::NoGradGuard no_grad;
    tensor(to).copy_(tensor(from), /*non_blocking=*/true);
  });
}

char* tradewind_copy_each(void* const* to, void* const* from, size_t count) {
  return guard([&] {
    at::NoGradGuard no_grad;
    at::_foreach_copy_(all(to, count), all(from, count), /*non_blocking=*/true);
  });
}

char* tradewind_check_and_scale(void* values, void* flag, const void* factor) {
  return guard([&] {
    at::NoGradGuard no_grad;
    at::Tensor found = tensor(flag);
    at::_amp_foreach_non_finite_check_and_unscale_({tensor(values)}, found, tensor(factor));
  });
}

char* tradewind_in_use(const void* used) {
  return guard([&] {
    const auto& tensor = ::tensor(used);
    tensor.record_stream(cuda().getStream(tensor.device()));
  });
}
