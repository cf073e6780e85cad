//! A model's tensors, as Python has them in memory, into files.

use std::path::PathBuf;

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use tradewind_client::saving::{self, Dtype, Notes, Saved};

use crate::errors::{unavailable, wrong};

/// A tensor whose bytes lie in memory, in C order, as long as this is.
pub struct Tensor {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    memory: PyBuffer<u8>,
}

/// The same as attributes of an object of Python's.
#[derive(FromPyObject)]
struct Given {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    memory: PyBuffer<u8>,
}

impl<'py> FromPyObject<'_, 'py> for Tensor {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let Given {
            name,
            dtype,
            shape,
            memory,
        } = Given::extract(object)?;
        let known = serde_json::from_value(dtype.as_str().into());
        let dtype = known.map_err(|_| wrong(format!("{name} is of {dtype}, which no file has")))?;
        if !memory.is_c_contiguous() {
            return Err(wrong(format!("{name} does not lie in one piece")));
        }
        Ok(Self {
            name,
            dtype,
            shape,
            memory,
        })
    }
}

impl Tensor {
    /// As a file has it. The script waits until it is written.
    pub fn saved(&self) -> Saved<'_> {
        let memory = &self.memory;
        let bytes = match memory.len_bytes() {
            0 => &[][..],
            // SAFETY: the buffer is contiguous, of bytes, and held; the script, which alone writes it, waits.
            length => unsafe { std::slice::from_raw_parts(memory.buf_ptr().cast(), length) },
        };
        Saved {
            name: &self.name,
            dtype: self.dtype,
            shape: self.shape.clone(),
            bytes,
        }
    }
}

/// Writes tensors into one file, whole.
#[pyfunction]
pub fn save(py: Python<'_>, path: PathBuf, tensors: Vec<Tensor>, notes: Notes) -> PyResult<()> {
    let saved: Vec<_> = tensors.iter().map(Tensor::saved).collect();
    let written = py.detach(|| saving::save(&path, &saved, notes));
    written.map_err(|error| unavailable(format!("{error:#}")))
}

/// Writes tensors into shards of so many bytes at most, in a folder, and an index.
#[pyfunction]
pub fn save_sharded(
    py: Python<'_>,
    folder: PathBuf,
    tensors: Vec<Tensor>,
    notes: Notes,
    shard_bytes_max: u64,
) -> PyResult<()> {
    let saved: Vec<_> = tensors.iter().map(Tensor::saved).collect();
    let written = py.detach(|| saving::save_sharded(&folder, &saved, &notes, shard_bytes_max));
    written.map_err(|error| unavailable(format!("{error:#}")))
}
