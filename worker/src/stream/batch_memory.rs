//! Tensors of bytes that batches are read into.

use std::ffi::c_void;

use tch::Tensor;
use tradewind_data::Pooled;

use super::{ffi, page_locked};
use crate::c10d::{C10dError, check};

/// What a column of a batch is read into.
pub enum BatchMemory {
    /// Main memory, which goes back to its pool when no tensor uses it any more.
    Pooled(Pooled),
    /// Page-locked main memory, which a GPU copies from by itself: a contiguous tensor of bytes that nobody else has.
    PageLocked(Tensor),
}

impl BatchMemory {
    /// `bytes` of page-locked memory.
    ///
    /// # Errors
    /// Memory that cannot be locked.
    pub fn page_locked(bytes: usize) -> Result<Self, C10dError> {
        Ok(Self::PageLocked(page_locked::bytes(bytes)?))
    }

    /// The bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pooled(memory) => memory,
            Self::PageLocked(tensor) if tensor.numel() == 0 => &mut [],
            // SAFETY: contiguous bytes since it was made, of this length; nobody else has the tensor.
            Self::PageLocked(tensor) => unsafe {
                std::slice::from_raw_parts_mut(tensor.data_ptr().cast(), tensor.numel())
            },
        }
    }

    /// A tensor of these bytes, which are not copied.
    ///
    /// # Errors
    /// libtorch's.
    pub fn into_tensor(self) -> Result<Tensor, C10dError> {
        match self {
            Self::Pooled(memory) if memory.is_empty() => {
                let empty = Tensor::f_empty([0], (tch::Kind::Uint8, tch::Device::Cpu));
                empty.map_err(super::torch("making a tensor of a batch"))
            }
            Self::Pooled(memory) => bytes_of(memory),
            Self::PageLocked(tensor) => Ok(tensor),
        }
    }
}

fn bytes_of(memory: Pooled) -> Result<Tensor, C10dError> {
    let mut owner = Box::new(memory);
    let (bytes, length) = (owner.as_mut_ptr().cast(), owner.len());
    let owner = Box::into_raw(owner).cast();
    let mut tensor = std::ptr::null_mut();
    // SAFETY: the bytes are the owner's and stay where they are until it is freed, which the call does once, also if
    // it fails; nobody uses them otherwise. `tensor` outlives the call.
    check("making a tensor of a batch", unsafe {
        ffi::tradewind_bytes_of(bytes, length, free, owner, &mut tensor)
    })?;
    // SAFETY: the C side has made this handle for us.
    Ok(unsafe { Tensor::from_ptr(tensor.cast()) })
}

/// # Safety
/// `owner` came from [`bytes_of`], and nothing uses its bytes any more.
unsafe extern "C" fn free(owner: *mut c_void) {
    // SAFETY: as the caller says.
    drop(unsafe { Box::from_raw(owner.cast::<Pooled>()) });
}

#[cfg(test)]
mod tests {
    use tradewind_data::Pool;

    use super::*;

    #[test]
    fn memory_goes_back_to_its_pool_with_the_last_tensor_of_it() {
        let pool = Pool::default();
        let mut memory = pool.take(8).unwrap();
        memory.copy_from_slice(&[0, 0, 128, 63, 0, 0, 0, 64]);
        let address = memory.as_ptr();
        let tensor = BatchMemory::Pooled(memory).into_tensor().unwrap();
        let numbers = tensor.f_view_dtype(tch::Kind::Float).unwrap();
        drop(tensor);
        assert_eq!(numbers.data_ptr().cast_const().cast(), address);
        assert_ne!(pool.take(8).unwrap().as_ptr(), address);
        assert_eq!(Vec::<f32>::try_from(&numbers).unwrap(), [1.0, 2.0]);
        drop(numbers);
        let mut again = [pool.take(8).unwrap(), pool.take(8).unwrap()];
        assert!(again.iter_mut().any(|memory| memory.as_ptr() == address));
    }

    #[test]
    fn without_a_gpu_there_is_no_page_locked_memory() {
        let error = BatchMemory::page_locked(8).err().unwrap().to_string();
        assert!(error.contains("8 bytes of it cannot be had"), "{error}");
    }
}
