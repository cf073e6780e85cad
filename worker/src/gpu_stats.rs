//! What NVIDIA's management library (NVML) says of a rank's GPU, for its metrics.
//!
//! A thread of its own asks once a second: a call to the driver may take milliseconds, and the
//! training thread only reads the last answer. Without the library, or of a GPU that it does not
//! know, nothing is said; that is told once, at debug level.

use std::ffi::OsStr;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use tradewind_common::record::Gpu;
use tradewind_process::supervise_thread;

use crate::device::{DRIVER, see};

/// Where the system's loader finds NVML. The name without a number belongs to CUDA's toolkit, which
/// compute nodes lack.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// Pause between two looks at the GPU.
const PAUSE: Duration = Duration::from_secs(1);

/// Looks at a GPU until it is dropped.
#[derive(Debug)]
pub struct GpuStats {
    latest: Arc<Mutex<Option<Gpu>>>,
    /// `None` only while being dropped.
    until: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl GpuStats {
    /// Begins to look at what a rank computes on, if that is a GPU.
    pub fn of(device: tch::Device) -> Option<Self> {
        let tch::Device::Cuda(number) = device else {
            return None;
        };
        let seen = see(DRIVER);
        let gpu = seen.gpus().get(number)?;
        Some(Self::watch(LIBRARY.as_ref(), &text(gpu.uuid)))
    }

    /// Begins to look at the GPU of a UUID, with the NVML at `library`.
    fn watch(library: &OsStr, uuid: &str) -> Self {
        let latest = Arc::new(Mutex::new(None));
        let (until, dropped) = channel::<()>();
        let (library, uuid) = (library.to_owned(), uuid.to_owned());
        let seen = latest.clone();
        let look = move || {
            let see = |gpu| *seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(gpu);
            let more = || dropped.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout);
            if let Err(error) = look(&library, &uuid, see, more) {
                tracing::debug!("the metrics say nothing of GPU {uuid}: {error}");
            }
        };
        // It ends when it can tell nothing.
        let thread = supervise_thread("gpu-stats", look)
            .inspect_err(|error| tracing::debug!("the metrics say nothing of the GPU: {error}"));
        Self {
            latest,
            until: Some(until),
            thread: thread.ok(),
        }
    }

    /// As seen at most a second or so ago; `None` before the first look, and if there is none.
    pub fn latest(&self) -> Option<Gpu> {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for GpuStats {
    fn drop(&mut self) {
        self.until = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A UUID as NVML writes it, without the word before it.
fn text(uuid: [u8; 16]) -> String {
    let part = |bytes: std::ops::Range<usize>| -> String {
        let bytes = uuid[bytes].iter();
        bytes.map(|byte| format!("{byte:02x}")).collect()
    };
    [0..4, 4..6, 6..8, 8..10, 10..16].map(part).join("-")
}

/// Looks while `more`.
fn look(
    library: &OsStr,
    uuid: &str,
    see: impl Fn(Gpu),
    more: impl Fn() -> bool,
) -> Result<(), NvmlError> {
    let nvml = Nvml::builder().lib_path(library).init()?;
    // The driver names a part of a GPU by the part's own UUID.
    let device = nvml
        .device_by_uuid(format!("GPU-{uuid}"))
        .or_else(|_| nvml.device_by_uuid(format!("MIG-{uuid}")))?;
    loop {
        see(sample(&device)?);
        if !more() {
            return Ok(());
        }
    }
}

/// Memory of the device is what any look needs; the rest is left out where the driver knows none,
/// as utilisation of a part of a GPU (MIG), or processes seen from inside a container.
fn sample(device: &Device<'_>) -> Result<Gpu, NvmlError> {
    let memory = device.memory_info()?;
    let processes = device.running_compute_processes().unwrap_or_default();
    let own = processes.iter().find(|p| p.pid == std::process::id());
    let own = own.and_then(|process| match process.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(bytes),
        UsedGpuMemory::Unavailable => None,
    });
    let rates = device.utilization_rates().ok();
    Ok(Gpu {
        memory_bytes: own,
        device_memory_bytes: memory.used,
        device_memory_bytes_total: memory.total,
        utilization: rates.map(|rates| f64::from(rates.gpu) / 100.0),
    })
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const GIB: u64 = 1 << 30;

    /// A library with NVML's interface and fixed answers.
    fn fake(folder: &Path) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fake/nvidia_ml.c");
        let library = folder.join("libnvidia-ml.so.1");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o"]).arg(&library);
        assert!(cc.arg(&source).status().expect("a C compiler").success());
        library
    }

    #[test]
    fn a_gpu_is_seen_through_nvml() {
        let folder = tempfile::tempdir().unwrap();
        let library = fake(folder.path());
        let mut bytes = [0x44; 16];
        bytes[..10].copy_from_slice(&[0, 0, 0, 1, 0x11, 0x11, 0x22, 0x22, 0x33, 0x33]);
        let uuid = &text(bytes);
        assert_eq!(uuid, "00000001-1111-2222-3333-444444444444");
        let (looks, seen) = (AtomicU32::new(0), Mutex::new(Vec::new()));
        let more = || looks.fetch_add(1, Ordering::Relaxed) < 2;
        look(
            library.as_os_str(),
            uuid,
            |gpu| seen.lock().unwrap().push(gpu),
            more,
        )
        .unwrap();
        let want = Gpu {
            memory_bytes: Some(11 * GIB),
            device_memory_bytes: 12 * GIB,
            device_memory_bytes_total: 40 * GIB,
            utilization: Some(0.93),
        };
        assert_eq!(*seen.lock().unwrap(), [want; 3]);

        let stats = GpuStats::watch(library.as_os_str(), uuid);
        while stats.latest().is_none() {
            assert!(!stats.thread.as_ref().unwrap().is_finished());
            std::thread::yield_now();
        }
        assert_eq!(stats.latest(), Some(want));
    }

    #[test]
    fn nothing_is_said_without_nvml_or_of_a_gpu_that_it_does_not_know() {
        let folder = tempfile::tempdir().unwrap();
        let library = fake(folder.path());
        for (library, uuid) in [
            (folder.path().join("none.so"), "0"),
            (library, "ffffffff-1111-2222-3333-444444444444"),
        ] {
            let result = look(library.as_os_str(), uuid, |_| panic!("a look"), || true);
            assert!(result.is_err());
            let mut stats = GpuStats::watch(library.as_os_str(), uuid);
            stats.thread.take().unwrap().join().unwrap();
            assert_eq!(stats.latest(), None);
        }
    }
}
