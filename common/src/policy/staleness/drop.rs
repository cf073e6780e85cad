use super::Ask;
use crate::choice;
use crate::choice::{Field, Kind};

choice! {
    /// A gradient is left out from some delay on.
    "drop" ("leaves it out if τ is at least `staleness.drop_beyond`") is Drop {
        /// The smallest delay that is left out, in updates; at least 1: a delay of 0 is no staleness.
        beyond: u32 = BEYOND,
    }
}

const BEYOND: Field = Field {
    key: "staleness.drop_beyond",
    kind: Kind::Count {
        min: 1,
        max: 1_000_000,
    },
    default: "8",
    meaning: "Smallest delay at which a gradient is left out: so many updates since the parameters that it was computed on.",
};

impl Ask for Drop {
    fn drops(&self) -> bool {
        true
    }
}
