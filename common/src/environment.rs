//! The variables of the environment that programs of Tradewind read: each name once. Whoever starts a
//! process sets them by these names, and the process reads them by the same.

/// The secret of a run's or a fleet's processes: calls show it. Arguments are seen by everybody on a
/// machine, the environment is not.
pub const TOKEN: &str = "TRADEWIND_TOKEN";

/// What a script that is a rank is to do: a JSON array of the arguments of a worker program.
pub const WORKER: &str = "TRADEWIND_WORKER";

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
