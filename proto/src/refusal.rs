//! How a refusal travels: a gRPC status for people, a word in its metadata for programs.

use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

/// The metadata entry that names the reason.
pub const REFUSAL: &str = "tradewind-refusal";

/// A status with its reason, one of the words in docs/protocol.md.
pub fn status(code: Code, reason: &'static str, message: String) -> Status {
    let mut metadata = MetadataMap::new();
    metadata.insert(REFUSAL, reason.parse().expect("a reason is visible ASCII"));
    Status::with_metadata(code, message, metadata)
}

/// The reason of a status that Tradewind made; `None` for one of the transport.
pub fn reason(status: &Status) -> Option<&str> {
    status.metadata().get(REFUSAL)?.to_str().ok()
}

/// Whether the same call may succeed later: the connection broke, or the server is not ready. What
/// Tradewind refused with a reason stays refused, but for `UNAVAILABLE`.
pub fn retryable(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable => true,
        Code::Unknown | Code::Cancelled | Code::Internal => reason(status).is_none(),
        _ => false,
    }
}
