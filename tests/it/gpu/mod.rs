//! The path to GPUs, over ones that are played in main memory (tests/fake/gpu): which calls come in which
//! order, from which thread, about which device, and what becomes of errors.

/// Tensors and copies.
mod memory;
/// Scenarios in processes of their own.
mod played;
