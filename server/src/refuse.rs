//! Which reason each refusal has, once. docs/protocol.md explains the reasons.

use tonic::{Code, Status};
use tradewind_proto::convert::Malformed;
use tradewind_proto::frame::FrameError;
use tradewind_proto::refusal::{Reason, status};

use crate::coordinator_task::CallError;
use crate::shard_task::Gone;
use tradewind_core::answer::Refused;
use tradewind_core::refusal::Refusal;

/// A refusal of a shard.
pub fn refusal(refusal: Refusal) -> Status {
    let reason = match &refusal {
        Refusal::Malformed { .. } => Reason::Malformed,
        Refusal::UnknownRun(_) => Reason::UnknownRun,
        Refusal::UnknownGroup { .. } => Reason::UnknownGroup,
        Refusal::UnknownRank { .. } => Reason::UnknownRank,
        Refusal::UnknownBlock(_) => Reason::UnknownBlock,
        Refusal::StaleIncarnation { .. } => Reason::StaleIncarnation,
        Refusal::NotLive(_) => Reason::NotLive,
        Refusal::NotCreator(_) => Reason::NotCreator,
        Refusal::NotReady => Reason::NotReady,
        Refusal::ClockPassed { .. } => Reason::ClockPassed,
        Refusal::ClockAhead { .. } => Reason::ClockAhead,
        Refusal::Superseded(_) => Reason::Superseded,
        Refusal::VersionAhead { .. } => Reason::VersionAhead,
        Refusal::WrongLength { .. } | Refusal::WrongBytes { .. } => Reason::WrongLength,
        Refusal::NotFinite { .. } => Reason::NotFinite,
        Refusal::NoSamples(_) => Reason::NoSamples,
        Refusal::NotPrimary(_) => Reason::NotPrimary,
        Refusal::NotCopy(_) => Reason::NotCopy,
        Refusal::StaleLog { .. } => Reason::StaleLog,
        Refusal::Gap { .. } => Reason::Gap,
        Refusal::Busy => Reason::Busy,
    };
    status(reason, refusal.to_string())
}

/// A refusal of the coordinator.
pub fn refused(refused: Refused) -> Status {
    let reason = match refused {
        Refused::Refusal(inner) => return refusal(inner),
        Refused::Spec(_) | Refused::Replication { .. } => Reason::BadSpecification,
        Refused::Differs { .. } | Refused::ResumeDiffers { .. } => Reason::SpecificationDiffers,
        Refused::Lease(_) => Reason::LeaseRefused,
        Refused::Drained(_) => Reason::Drained,
        Refused::WithoutTls => Reason::WithoutTls,
        Refused::TooManyRevoked => Reason::TooManyRevoked,
        Refused::HostsCoordinator(_) => Reason::HostsCoordinator,
        Refused::RevokedServer(_) => Reason::RevokedCertificate,
        Refused::StillTrains(_) => Reason::StillTrains,
        Refused::FixedGroups => Reason::FixedGroups,
        Refused::Replaced { .. } => Reason::Replaced,
        Refused::NotRegistered(_) => Reason::NotRegistered,
        Refused::RunExists(_) => Reason::RunExists,
        Refused::NoFolder => Reason::NoFolder,
        Refused::Snapshot(_) => Reason::SnapshotFailed,
        Refused::TooManyWaiting(_) => Reason::TooManyWaiting,
        Refused::ServersMissing { .. } => Reason::ServersMissing,
        Refused::TooManyRuns => Reason::TooManyRuns,
        Refused::Failed(_) => Reason::RunFailed,
        Refused::Stopped(_) => Reason::Lost,
        Refused::UnknownServer { .. } => Reason::UnknownServer,
        Refused::StaleServer { .. } => Reason::StaleIncarnation,
        Refused::GenerationAhead { .. } => Reason::GenerationAhead,
    };
    status(reason, refused.to_string())
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
    status(Reason::Malformed, error.to_string())
}

/// A stream whose next message could not be read. What the client sent is told apart from a
/// connection that broke.
pub fn unreadable(error: Status) -> Status {
    let message = error.message().to_owned();
    match error.code() {
        Code::OutOfRange => status(Reason::FrameTooLarge, message),
        Code::Internal => status(Reason::Unreadable, message),
        _ => error,
    }
}

/// Bytes of an exchange that are no message.
pub fn no_frame(error: FrameError) -> Status {
    let reason = match error {
        FrameError::TooLarge { .. } => Reason::FrameTooLarge,
        FrameError::Unreadable(_) => Reason::Unreadable,
    };
    status(reason, error.to_string())
}

/// A shard whose task has ended.
pub fn gone(gone: Gone) -> Status {
    Status::unavailable(gone.to_string())
}
