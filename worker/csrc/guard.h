// How functions of the bridge report what went wrong: no exception crosses.
#pragma once

#include <cstring>
#include <exception>

#include <c10/util/Exception.h>

namespace tradewind {

// Runs `body`; NULL, or what it threw, to be given back to `tradewind_message_free`.
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

} // namespace tradewind
