//! The learning rate: section `schedule`.

use super::{Values, choice};
use tradewind_common::schedule::{Schedule, Unit};

/// What the configuration says of it; what does not fit together is found by [`Schedule::problems`].
pub(super) fn read(values: &Values<'_>) -> Schedule {
    let unit: Unit = choice::read(values, "schedule.unit");
    Schedule {
        learning_rate: values.float("optimizer.learning_rate"),
        unit,
        warmup: values.int(unit.warmup().key).unsigned_abs(),
        decay: choice::read(values, "schedule.decay"),
        scaling: choice::read(values, "schedule.scaling"),
    }
}
