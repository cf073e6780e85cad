//! gRPC: decode, send, encode. Nothing is decided here.

pub mod coordinator;
mod exchange;
mod incoming;
pub mod refuse;
pub mod shard;
