//! One process per rank: libtorch, the group's collectives, the exchange with the shards.

pub mod c10d;
pub mod core;
pub mod data;
pub mod flat;
pub mod group;
pub mod model;
