//! Runs as jobs of a real Slurm cluster: `make slurm-test` brings it up, as root.

mod experiment;
mod faults;
mod fleets;
mod groups;
mod jobs;
mod scripts;

use tradewind_tests::cluster::run::Run;

/// Servers on nodes with CPUs, groups on nodes with what stands for GPUs.
fn on_nodes(run: Run) -> Run {
    run.key("slurm.server_options", "[\"--constraint=cpu\"]")
        .key("slurm.group_options", "[\"--constraint=gpu\"]")
        .key("slurm.server_cpus", "2")
        .key("liveness.lease_ms", "3000")
        .key("liveness.heartbeat_ms", "300")
        .key("liveness.reform_grace_ms", "1000")
}

/// Two servers that are each other's copies, two groups of a rank each, no end in sight.
fn endless() -> Run {
    on_nodes(Run::endless())
        .key("cluster.servers", "2")
        .key("servers.replication", "2")
        .key("cluster.groups", "[1, 1]")
        .key("train.consistency", "\"async\"")
        .key("pace.step_seconds", "0.05")
}
