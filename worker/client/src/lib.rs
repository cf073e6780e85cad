//! One rank's side of the wire: its bond with the coordinator, and the exchange with the shards.
//! It links no libtorch, so that whatever moves blocks can use it.

mod arriving;
mod away;
pub mod background;
pub mod core;
pub mod destination;
pub mod directory;
pub mod exchange;
pub mod exchange_error;
pub mod lease;
mod link;
pub mod membership;
pub mod network;
pub mod parts;
pub mod pulse;
pub mod pushed;
pub mod ranges;
mod sender;
pub mod stopwatch;
mod stream;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod whereabouts;
