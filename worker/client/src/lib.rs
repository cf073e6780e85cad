//! One rank's side of the wire: its bond with the coordinator, and the exchange with the shards.
//! It links no libtorch, so that whatever moves blocks can use it.

pub mod background;
pub mod core;
pub mod exchange;
pub mod membership;
pub mod network;
pub mod stopwatch;
