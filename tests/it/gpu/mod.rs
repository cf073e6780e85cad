//! The path to GPUs, over ones that are played in main memory (tests/fake/gpu): which calls come in which
//! order, from which thread, about which device, and what becomes of errors.

/// libtorch's CUDA half and the worker's NCCL half, beside what they need.
mod bound;
/// Groups over NCCL that break, and that end.
mod breaking;
/// Which GPUs have a context.
mod contexts;
/// How groups over NCCL are formed, and wait.
mod group;
/// Tensors and copies.
mod memory;
/// Scenarios in processes of their own.
mod played;
/// Ranks that train.
mod training;
