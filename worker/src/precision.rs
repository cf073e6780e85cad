//! Which libtorch a rank computes with, and how precisely: autocast around forward, the scale of the loss in f16, and
//! libtorch's settings for TF32 and for bits that repeat.
//!
//! Parameters, gradients, the loss and what shards hold are f32 whatever forward computes in.

mod ffi;
mod scaler;

use std::ffi::CStr;
use std::marker::PhantomData;
use std::ptr::NonNull;

use tch::Device;
use tradewind_config::{Compute, Precision};

use crate::c10d::{C10dError, check, made};

pub use scaler::LossScaler;

/// Sets how this process computes: TF32 for f32 products on a GPU, whether an operation whose
/// bits do not repeat is an error, and whether convolutions are tried. Before the first product on the device: cuBLAS reads its part
/// when it begins. Memory may be there already.
pub fn set_up(compute: &Compute, device: Device) -> Result<(), C10dError> {
    let tf32 = compute.tf32 && device.is_cuda();
    // SAFETY: plain numbers; libtorch's settings are read when operations begin.
    check("setting the precision", unsafe {
        ffi::tradewind_arithmetic(
            tf32.into(),
            compute.deterministic.into(),
            compute.autotune.into(),
        )
    })
}

/// libtorch's version, such as `2.11.0`.
pub fn libtorch_version() -> String {
    // SAFETY: a text that lives as long as the process.
    let text = unsafe { CStr::from_ptr(ffi::tradewind_libtorch()) };
    text.to_string_lossy().into_owned()
}

/// Runs `forward` with autocast as `precision` says; operations on `device` that are safe in fewer
/// bits then compute in them. What it was before is back when `forward` returns or panics.
pub fn autocast<T>(
    precision: Precision,
    device: Device,
    forward: impl FnOnce() -> T,
) -> Result<T, C10dError> {
    let _on = match precision {
        Precision::F32 => None,
        Precision::Bf16 => Some(Autocast::enter(device, ffi::BF16)?),
        Precision::Fp16 { .. } => Some(Autocast::enter(device, ffi::F16)?),
    };
    Ok(forward())
}

/// Autocast on this thread while it lives.
struct Autocast {
    before: NonNull<ffi::Autocast>,
    /// It belongs to the thread that made it.
    _here: PhantomData<*const ()>,
}

impl Autocast {
    fn enter(device: Device, kind: std::ffi::c_int) -> Result<Self, C10dError> {
        let device = if device.is_cuda() {
            ffi::CUDA
        } else {
            ffi::CPU
        };
        let mut out = std::ptr::null_mut();
        // SAFETY: `out` outlives the call.
        let message = unsafe { ffi::tradewind_autocast_enter(device, kind, &mut out) };
        Ok(Self {
            before: made("turning autocast on", message, out)?,
            _here: PhantomData,
        })
    }
}

impl Drop for Autocast {
    fn drop(&mut self) {
        // SAFETY: it came from `enter`, on this thread, and is given back once.
        unsafe { ffi::tradewind_autocast_leave(self.before.as_ptr()) }
    }
}

#[cfg(test)]
mod tests;
