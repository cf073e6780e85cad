//! NVIDIA's driver and the GPUs, as its management library (NVML) sees them.

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml, cuda_driver_version_major, cuda_driver_version_minor};
use serde::Serialize;

use super::places::{Place, place};
use super::system::System;

/// The driver, and what it drives.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Driver {
    /// The kernel module is loaded.
    pub(super) loaded: bool,
    pub(super) version: Option<String>,
    /// Newest CUDA that it supports: major, minor.
    pub(super) cuda: Option<(u32, u32)>,
    pub(super) gpus: Vec<Gpu>,
    /// Why NVML says nothing.
    pub(super) error: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Gpu {
    pub(super) name: String,
    pub(super) uuid: String,
    pub(super) memory_bytes: u64,
    pub(super) memory_used_bytes: u64,
    /// Error correction; `null` where the GPU has none.
    pub(super) ecc: Option<bool>,
    /// Cut into parts (Multi-Instance GPU); `null` where it cannot be.
    pub(super) mig: Option<bool>,
    /// `CUDA_VISIBLE_DEVICES` leaves it visible.
    pub(super) visible: bool,
    pub(super) place: Place,
}

impl Driver {
    pub(super) fn look(system: &System) -> Self {
        let file = system.read("proc/driver/nvidia/version");
        let own = Self {
            loaded: file.is_some(),
            version: file.as_deref().and_then(version),
            ..Self::default()
        };
        match ask(system) {
            Ok(driver) => Self {
                loaded: own.loaded,
                ..driver
            },
            Err(error) => Self {
                error: Some(error.to_string()),
                ..own
            },
        }
    }

    /// GPUs that processes of this environment see.
    pub(super) fn visible(&self) -> usize {
        self.gpus.iter().filter(|gpu| gpu.visible).count()
    }
}

/// Of the line `NVRM version: NVIDIA UNIX … Kernel Module  580.65.06  …`.
fn version(file: &str) -> Option<String> {
    let mut words = file.lines().next()?.split_whitespace();
    let numbers =
        |word: &&str| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit());
    words.find(numbers).map(str::to_owned)
}

fn ask(system: &System) -> Result<Driver, NvmlError> {
    let nvml = Nvml::builder().lib_path(&system.nvml).init()?;
    let cuda = nvml.sys_cuda_driver_version()?;
    let mut gpus = Vec::new();
    for index in 0..nvml.device_count()? {
        gpus.push(gpu(system, &nvml.device_by_index(index)?)?);
    }
    if let Some(list) = system.variable("CUDA_VISIBLE_DEVICES") {
        hide(list, &mut gpus);
    }
    Ok(Driver {
        loaded: true,
        version: Some(nvml.sys_driver_version()?),
        cuda: Some((
            cuda_driver_version_major(cuda) as u32,
            cuda_driver_version_minor(cuda) as u32,
        )),
        gpus,
        error: None,
    })
}

fn gpu(system: &System, device: &Device<'_>) -> Result<Gpu, NvmlError> {
    let pci = device.pci_info().ok();
    let memory = device.memory_info()?;
    Ok(Gpu {
        name: device.name()?,
        uuid: device.uuid()?,
        memory_bytes: memory.total,
        memory_used_bytes: memory.used,
        ecc: device
            .is_ecc_enabled()
            .ok()
            .map(|ecc| ecc.currently_enabled),
        mig: device.mig_mode().ok().map(|mig| mig.current == 1),
        visible: true,
        place: pci.map_or_else(Place::default, |pci| place(system, &pci.bus_id)),
    })
}

/// Leaves visible what CUDA does: numbers or beginnings of UUIDs, up to the first that is wrong.
fn hide(list: &str, gpus: &mut [Gpu]) {
    let mut visible = vec![false; gpus.len()];
    for item in list.split(',').map(str::trim) {
        let at = match item.parse::<usize>() {
            Ok(number) => Some(number).filter(|number| *number < gpus.len()),
            // A part of a GPU stands under the GPU's own UUID only in its name for NVML.
            Err(_) if item.is_empty() => None,
            Err(_) => gpus.iter().position(|gpu| gpu.uuid.starts_with(item)),
        };
        let Some(at) = at else { break };
        visible[at] = true;
    }
    for (gpu, visible) in gpus.iter_mut().zip(visible) {
        gpu.visible = visible;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_devices_are_read_as_cuda_reads_them() {
        let gpu = |number| Gpu {
            name: "G".into(),
            uuid: format!("GPU-{number}abc"),
            memory_bytes: 1,
            memory_used_bytes: 0,
            ecc: None,
            mig: None,
            visible: true,
            place: Place::default(),
        };
        let check = |list: &str, want: [bool; 3]| {
            let mut gpus = [gpu(0), gpu(1), gpu(2)];
            hide(list, &mut gpus);
            assert_eq!(gpus.map(|gpu| gpu.visible), want, "{list:?}");
        };
        check("0,1,2", [true, true, true]);
        check("2", [false, false, true]);
        check(" 1, GPU-2", [false, true, true]);
        check("1,-1,2", [false, true, false]);
        check("0,7,1", [true, false, false]);
        check("", [false, false, false]);
        check("GPU-9", [false, false, false]);
    }

    #[test]
    fn the_modules_version_is_found() {
        let check = |file: &str, want: Option<&str>| assert_eq!(version(file).as_deref(), want);
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.06  Wed Jun 26 06:46:07 UTC 2024\nGCC version: 12.3.0";
        check(closed, Some("535.183.06"));
        let open =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build";
        check(open, Some("580.65.06"));
        check("", None);
    }
}
