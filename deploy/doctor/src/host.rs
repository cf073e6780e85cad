//! The processor, limits, and the variables that decide how ranks compute and talk.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use tradewind_common::environment;

use super::system::System;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Host {
    pub(super) cpu: Option<String>,
    pub(super) cores: usize,
    /// Of `amx_bf16`, `avx512_bf16` (and on Arm `bf16`): what makes bf16 fast on the CPU.
    pub(super) bf16: Vec<String>,
    /// How much memory a process may lock; `null` for no limit.
    pub(super) memory_lock_bytes: Option<u64>,
    pub(super) environment: BTreeMap<String, String>,
}

/// Features that the kernel names and libtorch's bf16 uses.
const BF16: [&str; 3] = ["amx_bf16", "avx512_bf16", "bf16"];

/// Beginnings of the names that matter, none of which holds a secret.
const PREFIXES: [&str; 6] = [
    "NCCL_",
    "TORCH_NCCL_",
    "FI_",
    "CUDA_VISIBLE_DEVICES",
    "OFI_NCCL_",
    "NVTX_INJECTION",
];

/// Names that matter.
const NAMES: [&str; 8] = [
    "CUDA_DEVICE_ORDER",
    "CUDA_HOME",
    "CUDA_LAUNCH_BLOCKING",
    "LD_LIBRARY_PATH",
    "PYTORCH_CUDA_ALLOC_CONF",
    environment::SLURM_LOCALID,
    environment::NCCL,
    environment::NVTX,
];

impl Host {
    pub(super) fn look(system: &System) -> Self {
        let text = system.read("proc/cpuinfo").unwrap_or_default();
        let values = |name: &'static str| {
            let lines = text.lines().filter_map(|line| line.split_once(':'));
            let own = lines.filter(move |(k, _)| k.trim() == name);
            own.map(|(_, v)| v.trim())
        };
        let flags = values("flags").chain(values("Features")).next();
        let flags: BTreeSet<&str> = flags.unwrap_or_default().split_whitespace().collect();
        let matters = |name: &String| {
            PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || NAMES.contains(&name.as_str())
        };
        let variables = system.environment.iter();
        let variables = variables.filter(|(name, _)| matters(name));
        Self {
            cpu: values("model name").next().map(str::to_owned),
            cores: values("processor").count(),
            bf16: BF16
                .into_iter()
                .filter(|feature| flags.contains(feature))
                .map(str::to_owned)
                .collect(),
            memory_lock_bytes: memory_lock(&system.read("proc/self/limits").unwrap_or_default()),
            environment: variables.map(|(k, v)| (k.clone(), v.clone())).collect(),
        }
    }
}

/// The soft limit of the line `Max locked memory  SOFT  HARD  bytes`.
fn memory_lock(limits: &str) -> Option<u64> {
    let mut lines = limits.lines();
    let rest = lines.find_map(|line| line.strip_prefix("Max locked memory"))?;
    rest.split_whitespace().next()?.parse().ok()
}
