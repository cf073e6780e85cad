#include "c10d.h"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <unistd.h>

#include <ATen/ATen.h>
#include <c10/util/Logging.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

struct tradewind_store {
  c10::intrusive_ptr<c10d::Store> store;
};

struct tradewind_group {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
};

struct tradewind_breaker {
  c10::weak_intrusive_ptr<c10d::ProcessGroup> group;
};

namespace {

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

// Reduces as the Reducer does without a hook, bit for bit, and tells of the result.
struct Telling final : c10d::CommHookInterface {
  Telling(c10::intrusive_ptr<c10d::ProcessGroup> group, std::shared_ptr<const Told> told)
      : group(std::move(group)), told(std::move(told)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    auto values = bucket.getBuffer();
    // With a hook the Reducer leaves the division to it. This is the Reducer's own arithmetic.
    values.mul_(1.0 / group->getSize());
    std::vector<at::Tensor> tensors{values};
    auto reduced = group->allreduce(tensors)->getFuture();
    // Runs on the group's own thread, maybe when the Reducer is gone: it holds what it touches.
    // Backward waits for what it returns, so that all is told by then.
    auto tell = [told = told, index = bucket.getIndex(), values](c10::ivalue::Future& future) {
      auto result = future.value();
      (*told)(index, values);
      return result;
    };
    return reduced->then(std::move(tell), reduced->elementType());
  }

  at::Tensor parseHookResult(const c10::IValue& result) override {
    return c10d::detail::parseCppCommHookResult(result);
  }

  const c10::intrusive_ptr<c10d::ProcessGroup> group;
  const std::shared_ptr<const Told> told;
};

} // namespace

// DDP's Reducer with the buckets it was given, for good.
struct tradewind_reducer final : c10d::Reducer {
  tradewind_reducer(
      std::vector<at::Tensor> tensors, std::vector<std::vector<size_t>> buckets,
      c10::intrusive_ptr<c10d::ProcessGroup> group)
      : c10d::Reducer(
            std::move(tensors), std::move(buckets), std::move(group),
            /*expect_sparse_gradients=*/{}, c10d::kDefaultBucketBytesCap,
            /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/true,
            /*param_names=*/{}, c10d::kDefaultFirstBucketBytes,
            /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
            /*bucket_bytes_cap_list=*/{}) {
    // Otherwise every backward appends its tensors to a list that waits for rebuild_buckets.
    has_rebuilt_bucket_ = true;
    // Time every step: `finish` reports it.
    set_ddp_runtime_logging_sample_rate(1);
  }

  void prepare() {
    // With no .grad, autograd hands over the gradient it has computed, and the hook divides while
    // it copies it into the bucket: cheaper than zero, add, divide. It also shows afterwards which
    // tensors received none, and detaches them from the buckets of an earlier Reducer.
    for (const auto& tensor : params_) {
      tensor.mutable_grad().reset();
    }
    prepare_for_forward();
    prepare_for_backward({});
  }

  void watch(std::shared_ptr<const Told> told) {
    for (const auto& bucket : buckets_) {
      TORCH_CHECK(
          bucket.gradients.is_contiguous() && bucket.gradients.scalar_type() == at::kFloat &&
              bucket.gradients.is_cpu(),
          "a bucket is not contiguous f32 in main memory");
    }
    register_comm_hook(std::make_unique<Telling>(process_group_, std::move(told)));
  }

  int64_t finish() const {
    if (expect_autograd_hooks_) {
      return -1;
    }
    using Event = c10d::Timer::Event;
    auto exposed = timer_
        ? timer_->measureDifference(Event::kBackwardComputeEnd, Event::kBackwardCommEnd)
        : std::nullopt;
    return exposed.value_or(0);
  }

  const at::Tensor& bucket(size_t index) const {
    TORCH_CHECK(index < buckets_.size(), "no bucket ", index);
    const auto& values = buckets_[index].gradients;
    TORCH_CHECK(
        values.is_contiguous() && values.scalar_type() == at::kFloat && values.is_cpu(),
        "bucket ", index, " is not contiguous f32 in main memory");
    return values;
  }
};

// Counts the gradients that the buckets still have to receive. One thread runs backward on the CPU,
// the one that called it.
struct tradewind_watch {
  struct Bucket {
    std::vector<at::Tensor> tensors;
    at::Tensor gradient;
    size_t pending = 0;
    bool told = true;
  };

  explicit tradewind_watch(std::shared_ptr<const Told> told) : told(std::move(told)) {}

  void prepare() {
    for (auto& bucket : buckets) {
      bucket.pending = bucket.tensors.size();
      bucket.told = false;
    }
  }

  void received(size_t index) {
    auto& bucket = buckets[index];
    if (bucket.told || --bucket.pending > 0) {
      return;
    }
    tell(index);
  }

  void finish() {
    for (size_t index = 0; index < buckets.size(); ++index) {
      if (!buckets[index].told) {
        tell(index);
      }
    }
  }

  void tell(size_t index) {
    auto& bucket = buckets[index];
    bucket.told = true;
    (*told)(index, bucket.gradient);
  }

  const std::shared_ptr<const Told> told;
  std::vector<Bucket> buckets;
};

namespace {

// Sits on a tensor until its watch is freed.
struct Received final : torch::autograd::PostAccumulateGradHook {
  Received(tradewind_watch* watch, size_t bucket) : watch(watch), bucket(bucket) {}
  void operator()(const at::Tensor& /*tensor*/) override { watch->received(bucket); }

  tradewind_watch* const watch;
  const size_t bucket;
};

using std::chrono::milliseconds;

// Weeks. There is none at all, and the largest numbers overflow when a time is added to them.
constexpr milliseconds NO_TIMEOUT{INT32_MAX};

// Settings of libtorch's that are the process's. Made before main, when there is one thread, since
// one of them is read from the environment. A user's own setting wins.
struct Settings {
  Settings() {
    // c10d notes every collective in a FlightRecorder, one for all groups of the process, part of
    // which it changes without a lock (2.11): two groups that begin at once crash. 0 is off.
    setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/0);
    // What c10d logs when it fails, pages of stack included, it also throws, and the message is
    // handed back: a group that breaks is not news on stderr.
    if (std::getenv("TORCH_CPP_LOG_LEVEL") != nullptr) {
      c10::initLogging();
    } else {
      FLAGS_caffe2_log_level = c10::GLOG_FATAL;
    }
  }
};
const Settings settings;

// Runs `body`; an exception becomes a message.
template <typename Body>
char* guard(Body body) {
  try {
    body();
    return nullptr;
  } catch (const c10::Error& error) {
    return strdup(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return strdup(error.what());
  } catch (...) {
    return strdup("an exception that is no std::exception");
  }
}

at::Tensor blob(void* values, size_t length, int type) {
  constexpr at::ScalarType types[] = {at::kFloat, at::kDouble, at::kLong};
  TORCH_CHECK(type >= 0 && type < 3, "no element type ", type);
  return at::from_blob(values, {static_cast<int64_t>(length)}, at::dtype(types[type]));
}

struct Transport {
  c10::DeviceType device;
  c10d::ProcessGroup::BackendType type;
  c10::intrusive_ptr<c10d::Backend> backend;
};

// The one place that chooses what moves the bytes of a group: Gloo, over TCP, for tensors in
// main memory.
Transport make_transport(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const char* host,
    milliseconds timeout) {
  using c10d::ProcessGroupGloo;
  auto options = ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(ProcessGroupGloo::createDeviceForHostname(host));
  return {
      c10::DeviceType::CPU, c10d::ProcessGroup::GLOO,
      c10::make_intrusive<ProcessGroupGloo>(store, rank, size, options)};
}

// Gloo ends what waits for a peer whose connection is lost; but where one collective has failed, a
// message to it that comes late blocks the connection it came on, and what waits for that waits for
// ever, also for its end (Gloo of torch 2.11: Pair::read returns at a buffer that is gone). Nothing
// takes a collective back. A receive that times out closes all connections, though, whatever their
// state, and wakes whoever waits: so something that nobody sends is asked for.
void break_connections(c10d::ProcessGroup& group) {
  constexpr int tag = INT32_MAX;
  constexpr milliseconds soon{1};
  auto backend = group.getDefaultBackend();
  auto nothing = at::zeros({1});
  for (int peer = 0; peer < group.getSize(); ++peer) {
    if (peer == group.getRank()) {
      continue;
    }
    try {
      std::vector<at::Tensor> tensors{nothing};
      backend->recv(tensors, peer, tag)->wait(soon);
    } catch (...) {
      // As intended; or this connection was closed already, and the next one is tried.
    }
  }
}

tradewind_store* make_store(const char* host, const c10d::TCPStoreOptions& options) {
  return new tradewind_store{c10::make_intrusive<c10d::TCPStore>(host, options)};
}

} // namespace

void tradewind_message_free(char* message) {
  free(message);
}

void tradewind_exit(int status) {
  _exit(status);
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

void tradewind_store_free(tradewind_store* store) {
  free(guard([&] { delete store; }));
}

char* tradewind_group_new(
    const tradewind_store* store, const char* prefix, int rank, int size, const char* host,
    int64_t timeout_ms, tradewind_group** out) {
  return guard([&] {
    auto prefixed = c10::make_intrusive<c10d::PrefixStore>(prefix, store->store);
    auto transport = make_transport(prefixed, rank, size, host, milliseconds(timeout_ms));
    auto group = c10::make_intrusive<c10d::ProcessGroup>(prefixed, rank, size);
    group->setBackend(transport.device, transport.type, transport.backend);
    group->setDefaultBackend(transport.type);
    // The timeout was for the meeting. A rank may be as slow as it likes; whoever holds its lease
    // decides when it is gone.
    group->setTimeout(NO_TIMEOUT);
    *out = new tradewind_group{std::move(group)};
  });
}

void tradewind_group_free(tradewind_group* group) {
  free(guard([&] {
    // Its end waits for its collectives.
    break_connections(*group->group);
    delete group;
  }));
}

char* tradewind_breaker_new(const tradewind_group* group, tradewind_breaker** out) {
  return guard([&] {
    *out = new tradewind_breaker{c10::weak_intrusive_ptr<c10d::ProcessGroup>(group->group)};
  });
}

void tradewind_breaker_break(const tradewind_breaker* breaker) {
  free(guard([&] {
    if (auto group = breaker->group.lock()) {
      break_connections(*group);
    }
  }));
}

void tradewind_breaker_free(tradewind_breaker* breaker) {
  free(guard([&] { delete breaker; }));
}

char* tradewind_all_reduce(tradewind_group* group, void* values, size_t length, int type) {
  return guard([&] {
    std::vector<at::Tensor> tensors{blob(values, length, type)};
    group->group->allreduce(tensors)->wait();
  });
}

char* tradewind_all_reduce_tensor(tradewind_group* group, void* tensor) {
  return guard([&] {
    std::vector<at::Tensor> tensors{*static_cast<const at::Tensor*>(tensor)};
    group->group->allreduce(tensors)->wait();
  });
}

char* tradewind_broadcast(
    tradewind_group* group, void* values, size_t length, int type, int root) {
  return guard([&] {
    std::vector<at::Tensor> tensors{blob(values, length, type)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    group->group->broadcast(tensors, options)->wait();
  });
}

char* tradewind_all_gather(
    tradewind_group* group, float* all, const float* own, size_t length) {
  return guard([&] {
    auto input = blob(const_cast<float*>(own), length, TRADEWIND_F32);
    auto output = blob(all, length * group->group->getSize(), TRADEWIND_F32);
    group->group->_allgather_base(output, input)->wait();
  });
}

char* tradewind_reducer_new(
    const tradewind_group* group, void* const* tensors, const size_t* bucket_sizes,
    size_t buckets, tradewind_reducer** out) {
  return guard([&] {
    std::vector<at::Tensor> params;
    std::vector<std::vector<size_t>> indices(buckets);
    for (size_t bucket = 0; bucket < buckets; ++bucket) {
      for (size_t i = 0; i < bucket_sizes[bucket]; ++i) {
        indices[bucket].push_back(params.size());
        params.push_back(*static_cast<const at::Tensor*>(tensors[params.size()]));
        // A gradient of an earlier group would be copied into the new buckets.
        params.back().mutable_grad().reset();
      }
    }
    *out = new tradewind_reducer(std::move(params), std::move(indices), group->group);
  });
}

char* tradewind_reducer_prepare(tradewind_reducer* reducer) {
  return guard([&] { reducer->prepare(); });
}

char* tradewind_reducer_finish(tradewind_reducer* reducer, int64_t* exposed_ns) {
  return guard([&] { *exposed_ns = reducer->finish(); });
}

char* tradewind_reducer_bucket(const tradewind_reducer* reducer, size_t bucket, void** tensor) {
  return guard([&] { *tensor = new at::Tensor(reducer->bucket(bucket)); });
}

void tradewind_reducer_free(tradewind_reducer* reducer) {
  free(guard([&] { delete reducer; }));
}

char* tradewind_reducer_watch(
    tradewind_reducer* reducer, tradewind_told told, tradewind_release release, void* context) {
  return guard([&] { reducer->watch(std::make_shared<const Told>(told, release, context)); });
}

char* tradewind_watch_new(
    void* const* tensors, const size_t* bucket_sizes, size_t buckets, tradewind_told told,
    tradewind_release release, void* context, tradewind_watch** out) {
  return guard([&] {
    auto watch = std::make_unique<tradewind_watch>(
        std::make_shared<const Told>(told, release, context));
    for (size_t index = 0; index < buckets; ++index) {
      auto& bucket = watch->buckets.emplace_back();
      const float* end = nullptr;
      int64_t length = 0;
      for (size_t i = 0; i < bucket_sizes[index]; ++i) {
        const auto& tensor = *static_cast<const at::Tensor*>(*tensors++);
        const auto& grad = tensor.grad();
        TORCH_CHECK(
            grad.defined() && grad.is_contiguous() && grad.scalar_type() == at::kFloat &&
                grad.is_cpu() && (end == nullptr || grad.const_data_ptr<float>() == end),
            "the gradients of bucket ", index, " are not one range of f32 in main memory");
        end = grad.const_data_ptr<float>() + grad.numel();
        length += grad.numel();
        bucket.tensors.push_back(tensor);
      }
      TORCH_CHECK(!bucket.tensors.empty(), "bucket ", index, " is empty");
      bucket.gradient = bucket.tensors.front().grad().as_strided({length}, {1});
    }
    for (size_t index = 0; index < buckets; ++index) {
      for (const auto& tensor : watch->buckets[index].tensors) {
        torch::autograd::impl::set_post_acc_grad_hooks(
            tensor, std::make_unique<Received>(watch.get(), index));
      }
    }
    *out = watch.release();
  });
}

char* tradewind_watch_prepare(tradewind_watch* watch) {
  return guard([&] { watch->prepare(); });
}

char* tradewind_watch_finish(tradewind_watch* watch) {
  return guard([&] { watch->finish(); });
}

void tradewind_watch_free(tradewind_watch* watch) {
  free(guard([&] {
    for (const auto& bucket : watch->buckets) {
      for (const auto& tensor : bucket.tensors) {
        // Another watch may have taken its place.
        auto& hook = torch::autograd::impl::post_acc_grad_hooks(tensor);
        auto* own = dynamic_cast<Received*>(hook.get());
        if (own != nullptr && own->watch == watch) {
          hook.reset();
        }
      }
    }
    delete watch;
  }));
}

char* tradewind_set_grad(void* tensor, void* gradient) {
  return guard([&] {
    static_cast<at::Tensor*>(tensor)->mutable_grad() = *static_cast<const at::Tensor*>(gradient);
  });
}
