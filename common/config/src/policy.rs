//! How waiting contributions become an update: `train.backup_groups`, `train.weights`, sections
//! `merge`, `staleness` and `momentum`.

use tradewind_common::policy::{MergeSpec, Policies};

use super::{Values, choice};

/// What the configuration says of it. What does not fit together is found by
/// [`problems`](tradewind_common::exclusions::Chosen::problems), for which servers ask, too.
pub(super) fn read(values: &Values<'_>) -> Policies {
    Policies {
        merge: Some(choice::together(values)).filter(MergeSpec::waits),
        backup_groups: values.int("train.backup_groups") as u32,
        weights: choice::read(values, "train.weights"),
        staleness: choice::read(values, "staleness.policy"),
        momentum: choice::read(values, "momentum.policy"),
    }
}
