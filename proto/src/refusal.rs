//! How a refusal travels: a gRPC status for people, a word in its metadata for programs.

use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

/// The metadata entry that names the reason.
pub const REFUSAL: &str = "tradewind-refusal";

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident => $word:literal, $code:ident;)*) => {
        /// Why a call is refused; docs/protocol.md lists them all.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The word that programs match on.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }

            /// The gRPC status.
            pub fn code(self) -> Code {
                match self {
                    $(Self::$name => Code::$code,)*
                }
            }
        }
    };
}

reasons! {
    /// The call shows no token, or another one.
    BadToken => "bad-token", Unauthenticated;
    /// The caller shows no certificate, under TLS.
    NoCertificate => "no-certificate", Unauthenticated;
    /// A certificate that its owner has signed.
    SelfSigned => "self-signed", Unauthenticated;
    /// A certificate of another run's or fleet's authority.
    OtherAuthority => "other-authority", Unauthenticated;
    /// A certificate that is not valid any more, or not yet.
    ExpiredCertificate => "expired-certificate", Unauthenticated;
    /// A certificate that names nobody.
    BadCertificate => "bad-certificate", Unauthenticated;
    /// A certificate that was good and was taken back.
    RevokedCertificate => "revoked-certificate", Unauthenticated;
    /// The secret that a task of Slurm's shows to be issued a certificate is not its own.
    UnknownSecret => "unknown-secret", Unauthenticated;
    /// Such a secret that was used for another key.
    UsedSecret => "used-secret", Unauthenticated;
    /// Such a secret that was not used in time.
    ExpiredSecret => "expired-secret", Unauthenticated;
    /// The call is for others than the certificate names: for servers, ranks or people.
    WrongRole => "wrong-role", PermissionDenied;
    /// The certificate is a rank's of another run.
    WrongRun => "wrong-run", PermissionDenied;
    /// The certificate is a rank's of another group than it speaks for.
    WrongGroup => "wrong-group", PermissionDenied;
    /// The certificate is another rank's of the group than it speaks as, or names none.
    WrongRank => "wrong-rank", PermissionDenied;
    /// A field is missing or says what it cannot.
    Malformed => "malformed", InvalidArgument;
    /// Bytes of a stream that are no message.
    Unreadable => "unreadable", InvalidArgument;
    /// A frame above the limit.
    FrameTooLarge => "frame-too-large", ResourceExhausted;
    /// A wrong number of values.
    WrongLength => "wrong-length", InvalidArgument;
    /// NaN or infinity.
    NotFinite => "not-finite", InvalidArgument;
    /// A gradient of nothing.
    NoSamples => "no-samples", InvalidArgument;
    /// A specification that no run can follow.
    BadSpecification => "bad-specification", InvalidArgument;
    /// No such run.
    UnknownRun => "unknown-run", NotFound;
    /// No such group.
    UnknownGroup => "unknown-group", NotFound;
    /// No such rank.
    UnknownRank => "unknown-rank", NotFound;
    /// No such block on this server.
    UnknownBlock => "unknown-block", NotFound;
    /// No such server in the fleet.
    UnknownServer => "unknown-server", NotFound;
    /// Another life speaks for the group or the server.
    StaleIncarnation => "stale-incarnation", PermissionDenied;
    /// The group may not push.
    NotLive => "not-live", PermissionDenied;
    /// The group may not create.
    NotCreator => "not-creator", AlreadyExists;
    /// The group was asked to leave, and does not come back.
    Drained => "drained", FailedPrecondition;
    /// There are no certificates that could be revoked.
    WithoutTls => "without-tls", FailedPrecondition;
    /// As many are revoked as can be.
    TooManyRevoked => "too-many-revoked", ResourceExhausted;
    /// The server that decides who is revoked would be.
    HostsCoordinator => "hosts-coordinator", FailedPrecondition;
    /// The run is not over.
    StillTrains => "still-trains", FailedPrecondition;
    /// Groups cannot be added to a synchronous run.
    FixedGroups => "fixed-groups", FailedPrecondition;
    /// The rank has called again, or another process in its place.
    Replaced => "replaced", Aborted;
    /// The fleet holds a run of this name.
    RunExists => "run-exists", AlreadyExists;
    /// The fleet has no folder.
    NoFolder => "no-folder", FailedPrecondition;
    /// There is no whole snapshot of a run that it could go on from.
    NoSnapshot => "no-snapshot", FailedPrecondition;
    /// A snapshot was given up.
    SnapshotFailed => "snapshot-failed", Aborted;
    /// Too many callers wait already.
    TooManyWaiting => "too-many-waiting", ResourceExhausted;
    /// A server speaks whose lease has run out.
    NotRegistered => "not-registered", Unavailable;
    /// The run has no values yet.
    NotReady => "not-ready", FailedPrecondition;
    /// Another configuration than the run's.
    SpecificationDiffers => "specification-differs", FailedPrecondition;
    /// Data that cannot be leased.
    LeaseRefused => "lease-refused", FailedPrecondition;
    /// A clock whose verdict is no longer kept.
    ClockPassed => "clock-passed", OutOfRange;
    /// A clock before its turn.
    ClockAhead => "clock-ahead", OutOfRange;
    /// The same frame has come on too many streams.
    Superseded => "superseded", Aborted;
    /// A version that the block has not reached.
    VersionAhead => "version-ahead", OutOfRange;
    /// A generation that has not been given out.
    GenerationAhead => "generation-ahead", OutOfRange;
    /// Another server answers for the shard, or will.
    NotPrimary => "not-primary", Unavailable;
    /// The server has not been told to keep a copy, or not any more.
    NotCopy => "not-copy", Unavailable;
    /// A record of a former primary, or for a former life of a copy.
    StaleLog => "stale-log", PermissionDenied;
    /// A record after one that did not come.
    Gap => "gap", OutOfRange;
    /// Too many answers wait for a copy, or too many contributions at a block.
    Busy => "busy", Unavailable;
    /// Not all servers are there yet.
    ServersMissing => "servers-missing", Unavailable;
    /// The fleet is full.
    TooManyRuns => "too-many-runs", ResourceExhausted;
    /// Updates that were acknowledged are lost, and the run's `faults.on_loss` says stop.
    Lost => "lost", Aborted;
    /// The run cannot go on.
    RunFailed => "run-failed", Aborted;
}

/// A status that names its reason.
pub fn status(reason: Reason, message: String) -> Status {
    let mut metadata = MetadataMap::new();
    metadata.insert(REFUSAL, MetadataValue::from_static(reason.word()));
    Status::with_metadata(reason.code(), message, metadata)
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
