//! How the parts keep in touch, who is slow, and what is seen of it: sections `exchange`, `liveness`,
//! `faults`, `pace`, `stragglers`, `evaluation` and `telemetry`.

use super::{MANY, Section, float, int, key};
use crate::value::Kind::{Bool, Choice, Text};

pub(super) fn sections() -> Vec<Section> {
    vec![
        exchange(),
        liveness(),
        faults(),
        pace(),
        stragglers(),
        evaluation(),
        telemetry(),
    ]
}

fn exchange() -> Section {
    Section {
        name: "exchange",
        about: "Says how gradients travel to the servers and fresh parameters come back. [Performance](performance.md#settings-that-mattered) says which sizes mattered, [compression](compression.md) what the forms with fewer bytes keep.",
        example: r#"[exchange]
bucket_bytes = 4194304
up = "int8"
down = "bf16"
"#,
        keys: vec![
            key(
                "exchange.bucket_bytes",
                int(4, 1 << 32),
                Some("1048576"),
                "Size of a bucket in bytes: neighbouring parameters are collected until they have this size, and their gradients are averaged over the group together, as with `bucket_cap_mb` of DDP. The ranks of a group have the same; it may differ between groups, and when a run is resumed.",
            ),
            key(
                "exchange.block_bytes",
                int(4, 64 << 20),
                Some("262144"),
                "Largest size of a block in bytes. A block is a contiguous range of the parameters; parameters are placed on servers, sent and updated block by block. Where a block ends does not depend on buckets.",
            ),
            key(
                "exchange.connections",
                int(1, 64),
                Some("1"),
                "Number of network connections from a rank to each server. More help only where one core of a server cannot fill the link.",
            ),
            key(
                "exchange.per_bucket",
                Bool,
                Some("false"),
                "`true`: a rank sends each block as soon as the buckets that it has part of are averaged, while backward goes on, and of a gradient that is not finite only the blocks concerned are skipped. It cannot go with `train.overlap = 1`, `pace.step_seconds`, `local.algorithm` or `compute.precision = \"fp16\"`, nor with the optimizers `lars` and `larc`, which need the whole gradient first.",
            ),
            key(
                "exchange.up",
                Choice(&["none", "bf16", "int8", "topk"]),
                Some("\"none\""),
                "Form in which gradients travel to the servers; what a form leaves out is added to the next gradient (error feedback). `none`: f32, 4 bytes a value. `bf16`: 2 bytes. `int8`: about 1 byte. `topk`: only the largest values, 6 bytes each ([compression](compression.md)).",
            ),
            key(
                "exchange.down",
                Choice(&["none", "bf16", "int8", "topk"]),
                Some("\"none\""),
                "Form in which fresh parameters travel to the groups. `none`: the parameters as f32, 4 bytes a value. The other forms send differences to what the group has: `bf16` in 2 bytes a value, `int8` in about 1 byte, `topk` only the largest ones in 6 bytes each ([compression](compression.md)).",
            ),
            key(
                "exchange.topk_fraction",
                float(0.0, 1.0),
                Some("0.01"),
                "Fraction of the values of a block that `topk` sends, more than 0. Used only if `exchange.up` or `exchange.down` is `topk`.",
            ),
        ],
    }
}

fn liveness() -> Section {
    Section {
        name: "liveness",
        about: "Says how long a process may be silent before it counts as dead, how long others wait for it, and how often snapshots are taken. [Faults](faults.md#times-that-fit-together) says how these times fit together.",
        example: r#"[liveness]
lease_ms = 20000
heartbeat_ms = 2000
snapshot_ms = 600000    # every ten minutes
"#,
        keys: vec![
            key(
                "liveness.lease_ms",
                int(100, 86_400_000),
                Some("10000"),
                "Time in milliseconds after which a rank or a server that is silent counts as dead.",
            ),
            key(
                "liveness.heartbeat_ms",
                int(10, 86_400_000),
                Some("1000"),
                "Time in milliseconds between two heartbeats of a rank or a server, at most a third of `liveness.lease_ms`.",
            ),
            key(
                "liveness.start_grace_ms",
                int(0, 86_400_000),
                Some("120000"),
                "Longest time in milliseconds that the first exchange waits for all configured groups. Then the groups that are there begin.",
            ),
            key(
                "liveness.retry_ms",
                int(0, 86_400_000),
                Some("60000"),
                "Time in milliseconds for which a rank tries to reach a server or the coordinator again before it gives up; at least twice `liveness.lease_ms`, because the process that takes over may be lost, too.",
            ),
            key(
                "liveness.notice_ms",
                int(0, 86_400_000),
                Some("30000"),
                "Longest time in milliseconds for the last snapshot when a run is asked to end, by Ctrl-C, by SIGTERM or before the time limit of its job.",
            ),
        ],
    }
}

fn faults() -> Section {
    Section {
        name: "faults",
        about: "Says what a run does when updates are lost that servers had acknowledged. With `servers.replication` of 2 or more that takes the death of all holders of a shard ([faults](faults.md#what-is-promised)).",
        example: r#"[faults]
on_loss = "stop"
"#,
        keys: vec![],
    }
}

fn pace() -> Section {
    Section {
        name: "pace",
        about: "Slows computation down, so that in experiments a small machine can stand for a larger one. It is off by default, and real training leaves it off ([experiments](experiments.md#what-is-measured-and-how)).",
        example: r#"[pace]
step_seconds = 0.2
"#,
        keys: vec![key(
            "pace.step_seconds",
            float(0.0, 3600.0),
            Some("0.0"),
            "Least time in seconds that the computation of a step takes; a rank that is faster waits for the rest. 0 is off.",
        )],
    }
}

fn stragglers() -> Section {
    Section {
        name: "stragglers",
        about: "Makes ranks slow on purpose, for experiments ([experiments](experiments.md#stragglers)). A slow step lasts a multiple of `pace.step_seconds`, which therefore has to be above 0, except for `profile = \"dying\"`.",
        example: r#"[stragglers]
slow = "rank 0: 2"       # at half speed
pause_rate = 0.01

[pace]
step_seconds = 0.2
"#,
        keys: vec![
            key(
                "stragglers.profile",
                Choice(&["none", "jitter", "pauses", "one-slow", "dying"]),
                Some("\"none\""),
                "Ready-made set of slow ranks. `none`: no rank is slow. `jitter`: the time of every step varies (log-normal, σ = 0.1). `pauses`: 1 % of the steps of a rank take ten times as long. `one-slow`: the last rank has half the speed. `dying`: the last group ends for good when half of `train.samples` is applied; not under Slurm. Other keys of section `stragglers` take precedence where they are not at their defaults.",
            ),
            key(
                "stragglers.slow",
                Text,
                Some("\"\""),
                "Ranks and groups whose every step takes longer, each with the factor, such as `\"rank 7: 2, group 0: 1.5\"`. Ranks are counted over all groups.",
            ),
            key(
                "stragglers.among",
                Text,
                Some("\"\""),
                "Ranks and groups that have jitter, pauses and slow spells, such as `\"rank 7, group 0\"`; all of them if empty. Ranks are counted over all groups. Used only if `stragglers` has jitter, pauses or slow spells.",
            ),
            key(
                "stragglers.jitter",
                float(0.0, 3.0),
                Some("0.0"),
                "Standard deviation σ of the logarithm of the factor that the time of each step is multiplied by. 0 leaves it to `stragglers.profile`.",
            ),
            key(
                "stragglers.pause_rate",
                float(0.0, 1.0),
                Some("0.0"),
                "Fraction of the steps of a rank that take `stragglers.pause_factor` times as long. 0 leaves it to `stragglers.profile`.",
            ),
            key(
                "stragglers.pause_factor",
                float(1.0, 1000.0),
                Some("10.0"),
                "Factor by which a step with a pause takes longer. Used only if `stragglers.pause_rate` is above 0 or `stragglers.profile` is `pauses`.",
            ),
            key(
                "stragglers.spell_every",
                int(0, MANY),
                Some("0"),
                "Number of steps of a rank from the beginning of one slow spell to the beginning of the next. 0 is no slow spells.",
            ),
            key(
                "stragglers.spell_steps",
                int(0, MANY),
                Some("0"),
                "Number of steps in a row that a slow spell lasts, at most `stragglers.spell_every`.",
            ),
            key(
                "stragglers.spell_factor",
                float(1.0, 1000.0),
                Some("2.0"),
                "Factor by which a step in a slow spell takes longer.",
            ),
        ],
    }
}

fn evaluation() -> Section {
    Section {
        name: "evaluation",
        about: "Saves parameters during training, to evaluate them afterwards: the curve of validation over time. `tradewind experiment` sets this key itself.",
        example: r#"[evaluation]
every_samples = 500
"#,
        keys: vec![key(
            "evaluation.every_samples",
            int(0, MANY),
            Some("0"),
            "Number of applied samples between two savings of the parameters. They are evaluated on the validation part of the data after the run, and `validation.jsonl` has the results ([the folder of a run](run-folder.md#validationjsonl)). 0 saves none.",
        )],
    }
}

fn telemetry() -> Section {
    Section {
        name: "telemetry",
        about: "Publishes what servers measure while they run, for Prometheus. `metrics.jsonl` in the folder of the run has the metrics of training in any case.",
        example: r#"[telemetry]
prometheus = "127.0.0.1:9100"
"#,
        keys: vec![key(
            "telemetry.prometheus",
            Text,
            Some("\"\""),
            "Address and port at which the first server answers Prometheus, such as `\"127.0.0.1:9100\"`; each further server takes the next port. Under Slurm a server takes the first port from there on that is free. Nothing is published if empty.",
        )],
    }
}
