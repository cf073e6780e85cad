//! What is done with gradients: sections `optimizer`, `local` and `schedule`.

use tradewind_common::schedule::{Decay, Scaling, Unit, WARMUP_SAMPLES, WARMUP_UPDATES};
use tradewind_common::spec::{DecayExempt, OptimizerSpec};

use crate::local::{Algorithm, Inner};
use crate::optimizer::{CLIP_NORM, OUTER_NESTEROV, WARMUP_EPOCHS};

use super::{Key, Section, chooser, fields, float, int, key, of_field};
use crate::value::Kind::Bool;

pub(super) fn sections() -> Vec<Section> {
    vec![optimizer(), local(), schedule()]
}

fn optimizer() -> Section {
    Section {
    name: "optimizer",
    about: "Says what servers do with gradients. [Policies](policies.md#optimizers) has the formula and the source of each optimizer.",
    example: r#"[optimizer]
name = "adamw"
learning_rate = 1e-3
weight_decay = 0.01
decay_exempt = "vectors"
"#,
    keys: [vec![
        chooser::<OptimizerSpec>(
            "optimizer.name",
            "\"sgd\"",
            ("Optimizer that servers run.", " [Policies](policies.md#optimizers) has their formulas."),
            &[(OUTER_NESTEROV, "`sgd` in Nesterov's form, the outer optimizer of `local.algorithm = \"diloco\"` under `sync`")],
        ),
        key(
            "optimizer.learning_rate",
            float(0.0, 1e6),
            None,
            "Learning rate at the end of the warm-up. With `local.algorithm` it is the constant rate of the servers' updates, and with `optimizer.name = \"elastic\"` the moving rate α, more than 0 and less than 1.",
        ),
        key(
            CLIP_NORM,
            float(0.0, 1e9),
            Some("0.0"),
            "Largest L2 norm of a gradient, of all parameters together, as in `torch.nn.utils.clip_grad_norm_`: the ranks of a group make their mean gradient as long where it is longer, before they send it. 0 is none. It cannot go with `exchange.per_bucket`, which sends parts before all is known, or with `local.algorithm`.",
        ),
        chooser::<DecayExempt>(
            "optimizer.decay_exempt",
            "\"none\"",
            ("Tensors without weight decay.", ""),
            &[],
        ),
        ], fields::<OptimizerSpec>()].concat(),
    }
}

fn local() -> Section {
    Section {
        name: "local",
        about: "Lets a group take several steps with an optimizer of its own between two exchanges, so that fewer bytes travel: DiLoCo and elastic averaging. The optimizer of these steps is called the inner one; section `optimizer` is then the outer one ([policies](policies.md#local-steps)).",
        example: r#"[local]
algorithm = "diloco"
steps = 20
learning_rate = 1e-3

[optimizer]
name = "outer-nesterov"
learning_rate = 0.7
momentum = 0.9

[train]
consistency = "sync"
"#,
        keys: [vec![
            chooser::<Algorithm>(
                "local.algorithm",
                "\"none\"",
                ("What a group exchanges.", " [Policies](policies.md#local-steps) compares them."),
                &[("none", "the gradient of every step")],
            ),
            key(
                "local.steps",
                int(1, 1_000_000),
                Some("1"),
                "Number of steps that a group takes between two exchanges.",
            ),
            key(
                "local.fitted",
                Bool,
                Some("false"),
                "`true`: a group that is slower than the fastest one takes fewer steps than `local.steps` between two exchanges, so that all groups exchange about equally often. Under `train.consistency = \"sync\"` only `false` is accepted.",
            ),
            chooser::<Inner>(
                "local.inner",
                "\"auto\"",
                ("Inner optimizer, that of the steps between two exchanges.", ""),
                &[("auto", "`adamw` for `diloco` and `sgd` for `easgd`")],
            ),
            key(
                "local.learning_rate",
                float(0.0, 1e6),
                Some("0.001"),
                "Learning rate of the inner optimizer at the end of the warm-up. Section `schedule` shapes this rate, and not `optimizer.learning_rate`.",
            ),
        ], of_inner()].concat(),
    }
}

/// Weight decay comes last, as in records of trials, which are known by the order of their keys.
fn of_inner() -> Vec<Key> {
    let mut keys = fields::<Inner>();
    keys.sort_by_key(|key| key.name == "local.weight_decay");
    keys
}

fn schedule() -> Section {
    Section {
        name: "schedule",
        about: "Says how the learning rate changes during training: it grows linearly during a warm-up, then it may decay. It is that of `optimizer.learning_rate`, or with `local.algorithm` that of `local.learning_rate` ([policies](policies.md#schedules)).",
        example: r#"[schedule]
warmup_samples = 1000
decay = "cosine"
floor = 0.1
"#,
        keys: [vec![
            chooser::<Unit>(
                "schedule.unit",
                "\"samples\"",
                ("What warm-up and decay count.", ""),
                &[],
            ),
            of_field(&WARMUP_SAMPLES),
            of_field(&WARMUP_UPDATES),
            key(
                WARMUP_EPOCHS,
                float(0.0, 1e6),
                Some("0.0"),
                "Length of the warm-up in epochs of the training data, in the place of `schedule.warmup_samples`; may be a fraction. Only for `schedule.unit = \"samples\"` and without `local.algorithm`.",
            ),
            ],
            fields::<Unit>(),
            vec![
            chooser::<Decay>(
                "schedule.decay",
                "\"constant\"",
                ("Learning rate after the warm-up.", ""),
                &[],
            ),
            ],
            fields::<Decay>(),
            vec![
            chooser::<Scaling>(
                "schedule.scaling",
                "\"none\"",
                ("Factor of an update that has n samples, with r = `schedule.reference_batch`.", " The number of ranks or groups does not count by itself ([policies](policies.md#schedules))."),
                &[],
            ),
            ],
        fields::<Scaling>(),]
        .concat(),
    }
}
