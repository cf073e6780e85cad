//! How an update comes about: sections `train`, `merge`, `staleness` and `momentum`.

use super::{Key, MANY, float, int, key};
use crate::value::Kind::{Choice, Pairs};

pub(super) const KEYS: &[Key] = &[
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
        "samples leased to a group at a time; 0 takes two or more steps of the largest group, so that as a rule groups of all sizes are left no remainder (docs/policies.md)",
    ),
    key(
        "train.overlap",
        int(0, 1),
        Some("0"),
        "1 runs the exchange of a step behind the computation of the next, on values that are one exchange older (docs/policies.md)",
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
];
