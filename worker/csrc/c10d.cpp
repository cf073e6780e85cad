#include "bridge.h"

#include <cstdlib>

using tradewind::guard;

void tradewind_message_free(char* message) {
  free(message);
}

void tradewind_store_free(tradewind_store* store) {
  tradewind::quietly([&] { delete store; });
}

char* tradewind_set_grad(void* tensor, void* gradient) {
  return guard([&] {
    static_cast<at::Tensor*>(tensor)->mutable_grad() = *static_cast<const at::Tensor*>(gradient);
  });
}
