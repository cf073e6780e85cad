//! Fields against their ranges.

use super::SpecError;

pub(crate) fn unit(x: f64, field: &'static str) -> Result<(), SpecError> {
    ranged((0.0..1.0).contains(&x), field, x, "in 0..1")
}

pub(crate) fn finite(x: f64, field: &'static str) -> Result<(), SpecError> {
    let good = x.is_finite() && x >= 0.0;
    ranged(good, field, x, "a finite number of at least 0")
}

pub(crate) fn ranged(
    good: bool,
    field: &'static str,
    value: impl ToString,
    wanted: &'static str,
) -> Result<(), SpecError> {
    if good {
        return Ok(());
    }
    Err(SpecError::Range {
        field,
        value: value.to_string(),
        wanted,
    })
}
