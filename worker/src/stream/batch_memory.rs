//! Tensors of bytes that batches are read into.

use std::ffi::c_void;

use tch::Tensor;
use tradewind_data::Pooled;

use super::{ffi, page_locked};
use crate::c10d::{C10dError, check};

/// What a column of a batch is read into.
pub struct BatchMemory(Memory);

enum Memory {
    Pooled(Pooled),
    /// A contiguous tensor of bytes that nobody else has: only [`BatchMemory::page_locked`] makes one.
    PageLocked(Tensor),
}

impl BatchMemory {
    /// Main memory, which goes back to its pool when no tensor uses it any more.
    pub fn pooled(memory: Pooled) -> Self {
        Self(Memory::Pooled(memory))
    }

    /// `bytes` of page-locked main memory, which a GPU copies from by itself.
    ///
    /// # Errors
    /// Memory that cannot be locked.
    pub fn page_locked(bytes: usize) -> Result<Self, C10dError> {
        Ok(Self(Memory::PageLocked(page_locked::bytes(bytes)?)))
    }

    /// The bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Pooled(memory) => memory,
            Memory::PageLocked(tensor) if tensor.numel() == 0 => &mut [],
            // SAFETY: contiguous bytes since it was made, of this length; nobody else has the tensor.
            Memory::PageLocked(tensor) => unsafe {
                std::slice::from_raw_parts_mut(tensor.data_ptr().cast(), tensor.numel())
            },
        }
    }

    /// A tensor of these bytes, which are not copied.
    ///
    /// # Errors
    /// libtorch's.
    pub fn into_tensor(self) -> Result<Tensor, C10dError> {
        match self.0 {
            Memory::Pooled(memory) if memory.is_empty() => {
                let empty = Tensor::f_empty([0], (tch::Kind::Uint8, tch::Device::Cpu));
                empty.map_err(super::torch("making a tensor of a batch"))
            }
            Memory::Pooled(memory) => bytes_of(memory),
            Memory::PageLocked(tensor) => Ok(tensor),
        }
    }
}

fn bytes_of(memory: Pooled) -> Result<Tensor, C10dError> {
    let (bytes, length, owner) = handed_over(memory);
    let mut tensor = std::ptr::null_mut();
    // SAFETY: the bytes are the owner's and stay where they are until it is freed, which the call does once, also if
    // it fails; nobody uses them otherwise. `tensor` outlives the call.
    check("making a tensor of a batch", unsafe {
        ffi::tradewind_bytes_of(bytes, length, free, owner, &mut tensor)
    })?;
    // SAFETY: the C side has made this handle for us.
    Ok(unsafe { Tensor::from_ptr(tensor.cast()) })
}

/// The bytes, how many there are, and their owner, which is [freed](free) when nothing uses them any more.
fn handed_over(memory: Pooled) -> (*mut c_void, usize, *mut c_void) {
    let mut owner = Box::new(memory);
    let (bytes, length) = (owner.as_mut_ptr().cast(), owner.len());
    (bytes, length, Box::into_raw(owner).cast())
}

/// # Safety
/// `owner` came from [`handed_over`] and is freed once; nothing uses its bytes any more.
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
        let tensor = BatchMemory::pooled(memory).into_tensor().unwrap();
        let numbers = tensor.f_view_dtype(tch::Kind::Float).unwrap();
        drop(tensor);
        assert_eq!(numbers.data_ptr().cast_const().cast(), address);
        assert_ne!(pool.take(8).unwrap().as_ptr(), address);
        assert_eq!(Vec::<f32>::try_from(&numbers).unwrap(), [1.0, 2.0]);
        drop(numbers);
        let mut again = [pool.take(8).unwrap(), pool.take(8).unwrap()];
        assert!(again.iter_mut().any(|memory| memory.as_ptr() == address));
    }

    /// What the C side does with it, in its place: nothing of libtorch is called, so that Miri can look.
    #[test]
    fn what_was_handed_over_is_used_until_it_is_freed() {
        let pool = Pool::default();
        let mut memory = pool.take(3).unwrap();
        memory.copy_from_slice(&[1, 2, 3]);
        let address = memory.as_ptr();
        let (bytes, length, owner) = handed_over(memory);
        // SAFETY: nobody else uses the bytes, which are the owner's until it is freed, once.
        unsafe {
            let bytes = std::slice::from_raw_parts_mut(bytes.cast::<u8>(), length);
            assert_eq!(*bytes, [1, 2, 3]);
            bytes.fill(7);
            free(owner);
        }
        assert_eq!(pool.take(3).unwrap().as_ptr(), address);
    }

    #[test]
    fn without_a_gpu_there_is_no_page_locked_memory() {
        let error = BatchMemory::page_locked(8).err().unwrap().to_string();
        assert!(error.contains("8 bytes of it cannot be had"), "{error}");
    }
}
