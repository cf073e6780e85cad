#include "c10d.h"

#include <cstdlib>
#include <cstring>
#include <memory>

#include <ATen/ATen.h>
#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

struct tradewind_store {
  c10::intrusive_ptr<c10d::Store> store;
};

struct tradewind_group {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
};

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

namespace {

using std::chrono::milliseconds;

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

tradewind_store* make_store(const char* host, const c10d::TCPStoreOptions& options) {
  return new tradewind_store{c10::make_intrusive<c10d::TCPStore>(host, options)};
}

} // namespace

void tradewind_message_free(char* message) {
  free(message);
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
    *out = new tradewind_group{std::move(group)};
  });
}

void tradewind_group_free(tradewind_group* group) {
  free(guard([&] { delete group; }));
}

char* tradewind_all_reduce(tradewind_group* group, void* values, size_t length, int type) {
  return guard([&] {
    std::vector<at::Tensor> tensors{blob(values, length, type)};
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

char* tradewind_reducer_bucket(
    const tradewind_reducer* reducer, size_t bucket, const float** values, size_t* length) {
  return guard([&] {
    const auto& tensor = reducer->bucket(bucket);
    *values = tensor.const_data_ptr<float>();
    *length = tensor.numel();
  });
}

void tradewind_reducer_free(tradewind_reducer* reducer) {
  free(guard([&] { delete reducer; }));
}

char* tradewind_set_grad(void* tensor, void* gradient) {
  return guard([&] {
    static_cast<at::Tensor*>(tensor)->mutable_grad() = *static_cast<const at::Tensor*>(gradient);
  });
}
