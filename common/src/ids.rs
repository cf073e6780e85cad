//! Newtypes for everything that is numbered or named, and what each counts.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// A group of ranks that step together, from 0 in the order of the configuration.
    GroupId(u32)
);
number!(
    /// A parameter server, from 0 in the order of the configuration.
    ServerId(u32)
);
number!(
    /// A shard of a run, from 0; as many as the fleet had servers when the run was created.
    ShardId(u32)
);
number!(
    /// A block of the flat parameter vector, from 0 in flat order.
    BlockId(u32)
);
number!(
    /// A rank inside its group, in `0..group_size`.
    Rank(u32)
);
number!(
    /// Version of membership and placement, bumped on every change. It orders views.
    Generation(u64)
);
number!(
    /// Which existence of a group or a server is speaking, from 1; 0 is nobody.
    Incarnation(u64)
);

impl Generation {
    /// The generation after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Incarnation {
    /// The one after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The name of one training run: 1 to 64 characters of `[A-Za-z0-9._-]`, starting with a letter
/// or a digit, so that it is also a folder name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

/// A name that cannot be a [`RunId`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "run name {0:?} is not 1 to 64 characters of letters, digits, '.', '_' and '-', starting with a letter or a digit"
)]
pub struct BadRunId(pub String);

impl RunId {
    /// Checks the name.
    pub fn new(name: impl Into<String>) -> Result<Self, BadRunId> {
        let name = name.into();
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let starts = name
            .chars()
            .next()
            .is_some_and(|c| c.is_ascii_alphanumeric());
        if name.len() <= 64 && starts && name.chars().all(allowed) {
            Ok(Self(name))
        } else {
            Err(BadRunId(name))
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<String> for RunId {
    type Error = BadRunId;
    fn try_from(name: String) -> Result<Self, BadRunId> {
        Self::new(name)
    }
}

impl From<RunId> for String {
    fn from(run: RunId) -> Self {
        run.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_names() {
        let check = |name: &str, good: bool| assert_eq!(RunId::new(name).is_ok(), good, "{name:?}");
        check("climate-1.2_b", true);
        check("", false);
        check("../escape", false);
        check(".hidden", false);
        check("a/b", false);
        check(&"x".repeat(64), true);
        check(&"x".repeat(65), false);
    }
}
