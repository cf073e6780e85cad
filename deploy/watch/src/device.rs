//! The GPUs of a run's groups, as their first ranks wrote them down last.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use serde::Serialize;
use tradewind_common::record::{Gpu, StepRecord};

use tradewind_folder::lines::Metrics;

/// What the last record of a group says of its hardware.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Device {
    pub(crate) group: u32,
    pub(crate) gpu: Option<Gpu>,
    /// Bus bandwidth of its reductions.
    pub(crate) reduce_bytes_per_second: Option<f64>,
}

/// Reads `metrics.jsonl` as it grows.
#[derive(Debug)]
pub(crate) struct Devices {
    metrics: Metrics,
    latest: BTreeMap<u32, Device>,
}

impl Devices {
    /// Of the run in `folder`.
    pub(crate) fn new(folder: &Path) -> Self {
        Self {
            metrics: Metrics::new(folder.join("metrics.jsonl")),
            latest: BTreeMap::new(),
        }
    }

    /// Those that have been told of, by group. What cannot be read is left out.
    pub(crate) fn look(&mut self) -> Vec<Device> {
        let Self { metrics, latest } = self;
        let _ = metrics.each(|record| take_in(latest, &record));
        self.latest.values().copied().collect()
    }
}

fn take_in(latest: &mut BTreeMap<u32, Device>, record: &StepRecord) {
    let device = Device {
        group: record.group,
        gpu: record.gpu,
        reduce_bytes_per_second: record.reduce_bytes_per_second,
    };
    if device.gpu.is_some() || device.reduce_bytes_per_second.is_some() {
        latest.insert(record.group, device);
    } else {
        // Its first rank went on without.
        latest.remove(&record.group);
    }
}

/// A line for a group: `group 0: GPU memory 12 of 139 GiB, 93 % busy, reductions at 41.2 GB/s`.
pub(crate) fn line(device: &Device) -> String {
    let mut parts = Vec::new();
    if let Some(gpu) = &device.gpu {
        let gib = |bytes: u64| (bytes as f64 / f64::from(1 << 30)).round();
        let mut text = format!(
            "GPU memory {} of {} GiB",
            gib(gpu.device_memory_bytes),
            gib(gpu.device_memory_bytes_total)
        );
        if let Some(busy) = gpu.utilization {
            let _ = write!(text, ", {:.0} % busy", 100.0 * busy);
        }
        parts.push(text);
    }
    if let Some(rate) = device.reduce_bytes_per_second {
        parts.push(format!("reductions at {:.3} GB/s", rate / 1e9));
    }
    format!("group {}: {}", device.group, parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_told_with_what_is_known() {
        let gpu = Gpu {
            memory_bytes: None,
            device_memory_bytes: 12_600_000_000,
            device_memory_bytes_total: 149_200_000_000,
            utilization: Some(0.93),
        };
        let check = |gpu, reduce_bytes_per_second, want: &str| {
            let device = Device {
                group: 1,
                gpu,
                reduce_bytes_per_second,
            };
            assert_eq!(line(&device), want);
        };
        let all = "group 1: GPU memory 12 of 139 GiB, 93 % busy, reductions at 41.200 GB/s";
        check(Some(gpu), Some(41.2e9), all);
        let unknown = Gpu {
            utilization: None,
            ..gpu
        };
        check(Some(unknown), None, "group 1: GPU memory 12 of 139 GiB");
        check(None, Some(2.5e6), "group 1: reductions at 0.003 GB/s");
    }

    #[test]
    fn the_last_record_of_a_group_counts() {
        let folder = tempfile::tempdir().unwrap();
        let mut devices = Devices::new(folder.path());
        assert_eq!(devices.look(), []);
        let row = |group: u32, more: &str| {
            format!(
                r#"{{"wall":1.0,"group":{group},"clock":0,"loss":1.0,"samples":8,"samples_applied":8,"updates":1,"lag":0,"delay":0,"skipped":false,"buckets_skipped":0,"overflowed":false,"loss_scale":null,"compute_seconds":1.0,"reduce_seconds":0.0,"exchange_seconds":0.0,"exposed_seconds":0.0,"wait_seconds":0.0{more}}}"#
            ) + "\n"
        };
        let gpu = |used: u64| {
            format!(r#","gpu":{{"device_memory_bytes":{used},"device_memory_bytes_total":9}}"#)
        };
        let rows = [
            row(1, &gpu(3)),
            row(0, &gpu(1)),
            row(0, &gpu(2)),
            row(2, ""),
        ];
        std::fs::write(folder.path().join("metrics.jsonl"), rows.concat()).unwrap();
        let told = |devices: Vec<Device>| -> Vec<(u32, u64)> {
            let used = |d: Device| (d.group, d.gpu.unwrap().device_memory_bytes);
            devices.into_iter().map(used).collect()
        };
        assert_eq!(told(devices.look()), [(0, 2), (1, 3)]);
        let rows = rows.concat() + &row(1, "");
        std::fs::write(folder.path().join("metrics.jsonl"), rows).unwrap();
        assert_eq!(told(devices.look()), [(0, 2)]);
    }
}
