// The bridge from Rust to libtorch's c10d: a store, a group of ranks, and DDP's Reducer.
//
// Conventions. A function that can fail returns NULL, or a message that the caller gives back to
// `tradewind_message_free`; no exception crosses. `tensor` arguments are tch's raw pointers, that
// is `at::Tensor*`. Lengths count elements. Timeouts are in milliseconds. Objects are used by one
// thread at a time.
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

typedef struct tradewind_store tradewind_store;
typedef struct tradewind_group tradewind_group;
typedef struct tradewind_reducer tradewind_reducer;

void tradewind_message_free(char* message);

// Ends the process at once: no destructor runs, in no thread.
void tradewind_exit(int status);

// A store served by this process on `listener`, a bound TCP socket on `port`, which the store
// owns from here on; it is reached as `host`.
char* tradewind_store_serve(
    const char* host, uint16_t port, int listener, int64_t timeout_ms, tradewind_store** out);
// The store that another process serves.
char* tradewind_store_connect(
    const char* host, uint16_t port, int64_t timeout_ms, tradewind_store** out);
void tradewind_store_free(tradewind_store* store);

// Joins the group of `size` ranks that meet in `store` under `prefix`; returns when all are
// connected, or `timeout_ms` has passed. Collectives have no timeout. `host` names this rank's own
// network address.
char* tradewind_group_new(
    const tradewind_store* store, const char* prefix, int rank, int size, const char* host,
    int64_t timeout_ms, tradewind_group** out);
void tradewind_group_free(tradewind_group* group);

// Breaks a group from any thread: the collectives that are under way fail, here at once and at the
// peers, which lose their connections. Does nothing to a group that has been freed.
typedef struct tradewind_breaker tradewind_breaker;
char* tradewind_breaker_new(const tradewind_group* group, tradewind_breaker** out);
void tradewind_breaker_break(const tradewind_breaker* breaker);
void tradewind_breaker_free(tradewind_breaker* breaker);

// Types of the elements of a collective.
enum { TRADEWIND_F32 = 0, TRADEWIND_F64 = 1, TRADEWIND_I64 = 2 };

// Sums over the ranks, in place.
char* tradewind_all_reduce(tradewind_group* group, void* values, size_t length, int type);
char* tradewind_all_reduce_tensor(tradewind_group* group, void* tensor);
// The values of rank `root`, to all.
char* tradewind_broadcast(
    tradewind_group* group, void* values, size_t length, int type, int root);
// `own`, of `length`, from every rank, one after the other into `all`, of `length` × size.
char* tradewind_all_gather(
    tradewind_group* group, float* all, const float* own, size_t length);

// A Reducer over `tensors`, in the order in which their gradients become ready. Bucket i holds
// the next `bucket_sizes[i]` of them; the sizes add up to the number of tensors.
char* tradewind_reducer_new(
    const tradewind_group* group, void* const* tensors, const size_t* bucket_sizes,
    size_t buckets, tradewind_reducer** out);
// To be called before each backward: forgets the gradients of the step before.
char* tradewind_reducer_prepare(tradewind_reducer* reducer);
// To be called after each backward: -1 in `exposed_ns` if some tensor received no gradient, else
// the nanoseconds that backward, its computation done, waited for reductions.
char* tradewind_reducer_finish(tradewind_reducer* reducer, int64_t* exposed_ns);
// The gradients of a bucket, one after the other in the order of its tensors, as a new handle of a
// contiguous f32 tensor, which the caller owns. The Reducer never replaces that tensor.
char* tradewind_reducer_bucket(const tradewind_reducer* reducer, size_t bucket, void** tensor);
void tradewind_reducer_free(tradewind_reducer* reducer);

// Told of a bucket in a backward as soon as its gradients are final, from whichever thread made
// them so, while backward may still compute others. `gradient`, a contiguous f32 tensor of one
// dimension, is the callee's until it returns.
typedef void (*tradewind_told)(void* context, size_t bucket, void* gradient);
// Called when nobody will be told again. It may be called before the function that takes it fails.
typedef void (*tradewind_release)(void* context);

// Tells of each bucket in every backward from the next one on; backward returns when all were told.
// At most once for a Reducer, before its first backward.
char* tradewind_reducer_watch(
    tradewind_reducer* reducer, tradewind_told told, tradewind_release release, void* context);

// The same without a Reducer, for the buckets of `tensors` whose .grad lie one after the other.
typedef struct tradewind_watch tradewind_watch;
char* tradewind_watch_new(
    void* const* tensors, const size_t* bucket_sizes, size_t buckets, tradewind_told told,
    tradewind_release release, void* context, tradewind_watch** out);
// To be called before each backward.
char* tradewind_watch_prepare(tradewind_watch* watch);
// To be called after each backward: tells of the buckets that did not receive every gradient.
char* tradewind_watch_finish(tradewind_watch* watch);
void tradewind_watch_free(tradewind_watch* watch);

// Makes `gradient` the .grad of `tensor`.
char* tradewind_set_grad(void* tensor, void* gradient);

} // extern "C"
