//! The rules of Tradewind as values.
//!
//! Nothing here reads a clock, draws randomness, opens a file or a socket, or knows that threads
//! exist. Time is handed in as `now_ms`, milliseconds since an origin that the caller chose.

pub mod batch;
pub mod choice;
pub mod clock;
pub mod compress;
mod consistency;
pub mod cost;
pub mod data;
pub mod environment;
pub mod exclusions;
pub mod exit;
pub mod faults;
pub mod finite;
pub mod holders;
pub mod identity;
pub mod ids;
pub mod layout;
pub mod lease;
pub mod loss;
pub mod milestone;
pub mod mix;
pub mod optimizer;
pub mod pieces;
pub mod placement;
pub mod policy;
pub mod range;
pub mod record;
pub mod run_files;
pub mod schedule;
pub mod shares;
pub mod spec;
pub mod staleness;
pub mod straggler;

pub use clock::Clock;
pub use compress::Compression;
pub use ids::{BlockId, Generation, GroupId, Incarnation, Rank, RunId, ServerId, ShardId};
pub use layout::{Layout, TensorKind, TensorSpec};
