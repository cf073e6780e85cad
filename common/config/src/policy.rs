//! How waiting contributions become an update: `train.backup_groups`, `train.weights`, sections
//! `merge`, `staleness` and `momentum`.

use super::Values;
use tradewind_common::policy::{MergeSpec, MomentumSpec, Policies, StalenessSpec, Weights};

/// What the configuration says of it. What does not fit together is found by
/// [`Policies::check`], which servers ask, too.
pub(super) fn read(values: &Values<'_>) -> Policies {
    let lambda = values.float("staleness.lambda");
    let merge = MergeSpec {
        min_groups: values.int("merge.min_groups") as u32,
        grace_ms_max: values.int("merge.grace_ms_max") as u64,
        wait_ms_max: values.int("merge.wait_ms_max") as u64,
    };
    Policies {
        merge: (merge.min_groups > 1 || merge.grace_ms_max > 0).then_some(merge),
        backup_groups: values.int("train.backup_groups") as u32,
        weights: match values.text("train.weights") {
            "groups" => Weights::Groups,
            _ => Weights::Samples,
        },
        staleness: match values.text("staleness.policy") {
            "scale" => StalenessSpec::Scale,
            "drop" => StalenessSpec::Drop {
                beyond: values.int("staleness.drop_beyond") as u64,
            },
            "compensate" => StalenessSpec::Compensate {
                lambda,
                mean_square_decay: None,
            },
            "compensate-adaptive" => StalenessSpec::Compensate {
                lambda,
                mean_square_decay: Some(values.float("staleness.mean_square_decay")),
            },
            _ => StalenessSpec::None,
        },
        momentum: match values.text("momentum.policy") {
            "lowered" => MomentumSpec::Lowered,
            "closed-loop" => MomentumSpec::ClosedLoop {
                gain: values.float("momentum.gain"),
            },
            _ => MomentumSpec::Fixed,
        },
    }
}
