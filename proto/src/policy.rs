//! How an update comes about: `common` ↔ wire.

use tradewind_common::choice::Choices;
use tradewind_common::policy::{MergeSpec, Policies, Weights};

use crate::choice;
use crate::malformed::{Malformed, malformed};
use crate::v1;

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
            staleness: Some(choice::to_wire(&policies.staleness)),
            momentum: Some(choice::to_wire(&policies.momentum)),
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
            staleness: chosen("policies.staleness", wire.staleness)?,
            momentum: chosen("policies.momentum", wire.momentum)?,
        })
    }
}

/// The default if nothing was chosen.
fn chosen<C: Choices + Default>(
    field: &'static str,
    wire: Option<v1::Choice>,
) -> Result<C, Malformed> {
    wire.map_or_else(|| Ok(C::default()), |wire| choice::from_wire(field, wire))
}
