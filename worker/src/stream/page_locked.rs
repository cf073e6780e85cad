//! Main memory that a device copies to and from while everybody else goes on.

use std::ffi::c_void;

use tch::{Device, Kind, Tensor};
use tradewind_client::parts::{Lent, Values};

use super::ffi;
use crate::c10d::{C10dError, check};

/// A vector of f32, or of bf16, page-locked where there is a device to copy; plain memory
/// otherwise. It begins with any values.
///
/// A copy that was told to write it has done so when its [event](super::Event) is there; nobody
/// reads the vector before, which whoever orders one answers for ([`tensor`](Self::tensor)).
pub struct PageLocked {
    /// Owns the memory.
    tensor: Tensor,
    address: *mut c_void,
    length: usize,
    kind: Kind,
}

// SAFETY: the memory belongs to the tensor, which may be freed anywhere, and is written through an
// exclusive borrow only, or by copies that are waited for.
unsafe impl Send for PageLocked {}
// SAFETY: as above; what `&self` offers only reads.
unsafe impl Sync for PageLocked {}

impl PageLocked {
    /// Room for `length` values, f32 or bf16, that `device` reads and writes.
    pub fn new(length: usize, kind: Kind, device: Device) -> Result<Self, C10dError> {
        assert!(matches!(kind, Kind::Float | Kind::BFloat16));
        let tensor = if device.is_cuda() {
            page_locked(length, kind)?
        } else {
            let plain = Tensor::f_empty([length as i64], (kind, Device::Cpu));
            plain.map_err(super::torch("making a vector"))?
        };
        Ok(Self {
            address: tensor.data_ptr(),
            tensor,
            length,
            kind,
        })
    }

    /// Room for several vectors in one piece, each at a multiple of 256 bytes. Page-locked memory is had in
    /// powers of two of bytes, so that of many small pieces much is lost.
    pub fn each(lengths: &[usize], kind: Kind, device: Device) -> Result<Vec<Self>, C10dError> {
        const APART: usize = 128;
        let mut end = 0;
        let mut starts = Vec::with_capacity(lengths.len());
        for length in lengths {
            starts.push(end);
            end = (end + length).next_multiple_of(APART);
        }
        let all = Self::new(end, kind, device)?.tensor;
        let places = starts.into_iter().zip(lengths);
        places
            .map(|(start, length)| {
                let tensor = all.f_narrow(0, start as i64, *length as i64);
                let tensor = tensor.map_err(super::torch("making a vector"))?;
                Ok(Self {
                    address: tensor.data_ptr(),
                    tensor,
                    length: *length,
                    kind,
                })
            })
            .collect()
    }

    /// What a copy from the device writes, or one to the device reads. Exclusive, so that nobody
    /// reads a slice of it when the copy is ordered.
    ///
    /// # Safety
    /// What writes by way of this handle, or of others that are made from it, has been waited for, by an
    /// [event](super::Event), before the values are read or written here again; what reads by way of them may see
    /// values that are written meanwhile.
    pub unsafe fn tensor(&mut self) -> &Tensor {
        &self.tensor
    }

    /// The values of a vector of f32.
    ///
    /// # Panics
    /// If it is one of bf16.
    pub fn f32(&self) -> &[f32] {
        assert_eq!(self.kind, Kind::Float);
        if self.length == 0 {
            return &[];
        }
        // SAFETY: contiguous and of this length and type since it was made; it lives as long as
        // the tensor.
        unsafe { std::slice::from_raw_parts(self.address.cast(), self.length) }
    }

    /// As [`f32`](Self::f32), to be written.
    pub fn f32_mut(&mut self) -> &mut [f32] {
        assert_eq!(self.kind, Kind::Float);
        if self.length == 0 {
            return &mut [];
        }
        // SAFETY: as in `f32`, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.address.cast(), self.length) }
    }

    fn bf16(&self) -> &[u16] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: as in `f32`; the upper half of an f32 has any 16 bits.
        unsafe { std::slice::from_raw_parts(self.address.cast(), self.length) }
    }
}

impl Lent for PageLocked {
    fn values(&self) -> Values<'_> {
        match self.kind {
            Kind::Float => self.f32().into(),
            _ => self.bf16().into(),
        }
    }
}

/// Bytes of which nobody else has the memory.
pub(super) fn bytes(length: usize) -> Result<Tensor, C10dError> {
    locked(length, Kind::Uint8).map_err(|error| C10dError::Torch {
        what: "batches are read into page-locked main memory",
        message: format!(
            "{length} bytes of it cannot be had: {error}; let fewer ranks share this node, or read less ahead \
             (loader.bytes_ahead)"
        ),
    })
}

fn page_locked(length: usize, kind: Kind) -> Result<Tensor, C10dError> {
    let bytes = length * kind.elt_size_in_bytes();
    locked(length, kind).map_err(|error| C10dError::Torch {
        what: "an exchange copies through page-locked main memory",
        message: format!(
            "{bytes} bytes of it cannot be had: {error}; let fewer ranks share this node, or need \
             less: exchange.up = \"bf16\" takes half for gradients, train.overlap = 0 one of two"
        ),
    })
}

fn locked(length: usize, kind: Kind) -> Result<Tensor, C10dError> {
    let number = match kind {
        Kind::Float => 0,
        Kind::BFloat16 => 1,
        Kind::Uint8 => 2,
        kind => panic!("nobody locks memory for {kind:?}"),
    };
    let mut tensor = std::ptr::null_mut();
    // SAFETY: `tensor` outlives the call.
    check("locking memory", unsafe {
        ffi::tradewind_page_locked(length, number, &mut tensor)
    })?;
    // SAFETY: the C side has made this handle for us.
    Ok(unsafe { Tensor::from_ptr(tensor.cast()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_one_piece_are_apart_and_aligned() {
        for kind in [Kind::Float, Kind::BFloat16] {
            let lengths = [3, 0, 500, 128];
            let mut each = PageLocked::each(&lengths, kind, Device::Cpu).unwrap();
            assert!(each.iter().map(|part| part.length).eq(lengths));
            for (number, part) in each.iter_mut().enumerate() {
                // SAFETY: it is filled when this returns.
                let tensor = unsafe { part.tensor() };
                let _ = tensor.shallow_clone().fill_(number as f64);
            }
            for (number, part) in each.iter().enumerate() {
                let values = Vec::<f32>::try_from(part.tensor.to_kind(Kind::Float)).unwrap();
                assert!(
                    values.iter().all(|value| *value == number as f32),
                    "{number}"
                );
                if part.length == 0 {
                    continue;
                }
                let from_first = part.address as usize - each[0].address as usize;
                assert!(from_first.is_multiple_of(256), "{number} at {from_first}");
            }
        }
    }
}
