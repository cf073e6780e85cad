//! The native half of the Python package `tradewind`: one rank of a run, on `tradewind-client`.
//!
//! Python sees `Rank`, whose methods are the steps that `tradewind_client` describes. Collectives of
//! the group are Python's, given as callables (`group.rs`). Whatever waits runs on a thread of its own, so
//! that Ctrl-C is heard (`driver.rs`).

mod driver;
mod entry;
mod errors;
mod group;
mod memory;
mod rank;
mod training;

/// The module `tradewind._native`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::errors::{GroupBroken, TradewindError, failed_with};
    #[pymodule_export]
    use crate::rank::{Buckets, InnerStep, Joined, Placed, Rank, Stepped};
}
