// Which libtorch computes, and how precisely: autocast on a thread, and settings of the whole process.
// Conventions are those of c10d.h.
#pragma once

#include <stdint.h>

extern "C" {

// Kinds of devices, and types that forward may compute in.
enum { TRADEWIND_CPU = 0, TRADEWIND_CUDA = 1 };
enum { TRADEWIND_BF16 = 0, TRADEWIND_F16 = 1 };

// What autocast was on this thread before it was entered.
typedef struct tradewind_autocast tradewind_autocast;
// Turns autocast on for operations of this thread on such devices.
char* tradewind_autocast_enter(int device, int type, tradewind_autocast** out);
// Puts back what was before, on the same thread; the outermost one drops the weights that were
// cast, which change between steps.
void tradewind_autocast_leave(tradewind_autocast* before);

// For the whole process: whether f32 products on a GPU may round their factors to TF32, and
// whether an operation whose bits do not repeat is an error. Before the first product on a
// GPU: cuBLAS reads its part when it begins. Memory may be there already.
char* tradewind_arithmetic(int tf32, int deterministic, int autotune);

// libtorch's version, such as 2.11.0; it is never freed.
const char* tradewind_libtorch(void);

} // extern "C"
