//! How a run becomes jobs of Slurm: section `slurm`.

use super::{Key, int, key};
use crate::value::Kind::{Bool, Text, TextsOrNone};

pub(super) const KEYS: &[Key] = &[
    key(
        "slurm.options",
        TextsOrNone,
        Some("[]"),
        "options of sbatch for every component, passed through, such as `\"--account=m1234\"`",
    ),
    key(
        "slurm.server_options",
        TextsOrNone,
        Some("[]"),
        "the same for the component of the servers, such as `\"--constraint=cpu\"`",
    ),
    key(
        "slurm.group_options",
        TextsOrNone,
        Some("[]"),
        "the same for the component of each group, such as `\"--constraint=gpu\"`",
    ),
    key(
        "slurm.step_options",
        TextsOrNone,
        Some("[]"),
        "options of srun for every step, passed through, such as `\"--cpu-bind=cores\"`",
    ),
    key(
        "slurm.setup",
        TextsOrNone,
        Some("[]"),
        "lines of the batch script before anything is started, such as `\"module load cudatoolkit\"`",
    ),
    key(
        "slurm.time_limit",
        Text,
        Some("\"\""),
        "as of sbatch's `--time`, such as \"02:30:00\"; the partition's if empty",
    ),
    key(
        "slurm.requeue",
        Bool,
        Some("true"),
        "shortly before the time limit take a last snapshot, and go on from it as soon as there are nodes",
    ),
    key(
        "slurm.min_groups",
        int(0, 65_536),
        Some("0"),
        "groups that are started together with the servers; the others are jobs of their own and join when they start; 0 for all",
    ),
    key(
        "slurm.servers_per_node",
        int(1, 1024),
        Some("1"),
        "servers on a node; copies of a shard go to different ones",
    ),
    key(
        "slurm.server_cpus",
        int(1, 4096),
        Some("4"),
        "CPUs of a server",
    ),
    key(
        "slurm.ranks_per_node",
        int(0, 65_536),
        Some("0"),
        "ranks of a group on a node; 0 for all of them on one",
    ),
    key("slurm.rank_cpus", int(1, 4096), Some("1"), "CPUs of a rank"),
    key("slurm.rank_gpus", int(0, 64), Some("0"), "GPUs of a rank"),
    key(
        "slurm.interface",
        Text,
        Some("\"\""),
        "network interface under whose address processes reach each other, such as \"hsn0\"; the address of the node's name if empty",
    ),
];
