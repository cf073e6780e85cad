//! gRPC: decode, send, encode. Nothing is decided here.

pub mod coordinator;
pub mod exchange;
pub mod refuse;
