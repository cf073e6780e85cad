//! Who takes part: sections `run`, `cluster`, `servers` and `snapshots`.

use super::{Section, int, key};
use crate::cluster;
use crate::value::Kind::Text;

pub(super) fn sections() -> Vec<Section> {
    vec![run(), cluster::section(), servers(), snapshots()]
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
