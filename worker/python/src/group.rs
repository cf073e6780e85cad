//! The ranks of a group that meet in Python.

use std::borrow::Cow;

use pyo3::prelude::*;
use tradewind_client::group_key::{self, KEY_BYTES};
use tradewind_client::main_memory::Gather;
use tradewind_client::ranks::{Broken, Ranks};
use tradewind_common::Rank;

/// The seal of a value under its whole name in the store where a group meets, by the group's key: see
/// [`group_key::GroupKey::seal`].
#[pyfunction]
pub fn seal(key: [u8; KEY_BYTES], name: &str, value: &[u8]) -> Cow<'static, [u8]> {
    let seal = group_key::seal(&key, name.as_bytes(), value);
    Cow::Owned(seal.to_vec())
}

/// A group whose collectives are methods of a Python object: `all_reduce_sum(list[float]) -> list[float]`,
/// `broadcast(list[int]) -> list[int]`, and `gather()`, which shares the slices of the flat vector, of which
/// the object knows where it lies. Each may raise, which breaks the group.
pub struct PythonRanks {
    rank: Rank,
    size: u32,
    collectives: Py<PyAny>,
}

impl PythonRanks {
    /// Of this rank.
    pub fn new(rank: Rank, size: u32, collectives: Py<PyAny>) -> Self {
        Self {
            rank,
            size,
            collectives,
        }
    }
}

fn broken(error: PyErr) -> Broken {
    let message = error.to_string();
    Broken { message }
}

impl Ranks for PythonRanks {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn all_reduce_sum(&self, values: &mut [f64]) -> Result<(), Broken> {
        let sum = |py: Python<'_>| -> PyResult<Vec<f64>> {
            let own = values.to_vec();
            let sums = self
                .collectives
                .call_method1(py, "all_reduce_sum", (own,))?;
            sums.extract(py)
        };
        let sums = Python::attach(sum).map_err(broken)?;
        values.copy_from_slice(&sums);
        Ok(())
    }

    fn broadcast(&self, values: &mut [i64]) -> Result<(), Broken> {
        let tell = |py: Python<'_>| -> PyResult<Vec<i64>> {
            let own = values.to_vec();
            let told = self.collectives.call_method1(py, "broadcast", (own,))?;
            told.extract(py)
        };
        let told = Python::attach(tell).map_err(broken)?;
        values.copy_from_slice(&told);
        Ok(())
    }
}

impl Gather for PythonRanks {
    fn gather(&self, _values: &mut [f32]) -> Result<(), Broken> {
        let gather = |py: Python<'_>| self.collectives.call_method0(py, "gather").map(drop);
        Python::attach(gather).map_err(broken)
    }
}
