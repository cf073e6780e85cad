//! How the parts keep in touch, who is slow, and what is seen of it: sections `exchange`, `liveness`,
//! `faults`, `pace`, `stragglers`, `evaluation` and `telemetry`.

use super::{Key, MANY, float, int, key};
use crate::value::Kind::{Bool, Choice, Text};

pub(super) const KEYS: &[Key] = &[
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
        "push each bucket as soon as it is reduced, while backward goes on, and skip alone what is not finite; excludes train.overlap = 1, pace.step_seconds, local.algorithm, and LARS and LARC, which need the whole gradient first",
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
        "liveness.patience_ms",
        int(0, 86_400_000),
        Some("60000"),
        "how long a server that is silent, and may still hold the newest values of a shard, is waited for before the shard is restored from a snapshot without it; longer than the lease",
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
        "faults.on_loss",
        Choice(&["auto", "continue", "stop"]),
        Some("\"auto\""),
        "what a run does when updates that it had acknowledged are lost: restore a snapshot and `continue`, or `stop` with its folder as it is, so that resuming it is consent; `auto`: continue with `servers.replication = 1`, stop with more",
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
        "ranks that are slow on purpose: `jitter` (every step log-normal, σ 0.1), `pauses` (1% of a rank's steps take ten times as long), `one-slow` (the last rank at half speed), `dying` (the last group stops for good half-way); a key below wins over it where it is not at its default",
    ),
    key(
        "stragglers.slow",
        Text,
        Some("\"\""),
        "groups and ranks (counted over all groups) whose steps take so many times as long, such as \"rank 7: 2, group 0: 1.5\"",
    ),
    key(
        "stragglers.among",
        Text,
        Some("\"\""),
        "groups and ranks to whom jitter, pauses and spells happen, such as \"rank 7, group 0\"; everyone if empty",
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
