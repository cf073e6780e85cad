//! Sizes that both ends of a connection must agree on, once. docs/protocol.md lists them.

use tradewind_common::spec::BLOCK_BYTES_MAX;

/// Largest frame of an exchange: a block and its header.
pub const FRAME_BYTES_MAX: usize = BLOCK_BYTES_MAX + 4096;

/// Largest message of the coordinator service: the tensors of a model are in it.
pub const COORDINATOR_MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Flow-control window of a connection and of each of its streams.
pub const WINDOW_BYTES: u32 = 8 << 20;
