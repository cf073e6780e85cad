//! Memory of Python's that exchanges read and write.

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::errors::wrong;

/// A contiguous, writable array of f32, alive as long as this is.
pub struct Memory(PyBuffer<f32>);

impl Memory {
    /// An object with Python's buffer protocol.
    pub fn new(object: &Bound<'_, PyAny>, elements: usize, what: &str) -> PyResult<Self> {
        let buffer = PyBuffer::<f32>::get(object)?;
        if !buffer.is_c_contiguous() || buffer.readonly() {
            return Err(wrong(format!(
                "{what} is not contiguous, writable memory of f32"
            )));
        }
        if buffer.item_count() != elements {
            return Err(wrong(format!(
                "{what} has {} values, and the model {elements}",
                buffer.item_count()
            )));
        }
        Ok(Self(buffer))
    }

    /// The values.
    ///
    /// # Safety
    /// Nobody writes them meanwhile: the package calls one method of a rank at a time, and returns to the
    /// script when the call has ended; a script that Ctrl-C has taken out of a call takes no further step.
    pub unsafe fn values(&self) -> &[f32] {
        // SAFETY: the buffer is contiguous, of f32, and held; that nobody writes is the caller's.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), self.0.item_count()) }
    }

    /// The values, to be written.
    ///
    /// # Safety
    /// Nobody else reads or writes them meanwhile, as for [`values`](Self::values).
    pub unsafe fn values_mut(&mut self) -> &mut [f32] {
        // SAFETY: the buffer is contiguous, writable, of f32, and held; that it is not shared is the caller's.
        unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast(), self.0.item_count()) }
    }
}
