//! How an update comes about: `common` ↔ wire.

use tradewind_common::choice::Settings;
use tradewind_common::pieces::Norms;
use tradewind_common::policy::{MergeSpec, Policies};
use tradewind_common::schedule::Schedule;

use crate::choice::{self, or_default};
use crate::malformed::{Malformed, required};
use crate::v1;

impl From<&Policies> for v1::Policies {
    fn from(policies: &Policies) -> Self {
        let merge = policies.merge.iter();
        let merge =
            merge.flat_map(|merge| choice::settings_to_wire(MergeSpec::FIELDS, merge.settings()));
        Self {
            backup_groups: policies.backup_groups,
            merge: merge.collect(),
            weights: Some(choice::to_wire(&policies.weights)),
            staleness: Some(choice::to_wire(&policies.staleness)),
            momentum: Some(choice::to_wire(&policies.momentum)),
        }
    }
}

impl TryFrom<v1::Policies> for Policies {
    type Error = Malformed;
    fn try_from(wire: v1::Policies) -> Result<Self, Malformed> {
        let merges = !wire.merge.is_empty();
        let merge = choice::together("policies.merge", wire.merge)?;
        Ok(Self {
            backup_groups: wire.backup_groups,
            merge: merges.then_some(merge),
            weights: or_default("policies.weights", wire.weights)?,
            staleness: or_default("policies.staleness", wire.staleness)?,
            momentum: or_default("policies.momentum", wire.momentum)?,
        })
    }
}

impl From<&Schedule> for v1::Schedule {
    fn from(schedule: &Schedule) -> Self {
        Self {
            learning_rate: schedule.learning_rate,
            warmup: schedule.warmup,
            unit: Some(choice::to_wire(&schedule.unit)),
            decay: Some(choice::to_wire(&schedule.decay)),
            scaling: Some(choice::to_wire(&schedule.scaling)),
        }
    }
}

impl TryFrom<v1::Schedule> for Schedule {
    type Error = Malformed;
    fn try_from(wire: v1::Schedule) -> Result<Self, Malformed> {
        let decay = required("schedule.decay", wire.decay)?;
        Ok(Self {
            learning_rate: wire.learning_rate,
            warmup: wire.warmup,
            unit: or_default("schedule.unit", wire.unit)?,
            decay: choice::from_wire("schedule.decay", decay)?,
            scaling: or_default("schedule.scaling", wire.scaling)?,
        })
    }
}

impl From<Norms> for v1::Norms {
    fn from(Norms { values, gradient }: Norms) -> Self {
        Self { values, gradient }
    }
}

impl From<v1::Norms> for Norms {
    fn from(v1::Norms { values, gradient }: v1::Norms) -> Self {
        Self { values, gradient }
    }
}
