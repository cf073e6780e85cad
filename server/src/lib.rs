//! Sharded parameter server and coordinator: pure Rust, no libtorch.

pub mod core;
