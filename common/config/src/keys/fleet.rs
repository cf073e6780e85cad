//! Who takes part: sections `run`, `cluster`, `servers` and `snapshots`.

use super::{Section, int, key};
use crate::value::Kind::{Ints, Text};

pub(super) fn sections() -> Vec<Section> {
    vec![run(), cluster(), servers(), snapshots()]
}

fn run() -> Section {
    Section {
        name: "run",
        about: "Names the run and fixes its randomness. Servers, ranks and the commands that look at a run know it by this name.",
        example: r#"[run]
name = "climate-1"
seed = 7
"#,
        keys: vec![
            key(
                "run.name",
                Text,
                None,
                "Name of the run. Its folder is `runs/NAME`, unless `--out` names another.",
            ),
            key(
                "run.seed",
                int(0, i64::MAX),
                Some("1"),
                "Seed of all randomness: initial values, order of the data, and slow steps of section `stragglers`. Under `train.consistency = \"sync\"` the same seed gives the same bits again.",
            ),
        ],
    }
}

fn cluster() -> Section {
    Section {
        name: "cluster",
        about: "Says how many processes there are: parameter servers, and groups of ranks. A rank is one worker process, on one GPU or some CPU cores; the ranks of a group train synchronously, as in PyTorch's DDP.",
        example: r#"[cluster]
servers = 2
groups = [4, 4]    # two groups of four ranks
"#,
        keys: vec![
            key(
                "cluster.servers",
                int(1, 1024),
                Some("1"),
                "Number of parameter servers. Each holds one part of the parameters, a shard; the first one also hosts the coordinator, which knows the members of the run.",
            ),
            key(
                "cluster.groups",
                Ints {
                    min: 1,
                    max: 65_536,
                    length: None,
                },
                Some("[1]"),
                "Number of ranks in each group: `[4, 4]` makes two groups of four ranks, `[8]` one group of eight.",
            ),
            key(
                "cluster.host",
                Text,
                Some("\"127.0.0.1\""),
                "Host name or IP address that servers and ranks listen on under `tradewind run`. Under Slurm `slurm.interface` takes its place.",
            ),
        ],
    }
}

fn servers() -> Section {
    Section {
        name: "servers",
        about: "Says how many copies of the parameters there are. [Faults](faults.md#what-is-promised) says what is lost in which case.",
        example: r#"[cluster]
servers = 2

[servers]
replication = 2    # each shard is on both servers
"#,
        keys: vec![],
    }
}

fn snapshots() -> Section {
    Section {
        name: "snapshots",
        about: "Says how many snapshots stay on disk; `liveness.snapshot_ms` says how often one is taken. [Snapshots](snapshots.md) describes their format.",
        example: r#"[snapshots]
kept = 5
"#,
        keys: vec![],
    }
}
