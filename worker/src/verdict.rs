//! What becomes of a rank whose training has ended in an error: it enters its group again, or its
//! process ends, and is restarted or not.

use tonic::Status;
use tradewind_client::exchange_error::ExchangeError;
use tradewind_client::membership::MembershipError;
use tradewind_common::exit::Exit;
use tradewind_proto::refusal::{self, Reason};

use crate::data::DataError;
use crate::feed::FeedError;
use crate::group::GroupError;
use crate::host::HostError;
use crate::model::TaskError;
use crate::train_error::TrainError;

/// What follows an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This life of the group is over, and nothing else: the rank enters again.
    Again,
    /// The process ends; another one may fare better.
    Failed,
    /// The process ends, and so would every other one.
    GivenUp,
    /// The same, because of what the training came to: that is a result.
    Diverged,
    /// The same, because the run has stopped at a loss.
    Lost,
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

/// Why a rank has no task. The run's check has built it before: a file that cannot be read now may be
/// back for the next process.
pub fn without_task(error: TaskError) -> anyhow::Error {
    match &error {
        TaskError::Data(data) if of_data(data) == Verdict::Failed => error.into(),
        TaskError::Data(_) | TaskError::Setting { .. } | TaskError::Other(_) => {
            GivenUp(error.into()).into()
        }
    }
}

impl Verdict {
    /// With what the process ends.
    pub fn exit(self) -> Exit {
        match self {
            Self::Again | Self::Failed => Exit::Failed,
            Self::GivenUp => Exit::GivenUp,
            Self::Diverged => Exit::Diverged,
            Self::Lost => Exit::Lost,
        }
    }

    /// What follows an error, which may have context.
    pub fn of(error: &anyhow::Error) -> Self {
        let given_up = error.is::<GivenUp>().then_some(Self::GivenUp);
        let diverged = || error.is::<Diverged>().then_some(Self::Diverged);
        let train = || error.downcast_ref::<TrainError>().map(of_train);
        let group = || error.downcast_ref::<GroupError>().map(of_group);
        let feed = || error.downcast_ref::<FeedError>().map(of_feed);
        let exchange = || error.downcast_ref::<ExchangeError>().map(of_exchange);
        let membership = || error.downcast_ref::<MembershipError>().map(of_membership);
        let known = given_up
            .or_else(diverged)
            .or_else(train)
            .or_else(group)
            .or_else(feed);
        let known = known.or_else(exchange).or_else(membership);
        known.unwrap_or(Self::Failed)
    }
}

fn of_train(error: &TrainError) -> Verdict {
    match error {
        TrainError::Feed(error) => of_feed(error),
        TrainError::Group(error) => of_group(error),
        TrainError::Exchange(error) => of_exchange(error),
        TrainError::Data(error) => of_data(error),
        TrainError::Diverged { .. } => Verdict::Diverged,
        TrainError::Precision(_) => Verdict::GivenUp,
        TrainError::Host(error) => of_host(error),
        TrainError::LeaseLost => Verdict::Again,
    }
}

fn of_feed(error: &FeedError) -> Verdict {
    match error {
        FeedError::Group(error) => of_group(error),
        FeedError::Lease(error) => of_membership(error),
        FeedError::TooFew { .. } => Verdict::GivenUp,
        FeedError::Data(error) => of_data(error),
    }
}

fn of_data(error: &DataError) -> Verdict {
    match error {
        // The disk, or the device, may be back for the next process, and who writes may have ended.
        DataError::Missing { .. }
        | DataError::Unreadable { .. }
        | DataError::Locked { .. }
        | DataError::Damaged { .. }
        | DataError::Device { .. }
        | DataError::Other(_)
        | DataError::PrefetchEnded => Verdict::Failed,
        // What the files hold does not change: whoever comes to the same place next ends as well.
        DataError::NoFiles
        | DataError::NotHdf5 { .. }
        | DataError::NotIdx { .. }
        | DataError::NotDigits { .. }
        | DataError::NoVariable { .. }
        | DataError::NotNumbers { .. }
        | DataError::Rank { .. }
        | DataError::Grid { .. }
        | DataError::BadValue { .. }
        | DataError::Range { .. }
        | DataError::Sample { .. } => Verdict::GivenUp,
    }
}

fn of_group(error: &GroupError) -> Verdict {
    match error {
        GroupError::Form(_) | GroupError::Broken { .. } => Verdict::Again,
        GroupError::Backward(_) => Verdict::Failed,
        GroupError::Flat(_)
        | GroupError::Nccl(_)
        | GroupError::Mixed { .. }
        | GroupError::Shared { .. }
        | GroupError::Buckets { .. }
        | GroupError::Loss(_)
        | GroupError::Unused { .. }
        | GroupError::Length { .. } => Verdict::GivenUp,
    }
}

fn of_host(error: &HostError) -> Verdict {
    match error {
        HostError::Group(error) => of_group(error),
        // Another process may find the device and its memory in a better state.
        HostError::Device(_) => Verdict::Failed,
        HostError::Flat(_) => Verdict::GivenUp,
    }
}

fn of_exchange(error: &ExchangeError) -> Verdict {
    match error {
        ExchangeError::Refused { status, .. } => of_refusal(status),
        ExchangeError::Unreachable { .. } | ExchangeError::Answer { .. } => Verdict::Failed,
    }
}

fn of_membership(error: &MembershipError) -> Verdict {
    match error {
        MembershipError::Refused { status, .. } => of_refusal(status),
        MembershipError::Unreachable { .. } => Verdict::Failed,
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
    const LASTING: [Reason; 7] = [
        Reason::BadToken,
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
    use crate::data::Split;

    fn refused(status: Status) -> ExchangeError {
        ExchangeError::Refused {
            shard: ShardId(0),
            place: "server 0".into(),
            status,
        }
    }

    #[test]
    fn only_what_ends_a_life_leads_to_another() {
        let check = |error: anyhow::Error, want| assert_eq!(Verdict::of(&error), want, "{error:#}");
        let broken = || GroupError::Broken {
            message: "connection reset".into(),
        };
        check(broken().into(), Verdict::Again);
        check(TrainError::Group(broken()).into(), Verdict::Again);
        let feed = TrainError::Feed(FeedError::Group(broken()));
        check(feed.into(), Verdict::Again);
        let fenced = || refused(refusal::status(Reason::NotLive, "fenced".into()));
        check(TrainError::Exchange(fenced()).into(), Verdict::Again);
        let entering = Err::<(), _>(fenced()).context("pulling").unwrap_err();
        check(entering, Verdict::Again);
        let stale = refusal::status(Reason::StaleIncarnation, "an older life".into());
        let lease = MembershipError::Refused {
            what: "lease data",
            status: stale,
        };
        check(
            TrainError::Feed(FeedError::Lease(lease)).into(),
            Verdict::Again,
        );
        check(TrainError::LeaseLost.into(), Verdict::Again);
        check(TrainError::Diverged { clock: 7 }.into(), Verdict::Diverged);
        check(Diverged("RMSE is NaN".into()).into(), Verdict::Diverged);
        let failed = refused(refusal::status(Reason::RunFailed, "no snapshot".into()));
        check(failed.into(), Verdict::GivenUp);
        let lost = || refusal::status(Reason::Lost, "312 updates of blocks".into());
        let exchanging = TrainError::Exchange(refused(lost()));
        check(exchanging.into(), Verdict::Lost);
        let joining = MembershipError::Refused {
            what: "join",
            status: lost(),
        };
        check(joining.into(), Verdict::Lost);
        check(
            GivenUp(anyhow::anyhow!("no such file")).into(),
            Verdict::GivenUp,
        );
        check(refused(Status::unavailable("gone")).into(), Verdict::Failed);
        check(anyhow::anyhow!("something else"), Verdict::Failed);
    }

    /// Whether a rank meets them when it opens its data, or later.
    #[test]
    fn a_disk_may_be_back_but_a_bad_value_stays() {
        let check = |error: DataError, want| {
            let begins = without_task(TaskError::Data(error.clone()));
            assert_eq!(Verdict::of(&begins), want, "{begins:#}");
            let to_device = TrainError::Data(error.clone()).into();
            assert_eq!(Verdict::of(&to_device), want, "{to_device:#}");
            let trains = TrainError::Feed(FeedError::Data(error)).into();
            assert_eq!(Verdict::of(&trains), want, "{trains:#}");
        };
        let file = || "a.nc".into();
        check(DataError::Missing { file: file() }, Verdict::Failed);
        let reason = || "Input/output error".to_owned();
        let unreadable = DataError::Unreadable {
            file: file(),
            reason: reason(),
        };
        check(unreadable, Verdict::Failed);
        let damaged = DataError::Damaged {
            file: file(),
            reason: reason(),
        };
        check(damaged, Verdict::Failed);
        let locked = DataError::Locked {
            file: file(),
            reason: reason(),
        };
        check(locked, Verdict::Failed);
        let bad = DataError::BadValue {
            file: file(),
            variable: "t".into(),
            index: [3, 0, 1],
            what: "the value NaN".into(),
        };
        check(bad, Verdict::GivenUp);
        let sample = DataError::Sample {
            split: Split::Train,
            sample: 8,
            len: 8,
        };
        check(sample, Verdict::GivenUp);
        let setting = TaskError::Setting {
            key: "channels",
            value: 0,
            reason: "at least 1",
        };
        assert_eq!(Verdict::of(&without_task(setting)), Verdict::GivenUp);
    }
}
