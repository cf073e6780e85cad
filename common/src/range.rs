//! Fields against their ranges.

/// A field that is outside its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field} is {value}, which is not {wanted}")]
pub struct RangeError {
    /// The field.
    pub field: &'static str,
    /// What it was.
    pub value: String,
    /// What it may be.
    pub wanted: &'static str,
}

pub(crate) fn ranged(
    good: bool,
    field: &'static str,
    value: impl ToString,
    wanted: &'static str,
) -> Result<(), RangeError> {
    if good {
        return Ok(());
    }
    Err(RangeError {
        field,
        value: value.to_string(),
        wanted,
    })
}
