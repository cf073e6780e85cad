//! Messages that do not say what they must.

/// A message that does not say what it must.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Malformed {
    /// The field.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

pub(crate) fn malformed(field: &'static str, problem: impl Into<String>) -> Malformed {
    Malformed {
        field,
        problem: problem.into(),
    }
}

pub(crate) fn required<T>(field: &'static str, value: Option<T>) -> Result<T, Malformed> {
    value.ok_or_else(|| malformed(field, "is missing"))
}
