//! How samples are read ahead of their use: section `loader`.

use tradewind_common::choice::{Field, Kind, Unfit, fit};
use tradewind_common::settings;

settings! {
    /// How a rank reads batches ahead.
    Loader {
        /// Threads that read.
        readers: u64 = Field {
            key: "loader.readers",
            kind: Kind::Count { min: 1, max: 256 },
            default: "1",
            meaning: "Number of threads of each rank that read batches ahead. Which samples come next does not depend on it. More help where reading or decoding a batch takes longer than a step computes.",
        },
        /// Batches that are asked for and not yet used.
        batches_ahead: u64 = Field {
            key: "loader.batches_ahead",
            kind: Kind::Count { min: 1, max: 4096 },
            default: "2",
            meaning: "Largest number of batches that a rank reads ahead; at least `loader.readers`, so that none is idle.",
        },
        /// Bytes of batches that are being read, or are read and not yet used.
        bytes_ahead: u64 = Field {
            key: "loader.bytes_ahead",
            kind: Kind::Count { min: 4096, max: 1 << 40 },
            default: "268435456",
            meaning: "Most main memory, in bytes, of the batches that a rank reads ahead. A batch is begun once it fits beside those that are begun and not yet used.",
        },
    }
}

impl Loader {
    /// What does not fit together.
    pub(super) fn problems(&self) -> Vec<Unfit> {
        let check = fit(
            self.batches_ahead >= self.readers,
            "loader.batches_ahead",
            &format!(
                "is less than loader.readers = {}: some would be idle",
                self.readers
            ),
        );
        check.err().into_iter().collect()
    }
}
