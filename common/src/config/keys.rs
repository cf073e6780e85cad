//! Every configuration key, once: its type, range, default and meaning. The parser, the resolved
//! configuration and the table in the README are made from this list.

use super::value::Kind::{self, Bool, Choice, Float, Int, Ints, IntsOrNone, Pairs, Text, Texts};

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// `section.name`.
    pub name: &'static str,
    /// Type and range.
    pub kind: Kind,
    /// As TOML; `None` for a key that has to be given.
    pub default: Option<&'static str>,
    /// The `model.name` that it is for; with another one it has no effect and need not be given.
    pub task: Option<&'static str>,
    /// What it means, with its unit.
    pub meaning: &'static str,
}

const fn key(
    name: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    meaning: &'static str,
) -> Key {
    Key {
        name,
        kind,
        default,
        task: None,
        meaning,
    }
}

const fn forecast(key: Key) -> Key {
    Key {
        task: Some("forecast"),
        ..key
    }
}

const fn mnist(key: Key) -> Key {
    Key {
        task: Some("mnist"),
        ..key
    }
}

const fn resnet(key: Key) -> Key {
    Key {
        task: Some("resnet50"),
        ..key
    }
}

const fn int(min: i64, max: i64) -> Kind {
    Int { min, max }
}

const fn float(min: f64, max: f64) -> Kind {
    Float { min, max }
}

const MANY: i64 = 1_000_000_000_000;

/// All keys, by section.
pub const KEYS: &[Key] = &[
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
    key(
        "model.name",
        Choice(&["forecast", "mnist", "resnet50"]),
        Some("\"forecast\""),
        "the task: model, data, loss and metric; `mnist` learns handwritten digits, `resnet50` synthetic images",
    ),
    forecast(key(
        "model.channels",
        int(1, 1024),
        Some("16"),
        "channels of the hidden layers",
    )),
    forecast(key(
        "model.depth",
        int(0, 64),
        Some("3"),
        "residual convolutions between the first layer and the last",
    )),
    resnet(key(
        "model.blocks",
        Ints {
            min: 1,
            max: 64,
            length: Some(4),
        },
        Some("[3, 4, 6, 3]"),
        "bottleneck blocks of each of the four stages; the default is ResNet-50",
    )),
    resnet(key(
        "model.width",
        int(1, 1024),
        Some("64"),
        "channels of the first layer; the last stage has 32 times as many",
    )),
    forecast(key(
        "data.files",
        Texts,
        None,
        "NetCDF-4 or HDF5 files, relative to the configuration file",
    )),
    forecast(key(
        "data.variable",
        Text,
        None,
        "name of a variable of shape [time, y, x] in each file",
    )),
    forecast(key(
        "data.history",
        int(1, 1024),
        Some("8"),
        "time steps that the forecast sees",
    )),
    forecast(key(
        "data.validation",
        Ints {
            min: 0,
            max: MANY,
            length: Some(2),
        },
        None,
        "half-open range of time indices for validation; all before it are for training",
    )),
    forecast(key(
        "data.held_out",
        Ints {
            min: 0,
            max: MANY,
            length: Some(2),
        },
        None,
        "half-open range of time indices for the final metric",
    )),
    forecast(key(
        "data.time_origin",
        int(-MANY, MANY),
        Some("0"),
        "label of time index 0, such as a year",
    )),
    forecast(key(
        "data.step_name",
        Text,
        Some("\"step\""),
        "what a time step is called, such as `year`",
    )),
    forecast(key(
        "data.memory_bytes",
        int(0, MANY),
        Some("268435456"),
        "data up to this size are held in memory, larger ones are read as needed",
    )),
    mnist(key(
        "data.folder",
        Text,
        None,
        "folder of the four IDX files of MNIST, relative to the configuration file",
    )),
    resnet(key(
        "data.image_size",
        int(8, 1024),
        Some("224"),
        "height and width of the images, pixels",
    )),
    resnet(key(
        "data.classes",
        int(2, 65_536),
        Some("1000"),
        "kinds of images",
    )),
    resnet(key(
        "data.samples",
        int(1, 1_000_000_000),
        Some("12800"),
        "images for training; a tenth as many each for validation and for the final metric",
    )),
    key(
        "train.samples",
        int(1, MANY),
        None,
        "the budget: samples applied, summed over groups, after which the run ends",
    ),
    key(
        "train.batch",
        int(1, 1_000_000),
        Some("8"),
        "samples per rank and step",
    ),
    key(
        "train.batch_ramp",
        Pairs {
            min: [1, 2],
            max: [MANY, 1_000_000],
        },
        Some("[]"),
        "[samples, batch]: from steps on whose data begin behind so many samples, `train.batch` is this; increasing, each batch a multiple of the one before",
    ),
    key(
        "train.consistency",
        Choice(&["sync", "bounded", "async"]),
        Some("\"bounded\""),
        "when a shard applies a group's gradient",
    ),
    key(
        "train.staleness_bound",
        int(0, 1_000_000),
        Some("3"),
        "how many exchanges a group may lead the slowest (`bounded`)",
    ),
    key(
        "train.chunk_samples",
        int(0, MANY),
        Some("0"),
        "samples leased to a group at a time; 0 takes two steps of the largest group",
    ),
    key(
        "train.overlap",
        int(0, 1),
        Some("0"),
        "1 runs the exchange of a step behind the computation of the next, on values that are one exchange older",
    ),
    key(
        "train.backup_groups",
        int(0, 65_535),
        Some("0"),
        "under `sync`: so many groups are not waited for at a clock; what they bring later is dropped, and they go on with the others",
    ),
    key(
        "train.weights",
        Choice(&["samples", "groups"]),
        Some("\"samples\""),
        "how much each of several groups counts in one update: as its samples, or all the same",
    ),
    key(
        "merge.min_groups",
        int(1, 65_536),
        Some("1"),
        "under `bounded` and `async`: contributions that a block waits for and makes one update of",
    ),
    key(
        "merge.grace_ms_max",
        int(0, 600_000),
        Some("0"),
        "how long it waits for more when those are there, at most: two of the usual gaps between arrivals, or this",
    ),
    key(
        "merge.wait_ms_max",
        int(0, 600_000),
        Some("1000"),
        "how long it waits for merge.min_groups, at most",
    ),
    key(
        "staleness.policy",
        Choice(&["none", "scale", "drop", "compensate", "compensate-adaptive"]),
        Some("\"none\""),
        "what a shard does about a gradient by its delay τ, in updates: `scale` counts it 1/τ, `drop` leaves it out, the others bring it to the present values (docs/policies.md)",
    ),
    key(
        "staleness.drop_beyond",
        int(1, 1_000_000),
        Some("8"),
        "the smallest delay that `drop` leaves out",
    ),
    key(
        "staleness.lambda",
        float(0.0, 1e6),
        Some("0.04"),
        "λ of `compensate`; λ₀ of `compensate-adaptive`, where 2 is usual",
    ),
    key(
        "staleness.mean_square_decay",
        float(0.0, 0.999_999),
        Some("0.95"),
        "how slowly the mean square of `compensate-adaptive` forgets, an update",
    ),
    key(
        "momentum.policy",
        Choice(&["fixed", "lowered", "closed-loop"]),
        Some("\"fixed\""),
        "what optimizer.momentum is: the one of each update, or the total that asynchrony has a part in: `lowered` takes away the part of so many live groups, `closed-loop` measures and corrects (docs/policies.md)",
    ),
    key(
        "momentum.gain",
        float(0.0, 1.0),
        Some("0.01"),
        "part of the difference that `closed-loop` corrects at an update",
    ),
    key(
        "compute.device",
        Text,
        Some("\"auto\""),
        "`auto`, `cpu`, `cuda` or `cuda:N`: what ranks compute on; `auto` takes GPUs where a node has any, and `cuda` takes for each rank the GPU of its number on the node",
    ),
    key(
        "compute.precision",
        Choice(&["f32", "bf16", "fp16"]),
        Some("\"f32\""),
        "what forward and backward compute in where it is safe (autocast); parameters and gradients stay f32. `fp16` needs a GPU and scales the loss",
    ),
    key(
        "compute.tf32",
        Bool,
        Some("false"),
        "f32 products may round their factors to TF32 on a GPU",
    ),
    key(
        "compute.deterministic",
        Bool,
        Some("false"),
        "only algorithms whose bits repeat; an operation that has none ends the run",
    ),
    key(
        "compute.loss_scale",
        float(1.0, 16_777_216.0),
        Some("65536.0"),
        "first loss scale of `fp16`, a power of two; halved when gradients overflow",
    ),
    key(
        "compute.loss_scale_steps",
        int(1, 1_000_000),
        Some("2000"),
        "steps without overflow after which the loss scale is doubled",
    ),
    key(
        "optimizer.name",
        Choice(&[
            "sgd",
            "adam",
            "adamw",
            "lars",
            "larc",
            "outer-nesterov",
            "delayed-nesterov",
            "elastic",
        ]),
        Some("\"sgd\""),
        "what a shard does with a gradient; `elastic` is the centre of `local.algorithm = \"easgd\"`",
    ),
    key(
        "optimizer.learning_rate",
        float(0.0, 1e6),
        None,
        "learning rate at the end of the warm-up; with `local.algorithm` the constant rate of the outer updates, α of `elastic`",
    ),
    key(
        "optimizer.momentum",
        float(0.0, 0.999_999),
        Some("0.0"),
        "momentum of `sgd`, `lars`, `larc`, `outer-nesterov` and `delayed-nesterov`",
    ),
    key(
        "optimizer.nesterov",
        Bool,
        Some("false"),
        "Nesterov's form of the momentum of `sgd`",
    ),
    key(
        "optimizer.trust",
        float(0.0, 1e3),
        Some("0.001"),
        "η of `lars` and `larc`, more than 0: the length of a tensor's step over that of its values, at rate 1 (`larc`: whatever the rate, at most)",
    ),
    key(
        "optimizer.momentum_updates",
        int(1, 1_000_000),
        Some("1"),
        "updates between two of the momentum (`delayed-nesterov`); the number of groups is what its authors take",
    ),
    key(
        "optimizer.activation",
        float(0.0, 1.0),
        Some("0.0"),
        "part of the momentum that each update between them applies, at most 1 / `optimizer.momentum_updates`",
    ),
    key(
        "optimizer.weight_decay",
        float(0.0, 1e3),
        Some("0.0"),
        "L2 penalty, added to the gradient; of `adamw`: the part of the values, times the rate, that each update takes away",
    ),
    key(
        "optimizer.decay_exempt",
        Choice(&["none", "vectors"]),
        Some("\"none\""),
        "which tensors weight decay spares: `vectors` are those of at most one dimension, biases and the scales and shifts of normalisations",
    ),
    key(
        "optimizer.beta1",
        float(0.0, 0.999_999),
        Some("0.9"),
        "decay of the first moment of `adam` and `adamw`",
    ),
    key(
        "optimizer.beta2",
        float(0.0, 0.999_999_999),
        Some("0.999"),
        "decay of their second moment",
    ),
    key(
        "optimizer.epsilon",
        float(0.0, 1.0),
        Some("1e-8"),
        "their ε",
    ),
    key(
        "local.algorithm",
        Choice(&["none", "diloco", "easgd"]),
        Some("\"none\""),
        "what a group does between two exchanges: `none` exchanges the gradient of every step, `diloco` the way that its steps went, `easgd` its values (docs/policies.md)",
    ),
    key(
        "local.steps",
        int(1, 1_000_000),
        Some("1"),
        "steps of a group between two exchanges",
    ),
    key(
        "local.fitted",
        Bool,
        Some("false"),
        "slower groups take fewer, so that all exchange about as often; not under `sync`",
    ),
    key(
        "local.inner",
        Choice(&["auto", "adamw", "sgd"]),
        Some("\"auto\""),
        "optimizer of these steps; `auto` is `adamw` for `diloco` and `sgd` for `easgd`",
    ),
    key(
        "local.learning_rate",
        float(0.0, 1e6),
        Some("0.001"),
        "its rate at the end of the warm-up: with local steps it is what `schedule` shapes",
    ),
    key(
        "local.momentum",
        float(0.0, 0.999_999),
        Some("0.0"),
        "momentum of an inner `sgd`",
    ),
    key(
        "local.nesterov",
        Bool,
        Some("false"),
        "Nesterov's form of it",
    ),
    key(
        "local.beta1",
        float(0.0, 0.999_999),
        Some("0.9"),
        "decay of the first moment of an inner `adamw`",
    ),
    key(
        "local.beta2",
        float(0.0, 0.999_999_999),
        Some("0.999"),
        "decay of its second moment",
    ),
    key("local.epsilon", float(0.0, 1.0), Some("1e-8"), "its ε"),
    key(
        "local.weight_decay",
        float(0.0, 1e3),
        Some("0.0"),
        "weight decay of the inner steps, as the inner optimizer has it; spares what `optimizer.decay_exempt` says",
    ),
    key(
        "schedule.unit",
        Choice(&["samples", "updates"]),
        Some("\"samples\""),
        "what warm-up and decay count: applied samples, or updates of the servers",
    ),
    key(
        "schedule.warmup_samples",
        int(0, MANY),
        Some("0"),
        "applied samples over which the rate grows from 0",
    ),
    key(
        "schedule.warmup_updates",
        int(0, MANY),
        Some("0"),
        "the same in updates",
    ),
    key(
        "schedule.end_updates",
        int(0, MANY),
        Some("0"),
        "updates after which `cosine` and `polynomial` have ended; in samples they end with the budget",
    ),
    key(
        "schedule.decay",
        Choice(&["constant", "step", "cosine", "polynomial"]),
        Some("\"constant\""),
        "the rate after the warm-up",
    ),
    key(
        "schedule.milestones",
        IntsOrNone { min: 1, max: MANY },
        Some("[]"),
        "where `step` multiplies the rate, in `schedule.unit`, increasing",
    ),
    key(
        "schedule.gamma",
        float(0.0, 1.0),
        Some("0.1"),
        "by how much",
    ),
    key(
        "schedule.power",
        float(0.0, 100.0),
        Some("1.0"),
        "of `polynomial`, more than 0; 1 is a straight line",
    ),
    key(
        "schedule.floor",
        float(0.0, 1.0),
        Some("0.0"),
        "where `cosine` and `polynomial` end, as a fraction of the rate",
    ),
    key(
        "schedule.scaling",
        Choice(&["none", "linear", "sqrt"]),
        Some("\"none\""),
        "how the rate follows the samples of an update, over those of `schedule.reference_batch`",
    ),
    key(
        "schedule.reference_batch",
        int(0, MANY),
        Some("0"),
        "samples of an update at which `optimizer.learning_rate` holds, where it is scaled",
    ),
    key(
        "exchange.bucket_bytes",
        int(4, 1 << 32),
        Some("1048576"),
        "gradients fused into one reduction",
    ),
    key(
        "exchange.block_bytes",
        int(4, 64 << 20),
        Some("262144"),
        "largest block, the unit of placement and update",
    ),
    key(
        "exchange.connections",
        int(1, 64),
        Some("1"),
        "connections of a rank to each server",
    ),
    key(
        "exchange.per_bucket",
        Bool,
        Some("false"),
        "push each bucket as soon as it is reduced, while backward goes on, and skip alone what is not finite; excludes train.overlap = 1 and whatever needs the whole gradient first (a clip by its global norm, LARS, LARC)",
    ),
    key(
        "exchange.up",
        Choice(&["none", "bf16", "int8", "topk"]),
        Some("\"none\""),
        "compression of gradients, with error feedback",
    ),
    key(
        "exchange.down",
        Choice(&["none", "bf16", "int8", "topk"]),
        Some("\"none\""),
        "compression of fresh parameters, as differences to what a group holds",
    ),
    key(
        "exchange.topk_fraction",
        float(0.0, 1.0),
        Some("0.01"),
        "part of the values that `topk` sends",
    ),
    key(
        "liveness.lease_ms",
        int(100, 86_400_000),
        Some("10000"),
        "a rank or a server that has been silent for so long is dead",
    ),
    key(
        "liveness.heartbeat_ms",
        int(10, 86_400_000),
        Some("1000"),
        "pause between heartbeats; at most a third of the lease",
    ),
    key(
        "liveness.start_grace_ms",
        int(0, 86_400_000),
        Some("120000"),
        "how long clock 0 waits for all configured groups",
    ),
    key(
        "liveness.reform_grace_ms",
        int(0, 86_400_000),
        Some("5000"),
        "how long a group that has lost ranks waits for others in their place, before it goes on without",
    ),
    key(
        "liveness.retry_ms",
        int(0, 86_400_000),
        Some("60000"),
        "how long a rank tries to reach a shard or the coordinator again; at least two leases, for the second one may be a successor's",
    ),
    key(
        "liveness.snapshot_ms",
        int(0, 86_400_000),
        Some("60000"),
        "pause between two snapshots; 0 takes only the first and the last",
    ),
    key(
        "liveness.notice_ms",
        int(0, 86_400_000),
        Some("30000"),
        "how long the last snapshot may take when a run is asked to end",
    ),
    key(
        "pace.step_seconds",
        float(0.0, 3600.0),
        Some("0.0"),
        "the computation of each step lasts at least so long, so that a small machine can stand for a larger one; 0 is off",
    ),
    key(
        "stragglers.profile",
        Choice(&["none", "jitter", "pauses", "one-slow", "dying"]),
        Some("\"none\""),
        "ranks that are slow on purpose: `jitter` (every step log-normal, σ 0.1), `pauses` (1% of a rank's steps take ten times as long), `one-slow` (the last rank at half speed), `dying` (the last group stops for good half-way); a key below that is given wins over it",
    ),
    key(
        "stragglers.slow",
        Text,
        Some("\"\""),
        "groups and ranks (counted over all groups) whose steps take so many times as long, such as \"rank 7: 2, group 0: 1.5\"",
    ),
    key(
        "stragglers.jitter",
        float(0.0, 3.0),
        Some("0.0"),
        "σ of the logarithm of what each step of a rank is multiplied with",
    ),
    key(
        "stragglers.pause_rate",
        float(0.0, 1.0),
        Some("0.0"),
        "part of a rank's steps that take `stragglers.pause_factor` times as long",
    ),
    key(
        "stragglers.pause_factor",
        float(1.0, 1000.0),
        Some("10.0"),
        "how many times as long a step with a pause takes",
    ),
    key(
        "stragglers.spell_every",
        int(0, MANY),
        Some("0"),
        "steps of a rank from the beginning of one slow spell to the next; 0 for none",
    ),
    key(
        "stragglers.spell_steps",
        int(0, MANY),
        Some("0"),
        "steps that a slow spell lasts",
    ),
    key(
        "stragglers.spell_factor",
        float(1.0, 1000.0),
        Some("2.0"),
        "how many times as long a step takes in a slow spell",
    ),
    key(
        "evaluation.every_samples",
        int(0, MANY),
        Some("0"),
        "applied samples between two savings of the parameters, which are evaluated on the validation split after the run; 0 for none",
    ),
    key(
        "telemetry.prometheus",
        Text,
        Some("\"\""),
        "address:port of the first server's Prometheus endpoint, the next port for the next server; empty for none",
    ),
];

impl Key {
    /// The default as a value; `None` for a key that has to be given.
    pub fn default_value(&self) -> Option<super::Value> {
        let item = toml_edit::Item::Value(self.default?.parse().expect("defaults are TOML"));
        Some(self.kind.read(&item).expect("defaults are in range"))
    }
}

/// The key of this name.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The keys as a table in Markdown.
pub fn markdown() -> String {
    let mut table = String::from("| key | type | default | meaning |\n|---|---|---|---|\n");
    for key in KEYS {
        let default = key
            .default
            .map_or("required".to_owned(), |d| format!("`{d}`"));
        let Key {
            name,
            kind,
            meaning,
            ..
        } = key;
        let task = key
            .task
            .map_or(String::new(), |task| format!("(`{task}`) "));
        table += &format!("| `{name}` | {kind} | {default} | {task}{meaning} |\n");
    }
    table
}
