//! What becomes of a rank whose training has ended in an error: it enters its group again, or its
//! process ends, and is restarted or not.

use tonic::Status;
use tradewind_common::exit::Exit;
use tradewind_proto::refusal::{self, Reason};

use crate::coordinator::MembershipError;
use crate::exchange_error::ExchangeError;
use crate::feed::FeedError;
use crate::membership::{LeaseLost, NoneFinite};
use crate::ranks::Broken;

/// What follows an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This incarnation of the group is over, and nothing else: the rank enters again.
    Again,
    /// The process ends; another one may fare better.
    Failed,
    /// The process ends, and so would every other one.
    GivenUp,
    /// The same, because of what the training came to: that is a result.
    Diverged,
    /// The same, because the run has stopped at a loss.
    Lost,
    /// The same, because a person has shut its group out. The run goes on.
    ShutOut,
}

/// An error that another process would meet, too.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
pub struct GivenUp(pub anyhow::Error);

/// What training came to is not finite.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0}: training has diverged; lower optimizer.learning_rate or lengthen schedule.warmup_samples"
)]
pub struct Diverged(pub String);

impl Verdict {
    /// With what the process ends.
    pub fn exit(self) -> Exit {
        match self {
            Self::Again | Self::Failed => Exit::Failed,
            Self::GivenUp => Exit::GivenUp,
            Self::Diverged => Exit::Diverged,
            Self::Lost => Exit::Lost,
            Self::ShutOut => Exit::Left,
        }
    }

    /// What follows an error of a rank's side of the wire, which may have context. Of any other nothing is
    /// known but that it is a failure.
    pub fn of(error: &anyhow::Error) -> Self {
        let given_up = error.is::<GivenUp>().then_some(Self::GivenUp);
        let diverged = error.is::<Diverged>() || error.is::<NoneFinite>();
        let diverged = diverged.then_some(Self::Diverged);
        let over = error.is::<Broken>() || error.is::<LeaseLost>();
        let over = over.then_some(Self::Again);
        let feed = || error.downcast_ref().map(Self::of_feed);
        let exchange = || error.downcast_ref().map(Self::of_exchange);
        let membership = || error.downcast_ref().map(Self::of_membership);
        let known = given_up.or(diverged).or(over);
        let known = known.or_else(feed).or_else(exchange).or_else(membership);
        known.unwrap_or(Self::Failed)
    }

    /// What follows if there is no next batch.
    pub fn of_feed(error: &FeedError) -> Self {
        match error {
            FeedError::Group(_) => Self::Again,
            FeedError::Lease(error) => Self::of_membership(error),
            FeedError::TooFew { .. } => Self::GivenUp,
        }
    }

    /// What follows an exchange that has failed.
    pub fn of_exchange(error: &ExchangeError) -> Self {
        match error {
            ExchangeError::Refused { status, .. } => of_refusal(status),
            ExchangeError::Unreachable { .. } | ExchangeError::Answer { .. } => Self::Failed,
        }
    }

    /// What follows if the coordinator did not do what was asked.
    pub fn of_membership(error: &MembershipError) -> Self {
        match error {
            MembershipError::Refused { status, .. } => of_refusal(status),
            MembershipError::Unreachable { .. } => Self::Failed,
        }
    }
}

fn of_refusal(status: &Status) -> Verdict {
    /// Somebody else speaks for the group now, or nobody;
    /// or it holds data that a former coordinator leased and forgot.
    const OVER: [Reason; 3] = [
        Reason::NotLive,
        Reason::StaleIncarnation,
        Reason::LeaseRefused,
    ];
    /// What is configured does not change.
    const LASTING: [Reason; 16] = [
        Reason::BadToken,
        Reason::NoCertificate,
        Reason::SelfSigned,
        Reason::OtherAuthority,
        Reason::ExpiredCertificate,
        Reason::BadCertificate,
        Reason::WrongRole,
        Reason::WrongRun,
        Reason::WrongGroup,
        Reason::WrongRank,
        Reason::Malformed,
        Reason::BadSpecification,
        Reason::SpecificationDiffers,
        Reason::UnknownGroup,
        Reason::UnknownRank,
        Reason::RunFailed,
    ];
    let word = refusal::reason(status);
    let among = |reasons: &[Reason]| reasons.iter().any(|reason| word == Some(reason.word()));
    if among(&[Reason::Lost]) {
        Verdict::Lost
    } else if among(&[Reason::RevokedCertificate]) {
        Verdict::ShutOut
    } else if among(&OVER) {
        Verdict::Again
    } else if among(&LASTING) {
        Verdict::GivenUp
    } else {
        Verdict::Failed
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;
    use tradewind_common::ShardId;

    use super::*;

    fn refused(status: Status) -> ExchangeError {
        ExchangeError::Refused {
            shard: ShardId(0),
            place: "server 0".into(),
            status,
        }
    }

    #[test]
    fn only_what_ends_an_incarnation_leads_to_another() {
        let check = |error: anyhow::Error, want| assert_eq!(Verdict::of(&error), want, "{error:#}");
        let broken = || Broken {
            message: "connection reset".into(),
        };
        check(broken().into(), Verdict::Again);
        check(FeedError::Group(broken()).into(), Verdict::Again);
        let fenced = || refused(refusal::status(Reason::NotLive, "fenced".into()));
        check(fenced().into(), Verdict::Again);
        let entering = Err::<(), _>(fenced()).context("pulling").unwrap_err();
        check(entering, Verdict::Again);
        let stale = refusal::status(Reason::StaleIncarnation, "an older one".into());
        let lease = MembershipError::Refused {
            what: "lease data",
            status: stale,
        };
        check(FeedError::Lease(lease).into(), Verdict::Again);
        check(LeaseLost.into(), Verdict::Again);
        check(NoneFinite { clock: 7 }.into(), Verdict::Diverged);
        check(Diverged("RMSE is NaN".into()).into(), Verdict::Diverged);
        let failed = refused(refusal::status(Reason::RunFailed, "no snapshot".into()));
        check(failed.into(), Verdict::GivenUp);
        let lost = || refusal::status(Reason::Lost, "312 updates of blocks".into());
        check(refused(lost()).into(), Verdict::Lost);
        let joining = MembershipError::Refused {
            what: "join",
            status: lost(),
        };
        check(joining.into(), Verdict::Lost);
        let revoked = refusal::status(Reason::RevokedCertificate, "shut out".into());
        check(refused(revoked).into(), Verdict::ShutOut);
        check(
            GivenUp(anyhow::anyhow!("no such file")).into(),
            Verdict::GivenUp,
        );
        check(refused(Status::unavailable("gone")).into(), Verdict::Failed);
        check(anyhow::anyhow!("something else"), Verdict::Failed);
    }
}
