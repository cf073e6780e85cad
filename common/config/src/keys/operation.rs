//! How the parts keep in touch, who is slow, and what is seen of it: sections `loader`, `liveness`,
//! `faults`, `pace`, `stragglers`, `evaluation` and `telemetry`.

use tradewind_common::straggler::Profile;

use super::{MANY, Section, chooser, float, int, key};
use crate::value::Kind::{Bool, Text};

pub(super) fn sections() -> Vec<Section> {
    vec![
        loader(),
        liveness(),
        faults(),
        pace(),
        stragglers(),
        evaluation(),
        telemetry(),
    ]
}

fn loader() -> Section {
    Section {
        name: "loader",
        about: "Says how the ranks of a built-in model, or of one of your own in Rust, read samples ahead of their use. A script has a loader of PyTorch for that, and follows `loader.sets` and `loader.deal_epochs`; where it reads files by [`tradewind.Samples`](pytorch.md#samples-in-files), `loader.cache`, `loader.cache_bytes` and `loader.damaged` as well.",
        example: r#"[loader]
readers = 4
batches_ahead = 8
bytes_ahead = 1073741824    # 1 GiB
"#,
        keys: vec![
            key(
                "loader.cache",
                Text,
                Some("\"\""),
                "A folder on each node's own disk, in which files of samples are kept that its ranks have read or are about to read ([data](data.md#files-on-a-nodes-own-disk)). An absolute path; `$NAME` at its beginning is an environment variable of the rank, as in `$TMPDIR/samples`. \"\" keeps none.",
            ),
            key(
                "loader.cache_bytes",
                int(0, MANY),
                Some("0"),
                "Most bytes of all files in `loader.cache`. Those that were used longest ago make room for others.",
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
        keys: vec![],
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
            chooser::<Profile>(
                "stragglers.profile",
                "\"none\"",
                (
                    "Ready-made set of slow ranks.",
                    " Other keys of section `stragglers` take precedence where they are not at their defaults.",
                ),
                &[],
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
        about: "Publishes what servers measure while they run, for [Prometheus](metrics.md), what groups write down, for [TensorBoard](watching.md#tensorboard), and who did what of each step, for [OpenTelemetry](watching.md#traces-of-steps). `metrics.jsonl` in the folder of the run has the metrics of training in any case.",
        example: r#"[telemetry]
prometheus = "127.0.0.1:9100"
tensorboard = true
otlp = "http://127.0.0.1:4317"
"#,
        keys: vec![
            key(
                "telemetry.prometheus",
                Text,
                Some("\"\""),
                "Address and port at which the first server answers Prometheus, such as `\"127.0.0.1:9100\"`; each further server takes the next port. Under Slurm a server takes the first port from there on that is free. Nothing is published if empty.",
            ),
            key(
                "telemetry.tensorboard",
                Bool,
                Some("false"),
                "Whether event files for TensorBoard are written while the run goes on, into `tensorboard/` in its folder.",
            ),
            key(
                "telemetry.otlp",
                Text,
                Some("\"\""),
                "Address of a collector of OpenTelemetry, such as `\"http://127.0.0.1:4317\"`: ranks and servers send it traces of all steps, over OTLP with gRPC. Nothing is sent if empty.",
            ),
        ],
    }
}
