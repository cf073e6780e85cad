//! gRPC: decode, send, encode. Nothing is decided here.

pub mod coordinator;
mod exchange;
pub mod host;
mod incoming;
mod keep_lease;
pub mod order;
mod replicate;
pub(crate) mod revoked;
mod serve;
pub mod shard;
