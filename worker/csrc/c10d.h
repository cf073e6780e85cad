// The bridge from Rust to libtorch's c10d: a store, a group of ranks, and DDP's Reducer.
//
// Conventions. A function that can fail returns NULL, or a message that the caller gives back to
// `tradewind_message_free`; no exception crosses. `tensor` arguments are tch's raw pointers, that
// is `at::Tensor*`. Lengths count elements. Timeouts are in milliseconds. Objects are used by one
// thread at a time, but breakers.
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

typedef struct tradewind_store tradewind_store;
typedef struct tradewind_group tradewind_group;
typedef struct tradewind_reducer tradewind_reducer;

void tradewind_message_free(char* message);

// A store served by this process on `listener`, a bound TCP socket on `port`, which the store
// owns from here on; it is reached as `host`.
char* tradewind_store_serve(
    const char* host, uint16_t port, int listener, int64_t timeout_ms, tradewind_store** out);
// The store that another process serves.
char* tradewind_store_connect(
    const char* host, uint16_t port, int64_t timeout_ms, tradewind_store** out);
void tradewind_store_free(tradewind_store* store);

// Makes the seal of a value under its name: TRADEWIND_SEAL_BYTES of them, from a key of as many.
#define TRADEWIND_SEAL_BYTES 32
typedef void (*tradewind_sealer)(
    const uint8_t* key, const uint8_t* name, size_t name_bytes, const uint8_t* value,
    size_t value_bytes, uint8_t* seal);
// The same store, in which every value carries its seal. A value that does not is an error when it
// is read. Counters, and which keys there are, are nobody's word.
char* tradewind_store_sealed(
    const tradewind_store* store, tradewind_sealer sealer, const uint8_t* key,
    tradewind_store** out);
// What ranks do with it: a value under a key, and the value that is there once there is one, which
// has at most `capacity` bytes; `length` says how many.
char* tradewind_store_set(
    tradewind_store* store, const char* key, const uint8_t* value, size_t length);
char* tradewind_store_get(
    tradewind_store* store, const char* key, uint8_t* value, size_t capacity, size_t* length);

// Joins the group of `size` ranks that meet in `store` under `prefix`; returns when all are
// connected, or `timeout_ms` has passed. Collectives have no timeout. `host` names this rank's own
// network address.
char* tradewind_group_new(
    const tradewind_store* store, const char* prefix, int rank, int size, const char* host,
    int64_t timeout_ms, tradewind_group** out);
// Waits for what a GPU has still to do for a group that is whole, and breaks it.
void tradewind_group_close(tradewind_group* group);
// Closes it first.
void tradewind_group_free(tradewind_group* group);

// The NCCL half of the bridge, a shared library that `make nccl` builds; libtorch_cuda is loaded
// before, for all to see. Never freed.
typedef struct tradewind_half tradewind_half;
char* tradewind_half_open(const char* file, const tradewind_half** out);
// Of NCCL, as it counts: 22809 is 2.28.9.
int tradewind_half_version(const tradewind_half* half);
// The PCI address of a GPU.
char* tradewind_half_address(const tradewind_half* half, int device, char* text, int length);
// Adds NCCL to a group, for tensors on this rank's GPU `device`; returns when a first collective
// has come to its end, the group has been broken, or `patience_ms` have passed. If it fails, the group
// is of no use. All ranks call it.
char* tradewind_group_add_nccl(
    tradewind_group* group, const tradewind_half* half, int device, int64_t patience_ms);
// A message if the group is broken, as far as is known here. A collective on a GPU returns when it
// has begun, and ends like any other when it is broken off: ask this after having waited for it,
// before its result is used.
char* tradewind_group_check(const tradewind_group* group);

// Breaks a group from any thread: the collectives that are under way fail, or on a GPU end, here at
// once and at the peers, which lose their connections. Does nothing to a group that has been freed.
typedef struct tradewind_breaker tradewind_breaker;
char* tradewind_breaker_new(const tradewind_group* group, tradewind_breaker** out);
void tradewind_breaker_break(const tradewind_breaker* breaker);
// As tradewind_group_check, from any thread; a message also if the group has been freed.
char* tradewind_breaker_check(const tradewind_breaker* breaker);
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
char* tradewind_all_gather_tensor(tradewind_group* group, void* all, void* own);

// A Reducer over `tensors`, in the order in which their gradients become ready. Bucket i holds
// the next `bucket_sizes[i]` of them; the sizes add up to the number of tensors.
char* tradewind_reducer_new(
    const tradewind_group* group, void* const* tensors, const size_t* bucket_sizes,
    size_t buckets, tradewind_reducer** out);
// To be called before each backward: forgets the gradients of the step before.
char* tradewind_reducer_prepare(tradewind_reducer* reducer);
// To be called after each backward, on a GPU once that is done: -1 in `exposed_ns` if some tensor
// received no gradient, else the nanoseconds that backward, its computation done, waited for
// reductions.
char* tradewind_reducer_finish(tradewind_reducer* reducer, int64_t* exposed_ns);

/* From the launch of the first reduction of the last backward to the end of the last one; -1 if it is
 * not known. Waits for that end. */
char* tradewind_reducer_reduced(const tradewind_reducer* reducer, int64_t* took_ns);
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
