//! What crosses processes, and what needs a world around it: one binary.

/// The command that a person types.
mod cli;
/// The forecaster trained with compressed exchanges beside plain ones.
mod convergence;
/// The cost model beside what is counted.
mod cost;
/// Training through servers beside plain loops.
mod equality;
/// Servers, ranks, ways and disks that fail.
mod faults;
/// The path to GPUs, over ones that are played in main memory.
mod gpu;
/// The check of GPU machines, on the CPU.
mod gpu_check;
/// Steps between exchanges.
mod local;
/// Handwritten digits.
mod mnist;
/// The ranges of a step, as a profiler sees them.
mod nvtx;
/// The shard's optimizers beside libtorch's.
mod optimizer;
/// Exchanges behind the next step.
mod overlap;
/// What a machine can keep of the house rules.
mod packages;
/// Samples in files of one's own.
mod replay;
/// Every call as a foreign client makes it, and every one that is refused.
mod rpc;
/// Releases that are signed.
mod signed_release;
/// Jobs of a real Slurm cluster.
mod slurm;
/// The staleness bound under a slow group.
mod staleness;
mod tidy;
