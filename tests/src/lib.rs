//! The harness: real local clusters. The simulated world is a package of its own, without libtorch.

pub mod cluster;
