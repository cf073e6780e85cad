//! Sizes that both ends of a connection must agree on, once. docs/protocol.md lists them.

use tradewind_common::spec::BLOCK_BYTES_MAX;

/// Largest head of a frame of an exchange: names, numbers, and norms of the two tensors that a block may cut.
pub const FRAME_HEAD_BYTES_MAX: usize = 4096;

/// Largest frame of an exchange: a block and its header.
pub const FRAME_BYTES_MAX: usize = BLOCK_BYTES_MAX + FRAME_HEAD_BYTES_MAX;

/// Largest record of a log: a block with what its optimizer keeps of it, and of every group.
pub const RECORD_BYTES_MAX: usize = 4 * BLOCK_BYTES_MAX;

/// Largest message of the coordinator service: the tensors of a model are in it.
pub const COORDINATOR_MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Frames of a stream that a server takes before it has answered the first of them.
pub const FRAMES_IN_FLIGHT_MAX: usize = 256;

/// Bytes of blocks that a server takes on a stream before it has answered the first of them; one
/// block above that is taken when nothing else is in flight.
pub const BYTES_IN_FLIGHT_MAX: usize = 48 << 20;

/// Largest HTTP/2 frame.
pub const HTTP2_FRAME_BYTES: u32 = tradewind_common::cost::HTTP2_FRAME_BYTES as u32;

/// Flow-control window of a connection and of each of its streams. What is under way should still
/// be in the cache when it is read: 8 MiB take a fifth more processor time than this.
pub const WINDOW_BYTES: u32 = 2 << 20;

/// Largest clock, and largest count of updates, samples or records, that anybody may speak of. At a thousand exchanges
/// a second it is reached after 8,900 years; what is added to it, and sums over 32,768 of them, do not
/// wrap.
pub const COUNT_MAX: u64 = 1 << 48;
