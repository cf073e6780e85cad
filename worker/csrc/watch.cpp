#include "bridge.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

using tradewind::guard;
using tradewind::Told;

// Counts the gradients that the buckets still have to receive. One thread touches it at a time:
// backward runs in the one that called it on the CPU, and while that one waits in another on a GPU.
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

} // namespace

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
                grad.device() == tensor.device() && (end == nullptr || grad.const_data_ptr<float>() == end),
            "the gradients of bucket ", index, " are not one range of f32");
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
