//! How an update comes about: `common` ↔ wire.

use tradewind_common::policy::{MergeSpec, MomentumSpec, Policies, StalenessSpec, Weights};

use crate::malformed::{Malformed, malformed};
use crate::v1;
use crate::v1::policies::{Momentum, Staleness};

impl From<&Policies> for v1::Policies {
    fn from(policies: &Policies) -> Self {
        let weights = match policies.weights {
            Weights::Samples => v1::Weights::Samples,
            Weights::Groups => v1::Weights::Groups,
        };
        Self {
            backup_groups: policies.backup_groups,
            merge: policies.merge.map(|merge| v1::Merge {
                min_groups: merge.min_groups,
                grace_ms_max: merge.grace_ms_max,
                wait_ms_max: merge.wait_ms_max,
            }),
            weights: weights.into(),
            staleness: match policies.staleness {
                StalenessSpec::None => None,
                StalenessSpec::Scale => Some(Staleness::Scale(true)),
                StalenessSpec::Drop { beyond } => Some(Staleness::DropBeyond(beyond)),
                StalenessSpec::Compensate {
                    lambda,
                    mean_square_decay,
                } => Some(Staleness::Compensate(v1::Compensate {
                    lambda,
                    mean_square_decay,
                })),
            },
            momentum: match policies.momentum {
                MomentumSpec::Fixed => None,
                MomentumSpec::Lowered => Some(Momentum::Lowered(true)),
                MomentumSpec::ClosedLoop { gain } => Some(Momentum::ClosedLoopGain(gain)),
            },
        }
    }
}

impl TryFrom<v1::Policies> for Policies {
    type Error = Malformed;
    fn try_from(wire: v1::Policies) -> Result<Self, Malformed> {
        let weights = match v1::Weights::try_from(wire.weights) {
            Ok(v1::Weights::Samples) => Weights::Samples,
            Ok(v1::Weights::Groups) => Weights::Groups,
            Err(_) => {
                let problem = format!("{} is no way to weigh", wire.weights);
                return Err(malformed("policies.weights", problem));
            }
        };
        Ok(Self {
            backup_groups: wire.backup_groups,
            merge: wire.merge.map(|merge| MergeSpec {
                min_groups: merge.min_groups,
                grace_ms_max: merge.grace_ms_max,
                wait_ms_max: merge.wait_ms_max,
            }),
            weights,
            staleness: match wire.staleness {
                None | Some(Staleness::Scale(false)) => StalenessSpec::None,
                Some(Staleness::Scale(true)) => StalenessSpec::Scale,
                Some(Staleness::DropBeyond(beyond)) => StalenessSpec::Drop { beyond },
                Some(Staleness::Compensate(term)) => StalenessSpec::Compensate {
                    lambda: term.lambda,
                    mean_square_decay: term.mean_square_decay,
                },
            },
            momentum: match wire.momentum {
                None | Some(Momentum::Lowered(false)) => MomentumSpec::Fixed,
                Some(Momentum::Lowered(true)) => MomentumSpec::Lowered,
                Some(Momentum::ClosedLoopGain(gain)) => MomentumSpec::ClosedLoop { gain },
            },
        })
    }
}
