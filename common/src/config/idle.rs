//! Settings that have no effect beside others: not wrong, but worth a word.

use super::keys;
use super::{Value, Values};

/// Keys that only matter while another key has one of some values.
const ONLY_WITH: &[(&str, &str, &[&str])] = &[
    ("train.staleness_bound", "train.consistency", &["bounded"]),
    ("staleness.drop_beyond", "staleness.policy", &["drop"]),
    (
        "staleness.lambda",
        "staleness.policy",
        &["compensate", "compensate-adaptive"],
    ),
    (
        "staleness.mean_square_decay",
        "staleness.policy",
        &["compensate-adaptive"],
    ),
    ("momentum.gain", "momentum.policy", &["closed-loop"]),
    (
        "optimizer.momentum",
        "optimizer.name",
        &["sgd", "lars", "larc", "outer-nesterov", "delayed-nesterov"],
    ),
    ("optimizer.nesterov", "optimizer.name", &["sgd"]),
    ("optimizer.trust", "optimizer.name", &["lars", "larc"]),
    (
        "optimizer.momentum_updates",
        "optimizer.name",
        &["delayed-nesterov"],
    ),
    (
        "optimizer.activation",
        "optimizer.name",
        &["delayed-nesterov"],
    ),
    ("optimizer.beta1", "optimizer.name", &["adam", "adamw"]),
    ("optimizer.beta2", "optimizer.name", &["adam", "adamw"]),
    ("optimizer.epsilon", "optimizer.name", &["adam", "adamw"]),
    ("schedule.warmup_samples", "schedule.unit", &["samples"]),
    ("schedule.warmup_updates", "schedule.unit", &["updates"]),
    ("schedule.end_updates", "schedule.unit", &["updates"]),
    ("schedule.milestones", "schedule.decay", &["step"]),
    ("schedule.gamma", "schedule.decay", &["step"]),
    ("schedule.power", "schedule.decay", &["polynomial"]),
    (
        "schedule.floor",
        "schedule.decay",
        &["cosine", "polynomial"],
    ),
    (
        "schedule.reference_batch",
        "schedule.scaling",
        &["linear", "sqrt"],
    ),
    ("local.steps", "local.algorithm", LOCAL),
    ("local.fitted", "local.algorithm", LOCAL),
    ("local.inner", "local.algorithm", LOCAL),
    ("local.learning_rate", "local.algorithm", LOCAL),
    ("local.momentum", "local.algorithm", LOCAL),
    ("local.nesterov", "local.algorithm", LOCAL),
    ("local.beta1", "local.algorithm", LOCAL),
    ("local.beta2", "local.algorithm", LOCAL),
    ("local.epsilon", "local.algorithm", LOCAL),
    ("local.weight_decay", "local.algorithm", LOCAL),
    ("compute.loss_scale", "compute.precision", &["fp16"]),
    ("compute.loss_scale_steps", "compute.precision", &["fp16"]),
];

/// Whoever takes steps between exchanges.
const LOCAL: &[&str] = &["diloco", "easgd"];

/// Keys of which one has to be `topk`, or the fraction does not matter.
const DIRECTIONS: [&str; 2] = ["exchange.up", "exchange.down"];

/// A line for each key that was given another value than its default and has no effect.
pub(super) fn idle(values: &Values<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, other, active) in ONLY_WITH {
        let Value::Text(now) = values.get(other) else {
            unreachable!("{other} was read as text")
        };
        let default = keys::find(name).and_then(keys::Key::default_value);
        if !active.contains(&now.as_str()) && Some(values.get(name)) != default.as_ref() {
            lines.push(format!("{name} has no effect while {other} = {now:?}"));
        }
    }
    let Value::Text(task) = values.get("model.name") else {
        unreachable!("model.name was read as text")
    };
    for key in keys::all() {
        let of_another = key.task.is_some_and(|of| of != task);
        if of_another && values.find(key.name) != key.default_value().as_ref() {
            lines.push(format!(
                "{} has no effect while model.name = {task:?}",
                key.name
            ));
        }
    }
    let fraction = "exchange.topk_fraction";
    let default = keys::find(fraction).and_then(keys::Key::default_value);
    let topk = |key: &&str| values.get(key) == &Value::Text("topk".into());
    if !DIRECTIONS.iter().any(topk) && Some(values.get(fraction)) != default.as_ref() {
        let [up, down] = DIRECTIONS;
        lines.push(format!(
            "{fraction} has no effect while neither {up} nor {down} is \"topk\""
        ));
    }
    let (Value::Int(warmup), Value::Int(samples)) = (
        values.get("schedule.warmup_samples"),
        values.get("train.samples"),
    ) else {
        unreachable!("both were read as integers")
    };
    let counted = values.get("schedule.unit") == &Value::Text("samples".into());
    if counted && warmup >= samples {
        lines.push(
            "schedule.warmup_samples is not less than train.samples: the run ends before the learning rate is reached"
                .into(),
        );
    }
    lines
}
