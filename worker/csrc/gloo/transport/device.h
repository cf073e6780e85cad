// See ../context.h.
#pragma once

namespace gloo {
namespace transport {

class Device;

// Complete, because c10d's header holds one in a std::unique_ptr; never created here.
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = default;
};

} // namespace transport
} // namespace gloo
