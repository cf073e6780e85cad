#include "bridge.h"

#include <algorithm>

#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

using tradewind::guard;
using tradewind::Told;

namespace {

// Averages a bucket over the ranks, and tells of the result if anybody wants to know.
struct Averaging final : c10d::CommHookInterface {
  Averaging(c10::intrusive_ptr<c10d::ProcessGroup> group, std::shared_ptr<const Told> told)
      : group(std::move(group)), told(std::move(told)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    auto values = bucket.getBuffer();
    // With a hook the Reducer leaves the division to it. This is the Reducer's own arithmetic.
    values.mul_(1.0 / group->getSize());
    auto reduced = sum(values);
    if (told == nullptr) {
      return reduced;
    }
    // Runs on the group's own thread, maybe when the Reducer is gone: it holds what it touches.
    // Backward waits for what it returns, so that all is told by then. On a GPU it runs at once, on
    // a stream of its own that waits for NCCL, and for which backward's own waits.
    auto tell = [told = told, index = bucket.getIndex(), values](c10::ivalue::Future& future) {
      auto result = future.value();
      (*told)(index, values);
      return result;
    };
    return reduced->then(std::move(tell), reduced->elementType());
  }

  c10::intrusive_ptr<c10::ivalue::Future> sum(at::Tensor values) const {
    if (!tradewind::is_short(*group, values)) {
      std::vector<at::Tensor> tensors{values};
      return group->allreduce(tensors)->getFuture();
    }
    auto all = at::empty({group->getSize() * values.numel()}, values.options());
    auto add_up = [values, all](c10::ivalue::Future& sent) {
      sent.value();
      tradewind::add_up(values, all);
      return c10::IValue(values);
    };
    auto sent = tradewind::send_to_all(*group, all, values)->getFuture();
    return sent->then(std::move(add_up), c10::TensorType::get());
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
    // Time every step: `finish` and `reduced` report it.
    set_ddp_runtime_logging_sample_rate(1);
  }

  void prepare() {
    // With no .grad, autograd hands over the gradient it has computed, and the hook divides while
    // it copies it into the bucket: cheaper than zero, add, divide. It also shows afterwards which
    // tensors received none, and detaches them from the buckets of an earlier Reducer.
    for (const auto& tensor : params_) {
      tensor.mutable_grad().reset();
    }
    if (!hooked && any_short()) {
      hook(nullptr);
    }
    prepare_for_forward();
    prepare_for_backward({});
  }

  void watch(std::shared_ptr<const Told> told) {
    for (size_t index = 0; index < buckets_.size(); ++index) {
      bucket(index);
    }
    hook(std::move(told));
  }

  int64_t finish() const {
    if (expect_autograd_hooks_) {
      return -1;
    }
    // On a GPU the times are those of events, which have passed by now.
    using Event = c10d::Timer::Event;
    auto exposed = timer_
        ? timer_->measureDifference(Event::kBackwardComputeEnd, Event::kBackwardCommEnd)
        : std::nullopt;
    return exposed.value_or(0);
  }

  // On a GPU the times are those of events on its stream: this waits for the last of them.
  int64_t reduced() const {
    using Event = c10d::Timer::Event;
    auto took = timer_
        ? timer_->measureDifference(Event::kBackwardCommStart, Event::kBackwardCommEnd)
        : std::nullopt;
    return took.value_or(-1);
  }

  const at::Tensor& bucket(size_t index) const {
    TORCH_CHECK(index < buckets_.size(), "no bucket ", index);
    const auto& values = buckets_[index].gradients;
    TORCH_CHECK(
        values.is_contiguous() && values.scalar_type() == at::kFloat &&
            values.device() == params_.front().device(),
        "bucket ", index, " is not contiguous f32 on ", params_.front().device());
    return values;
  }

 private:
  bool any_short() const {
    auto is_short = [&](const auto& bucket) {
      return tradewind::is_short(*process_group_, bucket.gradients);
    };
    return std::any_of(buckets_.begin(), buckets_.end(), is_short);
  }

  void hook(std::shared_ptr<const Told> told) {
    hooked = true;
    register_comm_hook(std::make_unique<Averaging>(process_group_, std::move(told)));
  }

  bool hooked = false;
};

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
    *out = new tradewind_reducer(std::move(params), std::move(indices), group->connections->group);
  });
}

char* tradewind_reducer_prepare(tradewind_reducer* reducer) {
  return guard([&] { reducer->prepare(); });
}

char* tradewind_reducer_finish(tradewind_reducer* reducer, int64_t* exposed_ns) {
  return guard([&] { *exposed_ns = reducer->finish(); });
}

char* tradewind_reducer_reduced(const tradewind_reducer* reducer, int64_t* took_ns) {
  return guard([&] { *took_ns = reducer->reduced(); });
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
