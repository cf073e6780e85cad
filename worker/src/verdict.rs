//! What follows the errors of a rank that trains with libtorch; of all others
//! [`Verdict::of`] says it.

use tradewind_client::verdict::{GivenUp, Verdict};
use tradewind_data::DataError as SourceError;

use crate::data::DataError;
use crate::group::GroupError;
use crate::host::HostError;
use crate::model::TaskError;
use crate::train_error::TrainError;

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

/// What follows an error, which may have context.
pub fn verdict(error: &anyhow::Error) -> Verdict {
    let train = error.downcast_ref().map(of_train);
    let group = || error.downcast_ref().map(of_group);
    train.or_else(group).unwrap_or_else(|| Verdict::of(error))
}

fn of_train(error: &TrainError) -> Verdict {
    match error {
        TrainError::Feed(error) => Verdict::of_feed(error),
        TrainError::Group(error) => of_group(error),
        TrainError::Exchange(error) => Verdict::of_exchange(error),
        TrainError::Data(error) => of_data(error),
        TrainError::Diverged(_) => Verdict::Diverged,
        TrainError::Precision(_) => Verdict::GivenUp,
        // The device may be back for the next process.
        TrainError::Copy(_) => Verdict::Failed,
        TrainError::Host(error) => of_host(error),
        TrainError::LeaseLost(_) => Verdict::Again,
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
        | DataError::Source(
            SourceError::File { .. }
            | SourceError::Memory(_)
            | SourceError::Ended(_)
            | SourceError::Interrupted,
        ) => Verdict::Failed,
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
        | DataError::Sample { .. }
        | DataError::Ahead { .. }
        | DataError::Source(SourceError::Sample { .. } | SourceError::Asked(_)) => Verdict::GivenUp,
    }
}

fn of_group(error: &GroupError) -> Verdict {
    match error {
        GroupError::Form(_) | GroupError::Broken(_) => Verdict::Again,
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

#[cfg(test)]
mod tests {
    use tradewind_client::membership::LeaseLost;
    use tradewind_client::ranks::Broken;

    use super::*;
    use crate::data::Split;

    #[test]
    fn a_group_that_breaks_leads_to_another() {
        let check = |error: anyhow::Error| assert_eq!(verdict(&error), Verdict::Again, "{error:#}");
        let broken = || {
            GroupError::Broken(Broken {
                message: "connection reset".into(),
            })
        };
        check(broken().into());
        check(TrainError::Group(broken()).into());
        check(anyhow::Error::from(TrainError::from(LeaseLost)).context("training"));
    }

    /// Whether a rank meets them when it opens its data, or later.
    #[test]
    fn a_disk_may_be_back_but_a_bad_value_stays() {
        let check = |error: DataError, want| {
            let begins = without_task(TaskError::Data(error.clone()));
            assert_eq!(verdict(&begins), want, "{begins:#}");
            let trains = TrainError::Data(error).into();
            assert_eq!(verdict(&trains), want, "{trains:#}");
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
        assert_eq!(verdict(&without_task(setting)), Verdict::GivenUp);
    }
}
