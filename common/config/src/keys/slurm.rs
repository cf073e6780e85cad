//! How a run becomes jobs of Slurm: section `slurm`.

use super::{Section, int, key};
use crate::slurm::OWN;
use crate::value::Kind::{Bool, Text, TextsOrNone};

pub(super) fn sections() -> Vec<Section> {
    vec![slurm()]
}

fn slurm() -> Section {
    Section {
        name: "slurm",
        about: "Says how `tradewind slurm submit` makes jobs of a run: the servers are one component of a heterogeneous job, each group is another ([Slurm](slurm.md)). `tradewind run` does not use this section.",
        example: r#"[slurm]
options = ["--account=m1234"]
server_options = ["--constraint=cpu"]
group_options = ["--constraint=gpu"]
time_limit = "02:30:00"
rank_cpus = 32
rank_gpus = 1
"#,
        keys: vec![
            key("slurm.options", TextsOrNone, Some("[]"), own_options()),
            key(
                "slurm.server_options",
                TextsOrNone,
                Some("[]"),
                "Long options of `sbatch` for the component of the servers only, such as `\"--constraint=cpu\"`.",
            ),
            key(
                "slurm.group_options",
                TextsOrNone,
                Some("[]"),
                "Long options of `sbatch` for the component of each group only, such as `\"--constraint=gpu\"`.",
            ),
            key(
                "slurm.step_options",
                TextsOrNone,
                Some("[]"),
                "Long options of `srun` for every step of the job, such as `\"--cpu-bind=cores\"`.",
            ),
            key(
                "slurm.setup",
                TextsOrNone,
                Some("[]"),
                "Lines of the batch script that run before anything is started, such as `\"module load cudatoolkit\"` or `\"export NCCL_SOCKET_IFNAME=hsn\"`.",
            ),
            key(
                "slurm.time_limit",
                Text,
                Some("\"\""),
                "Time limit of the job in the form that `sbatch --time` takes, such as `\"02:30:00\"`. If empty, Slurm takes the partition's `DefaultTime`, or its `MaxTime` if it has none.",
            ),
            key(
                "slurm.requeue",
                Bool,
                Some("true"),
                "`true`: shortly before the time limit the run takes a last snapshot, its job goes back into the queue, and training goes on from the snapshot when the job starts again. `false`: the job ends after the snapshot.",
            ),
            key(
                "slurm.min_groups",
                int(0, 65_536),
                Some("0"),
                "0: all groups are in one job with the servers, which waits until there are nodes for all of them. N above 0: the first N groups are in the job of the servers; each of the others is a job of its own, and joins the run when that starts.",
            ),
            key(
                "slurm.servers_per_node",
                int(1, 1024),
                Some("1"),
                "Number of servers on a node. A node that is lost takes all of its servers along; the copies of a shard go to different nodes where there are several.",
            ),
            key(
                "slurm.server_cpus",
                int(1, 4096),
                Some("4"),
                "Number of CPUs for each server.",
            ),
            key(
                "slurm.ranks_per_node",
                int(0, 65_536),
                Some("0"),
                "Largest number of ranks of one group on a node. 0: no limit, all ranks of a group are on one node, which Slurm refuses if they do not fit.",
            ),
            key(
                "slurm.rank_cpus",
                int(1, 4096),
                Some("1"),
                "Number of CPUs for each rank (`--cpus-per-task`). libtorch computes with as many threads. Where nodes have hyper-threading, most sites count hardware threads here.",
            ),
            key(
                "slurm.rank_gpus",
                int(0, 64),
                Some("0"),
                "Number of GPUs for each rank (`--gpus-per-task`): 1 for `compute.device = \"cuda\"`, 0 for ranks that compute on CPUs.",
            ),
            key(
                "slurm.interface",
                Text,
                Some("\"\""),
                "Name of the network interface, such as `\"hsn0\"`, under whose address processes reach each other: for gRPC, for Gloo and for the rendezvous of a group. If empty, the address of the node's name is taken. NCCL goes by `NCCL_SOCKET_IFNAME`, see `slurm.setup`.",
            ),
        ],
    }
}

/// What `slurm.options` means; the options that it must not have are listed once.
fn own_options() -> &'static str {
    let own: Vec<String> = OWN.iter().map(|option| format!("`{option}`")).collect();
    format!(
        "Long options of `sbatch` for all components, such as `\"--account=m1234\"`. Refused here and in `slurm.server_options`, `slurm.group_options` and `slurm.step_options`, because they follow from other keys or hold the job together: {}.",
        own.join(", ")
    )
    .leak()
}
