//! One process per rank: libtorch, the group's collectives, the exchange with the shards.

pub mod buffers;
pub mod c10d;
pub mod core;
pub mod data;
pub mod enter;
pub mod evaluate;
pub mod exchange;
pub mod feed;
pub mod flat;
pub mod group;
pub mod membership;
pub mod model;
pub mod network;
pub mod telemetry;
pub mod train;
