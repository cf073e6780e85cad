#include "bridge.h"

#include <cstdlib>

#include <unistd.h>

using tradewind::guard;

void tradewind_message_free(char* message) {
  free(message);
}

void tradewind_exit(int status) {
  _exit(status);
}

void tradewind_store_free(tradewind_store* store) {
  tradewind::quietly([&] { delete store; });
}

char* tradewind_set_grad(void* tensor, void* gradient) {
  return guard([&] {
    static_cast<at::Tensor*>(tensor)->mutable_grad() = *static_cast<const at::Tensor*>(gradient);
  });
}

char* tradewind_copy(void* const* to, void* const* from, size_t count) {
  return guard([&] {
    std::vector<at::Tensor> targets, sources;
    for (size_t i = 0; i < count; ++i) {
      targets.push_back(*static_cast<const at::Tensor*>(to[i]));
      sources.push_back(*static_cast<const at::Tensor*>(from[i]));
    }
    at::_foreach_copy_(targets, sources);
  });
}
