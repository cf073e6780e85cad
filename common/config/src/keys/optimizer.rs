//! What is done with gradients: sections `optimizer`, `local` and `schedule`.

use tradewind_common::spec::OptimizerSpec;

use crate::optimizer::OUTER_NESTEROV;

use super::{MANY, Section, chooser, fields, float, int, key};
use crate::value::Kind::{Bool, Choice, IntsOrNone};

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
            "optimizer.decay_exempt",
            Choice(&["none", "vectors"]),
            Some("\"none\""),
            "Tensors without weight decay. `none`: all tensors have it. `vectors`: tensors of at most one dimension do not have it, that is biases and the scales and shifts of normalisations; `lars` and `larc` then do not scale their steps, either.",
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
        keys: vec![
            key(
                "local.algorithm",
                Choice(&["none", "diloco", "easgd"]),
                Some("\"none\""),
                "What a group exchanges. `none`: the gradient of every step. `diloco`: the difference between its parameters before and after `local.steps` steps. `easgd`: its parameters, which stay its own and are drawn towards those of the servers; this needs `optimizer.name = \"elastic\"` and `train.consistency = \"async\"` ([policies](policies.md#local-steps)).",
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
            key(
                "local.inner",
                Choice(&["auto", "adamw", "sgd"]),
                Some("\"auto\""),
                "Inner optimizer, that of the steps between two exchanges. `adamw` and `sgd` are those of `torch.optim`. `auto` is `adamw` for `diloco` and `sgd` for `easgd`.",
            ),
            key(
                "local.learning_rate",
                float(0.0, 1e6),
                Some("0.001"),
                "Learning rate of the inner optimizer at the end of the warm-up. Section `schedule` shapes this rate, and not `optimizer.learning_rate`.",
            ),
            key(
                "local.momentum",
                float(0.0, 0.999_999),
                Some("0.0"),
                "Momentum of the inner optimizer; 0 is none.",
            ),
            key(
                "local.nesterov",
                Bool,
                Some("false"),
                "`true`: momentum of the inner optimizer in Nesterov's form. It needs `local.momentum` above 0.",
            ),
            key(
                "local.beta1",
                float(0.0, 0.999_999),
                Some("0.9"),
                "Decay β₁ of the running mean of gradients (first moment) in the inner optimizer.",
            ),
            key(
                "local.beta2",
                float(0.0, 0.999_999_999),
                Some("0.999"),
                "Decay β₂ of the running mean of squared gradients (second moment) in the inner optimizer.",
            ),
            key(
                "local.epsilon",
                float(0.0, 1.0),
                Some("1e-8"),
                "Number ε that the inner optimizer adds to the denominator of a step against division by 0; more than 0.",
            ),
            key(
                "local.weight_decay",
                float(0.0, 1e3),
                Some("0.0"),
                "Weight decay of the inner optimizer: for `sgd` an L2 penalty, for `adamw` decoupled from the gradient. `optimizer.decay_exempt` says which tensors have none.",
            ),
        ],
    }
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
        keys: vec![
            key(
                "schedule.unit",
                Choice(&["samples", "updates"]),
                Some("\"samples\""),
                "What warm-up and decay count. `samples`: samples that have been applied, so that runs with different numbers of groups can be compared. `updates`: updates that servers have made.",
            ),
            key(
                "schedule.warmup_samples",
                int(0, MANY),
                Some("0"),
                "Length of the warm-up, in applied samples, over which the learning rate grows linearly from 0. 0 is no warm-up.",
            ),
            key(
                "schedule.warmup_updates",
                int(0, MANY),
                Some("0"),
                "Length of the warm-up, in updates, over which the learning rate grows linearly from 0. 0 is no warm-up.",
            ),
            key(
                "schedule.end_updates",
                int(0, MANY),
                Some("0"),
                "Number of updates after which the decays `cosine` and `polynomial` have come to their end, more than `schedule.warmup_updates`. Where samples are counted, decays end with `train.samples`.",
            ),
            key(
                "schedule.decay",
                Choice(&["constant", "step", "cosine", "polynomial"]),
                Some("\"constant\""),
                "Learning rate after the warm-up. `constant`: it stays. `step`: it is multiplied by `schedule.gamma` at each of `schedule.milestones`. `cosine`: it falls along half a cosine to `schedule.floor`. `polynomial`: it falls to `schedule.floor` as a power of the remaining time, `schedule.power`.",
            ),
            key(
                "schedule.milestones",
                IntsOrNone { min: 1, max: MANY },
                Some("[]"),
                "Points at which the learning rate is multiplied by `schedule.gamma`, in applied samples or updates (`schedule.unit`) since the beginning of the run; at least one, in increasing order.",
            ),
            key(
                "schedule.gamma",
                float(0.0, 1.0),
                Some("0.1"),
                "Factor that the learning rate is multiplied by at each milestone.",
            ),
            key(
                "schedule.power",
                float(0.0, 100.0),
                Some("1.0"),
                "Exponent of the decay `polynomial`, more than 0. 1 is a straight line.",
            ),
            key(
                "schedule.floor",
                float(0.0, 1.0),
                Some("0.0"),
                "Learning rate at the end of the decay, as a fraction of the rate at the end of the warm-up.",
            ),
            key(
                "schedule.scaling",
                Choice(&["none", "linear", "sqrt"]),
                Some("\"none\""),
                "Factor of an update that has n samples, with r = `schedule.reference_batch`. `none`: 1. `linear`: n / r. `sqrt`: √(n / r). The number of ranks or groups does not count by itself ([policies](policies.md#schedules)).",
            ),
            key(
                "schedule.reference_batch",
                int(0, MANY),
                Some("0"),
                "Number of samples in an update at which the learning rate holds as it is configured; more than 0.",
            ),
        ],
    }
}
