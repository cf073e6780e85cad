//! Runs as jobs of a real Slurm cluster: `make slurm-test` brings it up, as root.

mod experiment;
mod faults;
mod fleets;
mod groups;
mod jobs;
mod scripts;
mod tls;

use std::process::Command;

use tradewind_tests::cluster::run::{Run, kill};
use tradewind_tests::cluster::slurm::Submitted;
use tradewind_tests::cluster::wait_for;

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
        .key("pace.step_seconds", "0.1")
}

/// Kills the process of one of the tasks of a component, `servers` or `group 1`; the task starts it again.
fn kill_process_of(submitted: &Submitted<'_>, component: &str) {
    // srun, which has the same words, begins with its own name.
    let out = submitted.out().display().to_string();
    let task = format!("^[^ ]*tradewind slurm task {out} {component}");
    let last = *pgrep(&["--full", &task]).last().expect("a task");
    pgrep(&["--parent", &last.to_string()])
        .into_iter()
        .for_each(kill);
}

/// Processes on any node: all of them are on this machine.
fn pgrep(arguments: &[&str]) -> Vec<u32> {
    let output = Command::new("pgrep").args(arguments).output();
    let told = String::from_utf8(output.expect("pgrep runs").stdout).expect("numbers");
    told.lines()
        .map(|pid| pid.parse().expect("a number"))
        .collect()
}

/// Waits for the second life of a server.
fn a_server_is_up_again(submitted: &Submitted<'_>) {
    wait_for("the next life of a server", || {
        let told = submitted.status();
        let mut rows = told.lines().map(str::split_whitespace);
        rows.any(|mut row| row.nth(1) == Some("up") && row.next() == Some("2"))
            .then_some(())
    });
}
