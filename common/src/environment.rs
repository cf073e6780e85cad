//! The variables of the environment that programs of Tradewind read: each name once. Whoever starts a
//! process sets them by these names, and the process reads them by the same.

/// The secret of a run's or a fleet's processes: calls show it. Arguments are seen by everybody on a
/// machine, the environment is not.
pub const TOKEN: &str = "TRADEWIND_TOKEN";

/// Under TLS, what a process shows besides: its private key, its certificate and that of the authority, as PEM, and perhaps
/// a line that says where they are renewed. Empty, or not set: no TLS is spoken.
pub const CERTIFICATE: &str = "TRADEWIND_CERTIFICATE";

/// What is logged, as a filter of `tracing`; `info` if it is not set.
pub const LOG: &str = "TRADEWIND_LOG";

/// The library with which groups on GPUs speak NCCL.
pub const NCCL: &str = "TRADEWIND_NCCL";

/// `0` keeps NVIDIA's profilers from being told of ranges.
pub const NVTX: &str = "TRADEWIND_NVTX";

/// OpenMP's: threads of a process for what libtorch computes.
pub const OMP_NUM_THREADS: &str = "OMP_NUM_THREADS";

/// Slurm's: number of a task among those of its node.
pub const SLURM_LOCALID: &str = "SLURM_LOCALID";

/// Where a rank is a person's own script: the arguments that `tradewind-worker` would have on its command
/// line, as a JSON list of words.
pub const WORKER: &str = "TRADEWIND_WORKER";

/// Variables with which Slurm, MPI or `torchrun` number the processes that they start, and beginnings of
/// such. Accelerate, Lightning and others take them for the ranks of the script; but Tradewind numbers those.
const OF_LAUNCHERS: &[&str] = &[
    "GROUP_RANK",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "MPI_LOCAL*",
    "MV2_COMM_*",
    "NODE_RANK",
    "OMPI_COMM_*",
    "PMI_*",
    "PMIX_*",
    "RANK",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_NPROCS",
    "SLURM_NTASKS*",
    "SLURM_PROCID",
    "SLURM_STEP*",
    "SLURM_TASK*",
    "TORCHELASTIC_*",
    "WORLD_SIZE",
];

/// Whether a variable numbers the processes of another launcher, so that a script is not to see it.
pub fn is_of_launcher(variable: &str) -> bool {
    OF_LAUNCHERS.iter().any(|of| match of.strip_suffix('*') {
        Some(begin) => variable.starts_with(begin),
        None => variable == *of,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_numbers_processes_is_told_from_what_does_not() {
        let hidden = ["RANK", "PMI_RANK", "SLURM_PROCID", "SLURM_STEP_NODELIST"];
        for name in hidden {
            assert!(is_of_launcher(name), "{name}");
        }
        for name in [
            "PATH",
            "RANKS",
            "SLURM_JOB_ID",
            "SLURM_CPUS_PER_TASK",
            TOKEN,
            WORKER,
        ] {
            assert!(!is_of_launcher(name), "{name}");
        }
    }
}
