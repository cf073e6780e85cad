//! Who takes part: sections `run`, `cluster`, `servers` and `snapshots`.

use super::{Key, int, key};
use crate::value::Kind::{Ints, Text};

pub(super) const KEYS: &[Key] = &[
    key(
        "run.name",
        Text,
        None,
        "name of the run, and of its folder under `runs/`",
    ),
    key(
        "run.seed",
        int(0, i64::MAX),
        Some("1"),
        "all randomness follows from it",
    ),
    key(
        "cluster.servers",
        int(1, 1024),
        Some("1"),
        "parameter servers; the first hosts the coordinator",
    ),
    key(
        "cluster.groups",
        Ints {
            min: 1,
            max: 65_536,
            length: None,
        },
        Some("[1]"),
        "ranks of each group",
    ),
    key(
        "cluster.host",
        Text,
        Some("\"127.0.0.1\""),
        "host name or address that the processes listen on",
    ),
    key(
        "servers.replication",
        int(1, 16),
        Some("1"),
        "servers that hold each shard; with 2 or more nothing acknowledged is lost when one dies",
    ),
    key(
        "snapshots.kept",
        int(1, 1000),
        Some("3"),
        "snapshots that are kept; older ones are deleted",
    ),
];
