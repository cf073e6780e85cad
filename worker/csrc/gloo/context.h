// The wheel of torch contains Gloo's code but not its headers. ProcessGroupGloo.hpp needs the
// names below to be declared, and nothing of them is called from here, so nothing of Gloo is
// undefined in the object file. Do not create, copy or call any of these types in this package.
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

} // namespace gloo
