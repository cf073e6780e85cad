//! What a restored shard has lost.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What had been acknowledged and is gone. The default is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Updates of blocks, summed over the blocks.
    pub updates: u64,
    /// Samples, the most of any block.
    pub samples: u64,
}

impl Loss {
    /// Whether nothing is lost.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    /// What remains of it when so much is counted already.
    #[must_use]
    pub fn without(self, counted: Self) -> Self {
        Self {
            updates: self.updates.saturating_sub(counted.updates),
            samples: self.samples.saturating_sub(counted.samples),
        }
    }

    /// Both, one having come after the other.
    #[must_use]
    pub fn plus(self, later: Self) -> Self {
        Self {
            updates: self.updates.saturating_add(later.updates),
            samples: self.samples.saturating_add(later.samples),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { updates, samples } = *self;
        let counted = |n: u64, thing: &str| format!("{n} {thing}{}", if n == 1 { "" } else { "s" });
        let (updates, samples) = (counted(updates, "update"), counted(samples, "sample"));
        write!(f, "{updates} of blocks ({samples})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_add_up_without_wrapping_and_read_as_people_would_say_them() {
        let loss = |updates, samples| Loss { updates, samples };
        assert!(Loss::default().is_none());
        assert!(!loss(0, 1).is_none());
        assert!(!loss(1, 0).is_none());
        assert_eq!(loss(312, 600).plus(loss(1, 40)), loss(313, 640));
        let most = loss(u64::MAX, u64::MAX - 1);
        assert_eq!(most.plus(loss(1, 2)), loss(u64::MAX, u64::MAX));
        let said = loss(312, 640).to_string();
        assert_eq!(said, "312 updates of blocks (640 samples)");
        assert_eq!(loss(1, 1).to_string(), "1 update of blocks (1 sample)");
    }
}
