//! What a rank computes on: chosen from what the configuration asks for and what the node shows.
//! libtorch's CUDA half is loaded here, at run time, where it is wanted.

mod choose;
#[cfg(test)]
mod double;
mod driver;
mod load;

use tch::{Device, Kind, Tensor};
use tradewind_config::{Compute, DeviceChoice};

use crate::c10d::{C10dError, without_stack};
use crate::stream;
pub use choose::ChooseError;
pub use driver::{DRIVER, Gpu, Seen, see};
pub use load::LoadError;

/// Why there is no device. Every message says what was found and the way out.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// None that fits.
    #[error(transparent)]
    Choose(#[from] ChooseError),
    /// There are GPUs, but libtorch cannot use them.
    #[error("{found} found, but {why}")]
    Load {
        /// How many GPUs.
        found: String,
        /// Why not.
        why: LoadError,
    },
    /// There are GPUs and libtorch's CUDA half, which cannot use them.
    #[error(
        "{found} found, but libtorch cannot use GPU {number}: {why} (the driver serves CUDA up to {}.{}; libtorch's must not be newer); update the driver, or set compute.device = \"cpu\"", cuda.0, cuda.1
    )]
    Unusable {
        /// How many GPUs.
        found: String,
        /// One that is wanted.
        number: usize,
        /// What libtorch says.
        why: String,
        /// The newest CUDA that the driver serves: major, minor.
        cuda: (u32, u32),
    },
    /// It cannot become the process's own.
    #[error(transparent)]
    Take(C10dError),
    /// f16 on the CPU.
    #[error(
        "compute.precision = \"fp16\" needs a GPU, and none was found: {why}; on the CPU take \"bf16\""
    )]
    Fp16 {
        /// What was found.
        why: String,
    },
}

/// What ranks of this node compute on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices {
    /// One for each rank that was asked about.
    pub devices: Vec<Device>,
    /// The name of each rank's GPU; empty on the CPU.
    pub gpus: Vec<String>,
}

/// Chooses the device of the rank that is `local_rank` on its node, and loads what libtorch needs
/// for it. To be called before the first tensor.
pub fn open(compute: &Compute, local_rank: u32) -> Result<Device, DeviceError> {
    let seen = look(compute);
    let device = choose::choose(compute.device, &seen, local_rank)?;
    if let Device::Cuda(number) = device
        && let Err(why) = driver::sleep_in_waits(DRIVER, number)
    {
        tracing::debug!("threads that wait for GPU {number} spin: {why}");
    }
    usable(compute, &seen, &[device])?;
    stream::take(device).map_err(DeviceError::Take)?;
    match (&seen, device) {
        (Seen::Gpus { gpus, .. }, Device::Cuda(number)) => {
            tracing::info!("computing on GPU {number}, {}", gpus[number].name);
        }
        (Seen::None { why }, _) if compute.device == DeviceChoice::Auto => {
            tracing::info!("computing on the CPU: {why}");
        }
        _ => tracing::info!("computing on the CPU"),
    }
    Ok(device)
}

/// The same for so many ranks that are started on this node and see the same GPUs.
pub fn open_all(compute: &Compute, ranks: u32) -> Result<Devices, DeviceError> {
    let seen = look(compute);
    let devices = choose::choose_all(compute.device, &seen, ranks)?;
    usable(compute, &seen, &devices)?;
    let name = |device: &Device| match device {
        Device::Cuda(number) => Some(seen.gpus()[*number].name.clone()),
        _ => None,
    };
    Ok(Devices {
        gpus: devices.iter().filter_map(name).collect(),
        devices,
    })
}

/// Who wants the CPU does not ask for a driver.
fn look(compute: &Compute) -> Seen {
    match compute.device {
        DeviceChoice::Cpu => Seen::None {
            why: "compute.device = \"cpu\"".into(),
        },
        _ => see(DRIVER),
    }
}

/// Loads what these devices need and sees whether libtorch can use them.
fn usable(compute: &Compute, seen: &Seen, devices: &[Device]) -> Result<(), DeviceError> {
    let Seen::Gpus { gpus, cuda } = seen else {
        return match seen {
            Seen::None { why } if compute.precision.scales_loss() => {
                Err(DeviceError::Fp16 { why: why.clone() })
            }
            Seen::None { .. } | Seen::Failing { .. } | Seen::Gpus { .. } => Ok(()),
        };
    };
    let found = || match gpus.len() {
        1 => "1 GPU was".into(),
        count => format!("{count} GPUs were"),
    };
    load::load().map_err(|why| DeviceError::Load {
        found: found(),
        why,
    })?;
    for device in devices {
        let Device::Cuda(number) = *device else {
            continue;
        };
        // The first use of it; asked how many there are, libtorch would not say why there are none.
        let used = Tensor::f_zeros([1], (Kind::Float, *device));
        drop(used.map_err(|error| DeviceError::Unusable {
            found: found(),
            number,
            why: without_stack(&error.to_string()),
            cuda: *cuda,
        })?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tradewind_config::Precision;

    use super::*;

    /// `auto` on a node without GPUs; one with some is the business of machines that have them.
    #[test]
    fn f16_needs_a_gpu() {
        let compute = |precision| Compute {
            device: DeviceChoice::Auto,
            precision,
            tf32: false,
            deterministic: false,
            autotune: false,
            channels_last: false,
        };
        let seen = Seen::None {
            why: "no NVIDIA driver".into(),
        };
        let fp16 = Precision::Fp16 {
            initial: 2.0,
            growth_steps: 1,
        };
        let error = usable(&compute(fp16), &seen, &[Device::Cpu]).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("compute.precision = \"fp16\" needs a GPU"),
            "{text}"
        );
        assert!(text.contains("no NVIDIA driver; on the CPU"), "{text}");
        usable(&compute(Precision::Bf16), &seen, &[Device::Cpu]).unwrap();
    }
}
