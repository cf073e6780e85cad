// No exception crosses from C++ to its callers.
#pragma once

#include <cstring>
#include <exception>

#include <c10/util/Exception.h>

namespace tradewind {

// Runs `body`; an exception becomes a message for tradewind_message_free.
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

// For what is on its way out: an exception tells nobody anything new.
template <typename Body>
void quietly(Body body) {
  try {
    body();
  } catch (...) {
  }
}

} // namespace tradewind
