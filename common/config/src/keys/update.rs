//! How an update comes about: sections `train`, `merge`, `staleness` and `momentum`.

use tradewind_common::policy::{MomentumSpec, StalenessSpec, Weights};
use tradewind_common::spec::ConsistencySpec;

use super::{MANY, Section, chooser, fields, int, key};
use crate::value::Kind::Pairs;

/// Batches that make one step of a script.
pub(crate) const BATCHES_PER_STEP: &str = "train.batches_per_step";

pub(super) fn sections() -> Vec<Section> {
    vec![train(), merge(), staleness(), momentum()]
}

fn train() -> Section {
    Section {
        name: "train",
        about: "Says for how long and on which batches the run trains, and how far groups may be apart from each other. [Policies](policies.md#consistency) says when to choose what.",
        example: r#"[train]
samples = 100000
batch = 32
consistency = "bounded"
staleness_bound = 5
"#,
        keys: [
vec![
            key(
                "train.samples",
                int(1, MANY),
                None,
                "Number of samples to train on, summed over all groups. The run ends when gradients of so many samples have been applied.",
            ),
            key(
                "train.batch",
                int(1, 1_000_000),
                Some("8"),
                "Number of samples per rank and step. A group of 4 ranks takes 4 times as many in a step.",
            ),
            key(
                "train.batch_ramp",
                Pairs {
                    min: [1, 2],
                    max: [MANY, 1_000_000],
                },
                Some("[]"),
                "Larger batches later in training, as pairs `[samples, batch]`: steps whose data begin after the first `samples` of the run take `batch` samples per rank. Sample counts increase from pair to pair, and each batch is a multiple of the one before ([policies](policies.md#batches-that-grow)).",
            ),
            key(
                BATCHES_PER_STEP,
                int(1, 1000),
                Some("1"),
                "Number of batches of a rank that make one step of a PyTorch script, which adds up their gradients (accumulation). Under `bounded` and `async` it need not be said: there a step has as many batches as the script takes. Built-in models take one.",
            ),
            chooser::<ConsistencySpec>(
                "train.consistency",
                "\"bounded\"",
                ("When a server applies the gradient of a group.", " [Policies](policies.md#consistency) compares them."),
                &[],
            ),
            ],
            fields::<ConsistencySpec>(),
            vec![
            key(
                "train.chunk_samples",
                int(0, MANY),
                Some("0"),
                "Number of samples that a group reserves at a time, at least one step of the largest group. 0 takes two steps of the largest group or more, so that as a rule no group is left with a remainder ([policies](policies.md#batches-that-grow)), and more where `loader.batches_ahead` does: a group holds 4 reservations at most, and batches beyond them are not read ahead. Under `train.consistency = \"sync\"` nothing is reserved: the samples of a step follow from its number.",
            ),
            key(
                "train.overlap",
                int(0, 1),
                Some("0"),
                "0: a group waits for each exchange. 1: the exchange of a step runs while the next step computes, on parameters that are one exchange older ([policies](policies.md#overlap)).",
            ),
            key(
                "train.backup_groups",
                int(0, 65_535),
                Some("0"),
                "Number of groups that are not waited for under `train.consistency = \"sync\"`, less than the number of groups. A gradient that comes too late is dropped, and its group goes on with the others. Under `bounded` and `async` only 0 is accepted.",
            ),
            chooser::<Weights>(
                "train.weights",
                "\"samples\"",
                ("Weight of each gradient in an update that is made of the gradients of several groups.", ""),
                &[],
            ),
        ],
        ]
        .concat(),
    }
}

fn merge() -> Section {
    Section {
        name: "merge",
        about: "Makes one update of gradients that arrive at about the same time from several groups, under `train.consistency` `bounded` or `async`. With the defaults each gradient makes an update of its own ([policies](policies.md#merge-windows)).",
        example: r#"[cluster]
groups = [2, 2, 2, 2]

[train]
consistency = "async"

[merge]
min_groups = 2
grace_ms_max = 20
"#,
        keys: vec![],
    }
}

fn staleness() -> Section {
    Section {
    name: "staleness",
    about: "Says what a server does with gradients that were computed on old parameters. The delay τ of a gradient is the number of updates that were made between sending the parameters that it was computed on and applying it ([policies](policies.md#staleness)).",
    example: r#"[staleness]
policy = "drop"
drop_beyond = 16
"#,
    keys: [
            vec![chooser::<StalenessSpec>(
                "staleness.policy",
                "\"none\"",
                ("What a server does with a gradient by its delay τ, the number of updates since the parameters that it was computed on.", " Under `train.consistency = \"sync\"` only `none` is accepted ([policies](policies.md#staleness))."),
                &[],
            )],
            fields::<StalenessSpec>(),
        ]
        .concat(),
    }
}

fn momentum() -> Section {
    Section {
    name: "momentum",
    about: "Adapts momentum to asynchrony: gradients of several groups that come late act like momentum that is added to the configured one. [Policies](policies.md#momentum) has the formulas.",
    example: r#"[momentum]
policy = "lowered"

[optimizer]
momentum = 0.9
"#,
    keys: [
            vec![chooser::<MomentumSpec>(
                "momentum.policy",
                "\"fixed\"",
                ("How the momentum of an update follows from `optimizer.momentum`.", " The last two need `train.consistency` `bounded` or `async`, and `optimizer.name = \"sgd\"` (for `lowered` also `lars` or `larc`) with momentum and without Nesterov ([policies](policies.md#momentum))."),
                &[],
            )],
            fields::<MomentumSpec>(),
        ]
        .concat(),
    }
}
