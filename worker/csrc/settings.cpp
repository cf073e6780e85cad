// Settings of libtorch's that are the process's, and read from the environment.

#include "bridge.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <c10/util/Logging.h>

namespace {

// In place, because it is written when there are many threads.
char nccl_wait[] = "TORCH_NCCL_NONBLOCKING_TIMEOUT=0000000060";
bool nccl_wait_is_ours = false;

// Made before main, when there is one thread. A user's own setting wins, but for those that would
// end the survivors of a group that breaks.
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
    nccl();
  }

  // c10d's watchdog (ProcessGroupNCCL::Watchdog::runLoop, 2.11) sees what NCCL reports of a peer.
  static void nccl() {
    // 0, it only notes the error, or 2, it also aborts the communicators, or 1 and 3 (the default),
    // it throws, in a thread of its own, which ends the process: a group could not be formed again
    // by those who are left. Here 0. A communicator that is aborted ends its kernels as if they had
    // done their work, with anything in the gradients; so whoever aborts must say so before, or
    // they are on their way to the shards. With 0 nobody aborts but Connections::break_all.
    const char* handling = std::getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING");
    if (handling == nullptr || std::string(handling) != "2") {
      setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/1);
    }
    // Turns 0 into 3.
    setenv("TORCH_NCCL_DESYNC_DEBUG", "0", /*overwrite=*/1);
    // The watchdog sleeps four times this long after an error, with the lock that every collective
    // and the end of the group need: a minute by default.
    setenv("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "0", /*overwrite=*/1);
    // A CUDA error that the watchdog meets ends the process there, without a word of who was at
    // work; the training loop meets it as well, and says.
    setenv("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0", /*overwrite=*/1);
    // A monitor ends the process when the watchdog has been stuck for minutes, as it may be while
    // a communicator is aborted. Here the lease decides, and the fence ends who is stuck.
    setenv("TORCH_NCCL_ENABLE_MONITORING", "0", /*overwrite=*/0);
    // It also asks the store every second whether a peer wants a dump of what the FlightRecorder
    // holds, which is nothing; the store may be gone with the rank that served it.
    setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "0", /*overwrite=*/0);
    if (std::getenv("TORCH_NCCL_NONBLOCKING_TIMEOUT") == nullptr) {
      putenv(nccl_wait);
      nccl_wait_is_ours = true;
    }
  }
};
const Settings settings;

} // namespace

namespace tradewind {

void wait_for_nccl(milliseconds timeout) {
  if (!nccl_wait_is_ours) {
    return;
  }
  const auto seconds = std::clamp<int64_t>((timeout.count() + 999) / 1000, 1, 999'999'999);
  char* digits = nccl_wait + sizeof nccl_wait - 1 - 10;
  char text[11];
  snprintf(text, sizeof text, "%010lld", static_cast<long long>(seconds));
  std::copy(text, text + 10, digits);
}

} // namespace tradewind
