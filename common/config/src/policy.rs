//! How waiting contributions become an update: `train.backup_groups`, `train.weights`, sections
//! `merge`, `staleness` and `momentum`.

use tradewind_common::policy::{MergeSpec, Policies, Weights};

use super::{Values, choice};

/// What the configuration says of it. What does not fit together is found by
/// [`Policies::check`], which servers ask, too.
pub(super) fn read(values: &Values<'_>) -> Policies {
    let merge = MergeSpec {
        min_groups: values.int("merge.min_groups") as u32,
        grace_ms_max: values.int("merge.grace_ms_max") as u64,
        wait_ms_max: values.int("merge.wait_ms_max") as u64,
    };
    Policies {
        merge: (merge.min_groups > 1 || merge.grace_ms_max > 0).then_some(merge),
        backup_groups: values.int("train.backup_groups") as u32,
        weights: match values.text("train.weights") {
            "samples" => Weights::Samples,
            "groups" => Weights::Groups,
            other => unreachable!("train.weights has no choice {other}"),
        },
        staleness: choice::read(values, "staleness.policy"),
        momentum: choice::read(values, "momentum.policy"),
    }
}
