//! How a run becomes jobs of Slurm: section `slurm`.

use super::{Section, int, key};
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
            key(
                "slurm.options",
                TextsOrNone,
                Some("[]"),
                "Long options of `sbatch` for all components, such as `\"--account=m1234\"`. Options that follow from other keys, such as `--nodes`, are refused.",
            ),
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
                "Lines of the batch script that run before anything is started, such as `\"module load cudatoolkit\"`.",
            ),
            key(
                "slurm.time_limit",
                Text,
                Some("\"\""),
                "Time limit of the job in the form that `sbatch --time` takes, such as `\"02:30:00\"`. The limit of the partition holds if empty.",
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
                "Number of groups that are in one job with the servers and start together with them. Each of the others is a job of its own and joins the run when it starts. 0 puts all groups into the job of the servers.",
            ),
            key(
                "slurm.servers_per_node",
                int(1, 1024),
                Some("1"),
                "Number of servers on a node. The copies of a shard go to different nodes where there are several.",
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
                "Largest number of ranks of one group on a node. 0 puts all ranks of a group on one node.",
            ),
            key(
                "slurm.rank_cpus",
                int(1, 4096),
                Some("1"),
                "Number of CPUs for each rank, and of the threads that libtorch computes with.",
            ),
            key(
                "slurm.rank_gpus",
                int(0, 64),
                Some("0"),
                "Number of GPUs for each rank; 0 for ranks that compute on CPUs.",
            ),
            key(
                "slurm.interface",
                Text,
                Some("\"\""),
                "Name of the network interface under whose address processes reach each other, such as `\"hsn0\"`. The address of the node's name is taken if empty.",
            ),
        ],
    }
}
