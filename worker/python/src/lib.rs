//! The native half of the Python package `tradewind`: one rank of a run, on `tradewind-client`.
//!
//! Python sees `Rank`, whose methods are the steps that `tradewind_client` describes. Collectives of
//! the group are Python's, given as callables (`group.rs`). Whatever waits runs on a thread of its own, so
//! that Ctrl-C is heard (`driver.rs`).

mod alone;
mod driver;
mod entry;
mod errors;
mod evaluation;
mod group;
mod kept;
mod memory;
mod process_log;
mod rank;
mod samples;
mod saving;
mod training;

/// The module `tradewind._native`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    const KEPT_BYTES_MAX: u64 = crate::kept::KEPT_BYTES_MAX;

    #[pymodule_export]
    use crate::errors::{GroupBroken, TradewindError, Unavailable, failed_with};
    #[pymodule_export]
    use crate::group::seal;
    #[pymodule_export]
    use crate::kept::{read_kept, write_kept};
    #[pymodule_export]
    use crate::rank::{Buckets, InnerStep, Joined, Placed, Rank, Stepped};
    #[pymodule_export]
    use crate::samples::{SampleField, Samples, take_copied};
    #[pymodule_export]
    use crate::saving::{save, save_sharded};
}
