//! The memory of tensors.

use tch::{Device, Kind, Tensor};

use super::{C10dError, check, ffi};

/// Makes `gradient` the `.grad` of `tensor`: backward then adds into it in place. c10d refuses
/// another shape or type.
pub fn set_grad(tensor: &Tensor, gradient: &Tensor) -> Result<(), C10dError> {
    // SAFETY: both pointers are live tensors; libtorch takes its own reference.
    check("setting a gradient", unsafe {
        ffi::tradewind_set_grad(tensor.as_ptr().cast_mut().cast(), gradient.as_ptr().cast())
    })
}

/// The values of a contiguous f32 tensor in main memory; `None` for any other.
///
/// # Safety
/// A tensor's memory is not its own: views and other handles of it may exist, the model's own tensors
/// among them. While the slice is held, nothing changes it through them, on any thread: no in-place
/// operation, no backward.
pub unsafe fn values(tensor: &Tensor) -> Option<&[f32]> {
    let length = plain(tensor)?;
    // SAFETY: `plain` has checked type, place and contiguity; the tensor owns the memory and is
    // borrowed as long as the slice. That nobody writes is the caller's.
    Some(unsafe { std::slice::from_raw_parts(tensor.data_ptr().cast(), length) })
}

/// As [`values`], to be written.
///
/// # Safety
/// As for [`values`]; nothing reads the memory through other handles meanwhile either.
pub unsafe fn values_mut(tensor: &mut Tensor) -> Option<&mut [f32]> {
    let length = plain(tensor)?;
    // SAFETY: as in `values`. That nobody else reads or writes is the caller's.
    Some(unsafe { std::slice::from_raw_parts_mut(tensor.data_ptr().cast(), length) })
}

/// The length of a non-empty, contiguous f32 tensor in main memory.
fn plain(tensor: &Tensor) -> Option<usize> {
    let plain = tensor.defined()
        && tensor.f_kind().ok() == Some(Kind::Float)
        && tensor.device() == Device::Cpu
        && !tensor.is_sparse()
        && tensor.is_contiguous()
        && tensor.numel() > 0;
    plain.then(|| tensor.numel())
}
