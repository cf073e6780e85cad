//! Which gRPC status each refusal becomes, once. docs/protocol.md lists the words.

use tonic::{Code, Status};
use tradewind_proto::convert::Malformed;
use tradewind_proto::refusal::status;

use crate::coordinator_task::CallError;
use crate::core::coordinator::Refused;
use crate::core::refusal::Refusal;
use crate::shard_task::Gone;

/// A refusal of a shard.
pub fn refusal(refusal: Refusal) -> Status {
    let (code, word) = match &refusal {
        Refusal::UnknownRun(_) => (Code::NotFound, "unknown-run"),
        Refusal::UnknownGroup { .. } => (Code::NotFound, "unknown-group"),
        Refusal::UnknownRank { .. } => (Code::NotFound, "unknown-rank"),
        Refusal::UnknownBlock(_) => (Code::NotFound, "unknown-block"),
        Refusal::StaleIncarnation { .. } => (Code::PermissionDenied, "stale-incarnation"),
        Refusal::NotLive(_) => (Code::PermissionDenied, "not-live"),
        Refusal::NotCreator(_) => (Code::AlreadyExists, "not-creator"),
        Refusal::NotReady => (Code::FailedPrecondition, "not-ready"),
        Refusal::ClockPassed { .. } => (Code::OutOfRange, "clock-passed"),
        Refusal::ClockAhead { .. } => (Code::OutOfRange, "clock-ahead"),
        Refusal::VersionAhead { .. } => (Code::OutOfRange, "version-ahead"),
        Refusal::WrongLength { .. } => (Code::InvalidArgument, "wrong-length"),
        Refusal::NotFinite { .. } => (Code::InvalidArgument, "not-finite"),
        Refusal::NoSamples(_) => (Code::InvalidArgument, "no-samples"),
    };
    status(code, word, refusal.to_string())
}

/// A refusal of the coordinator.
pub fn refused(refused: Refused) -> Status {
    let (code, word) = match refused {
        Refused::Refusal(inner) => return refusal(inner),
        Refused::Spec(_) => (Code::InvalidArgument, "bad-specification"),
        Refused::Differs { .. } => (Code::FailedPrecondition, "specification-differs"),
        Refused::Lease(_) => (Code::FailedPrecondition, "lease-refused"),
        Refused::GroupRunning(_) => (Code::AlreadyExists, "group-running"),
        Refused::ServersMissing { .. } => (Code::Unavailable, "servers-missing"),
        Refused::TooManyRuns => (Code::ResourceExhausted, "too-many-runs"),
        Refused::Failed(_) => (Code::Aborted, "run-failed"),
        Refused::UnknownServer { .. } => (Code::NotFound, "unknown-server"),
    };
    status(code, word, refused.to_string())
}

/// A call to the coordinator that has no answer.
pub fn call(error: CallError) -> Status {
    match error {
        CallError::Refused(inner) => refused(inner),
        CallError::Gone => Status::unavailable(error.to_string()),
    }
}

/// A message that does not say what it must.
pub fn malformed(error: Malformed) -> Status {
    status(Code::InvalidArgument, "malformed", error.to_string())
}

/// A shard whose task has ended.
pub fn gone(gone: Gone) -> Status {
    Status::unavailable(gone.to_string())
}
