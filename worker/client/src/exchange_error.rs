//! Why an exchange ends without all its blocks.

use tonic::Status;
use tradewind_common::{BlockId, ShardId};
use tradewind_proto::convert::Malformed;

/// Why an exchange ended without all its blocks.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// Nobody has answered for a shard for as long as `liveness.retry_ms` allows.
    #[error("shard {shard} ({place}) cannot be reached: {}", status.message())]
    Unreachable {
        /// Which.
        shard: ShardId,
        /// Which server was tried last, and its address.
        place: String,
        /// The last failure.
        status: Status,
    },
    /// A server refused a block.
    #[error("{place} refused for shard {shard}: {}", status.message())]
    Refused {
        /// Of which shard.
        shard: ShardId,
        /// Which server, and its address.
        place: String,
        /// What it said.
        status: Status,
    },
    /// A server answered with something that cannot be.
    #[error("{place} answered block {block} with {problem}")]
    Answer {
        /// Which server, and its address.
        place: String,
        /// For which block.
        block: BlockId,
        /// What is wrong.
        problem: Malformed,
    },
}
