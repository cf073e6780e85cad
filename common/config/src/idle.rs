//! Settings that have no effect beside others: not wrong, but worth a word.

use tradewind_common::choice::Choices;
use tradewind_common::optimizer::fields::{MOMENTUM, WEIGHT_DECAY};
use tradewind_common::policy::{MomentumSpec, StalenessSpec};
use tradewind_common::spec::OptimizerSpec;

use super::keys::{self, Key};
use super::optimizer::OUTER_NESTEROV;
use super::{Values, local, script};

/// Keys that only matter while another key has one of some values.
const ONLY_WITH: &[(&str, &str, &[&str])] = &[
    ("train.staleness_bound", "train.consistency", &["bounded"]),
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

/// The table above, and the fields of optimizers and policies, which only matter where one is chosen that
/// has them.
fn only_with() -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    let listed = ONLY_WITH.iter();
    let mut all: Vec<_> = listed
        .map(|(key, other, active)| (*key, *other, active.to_vec()))
        .collect();
    all.extend(fields_of::<StalenessSpec>("staleness.policy"));
    all.extend(fields_of::<MomentumSpec>("momentum.policy"));
    for (key, other, mut active) in fields_of::<OptimizerSpec>("optimizer.name") {
        if key == MOMENTUM.key {
            active.push(OUTER_NESTEROV);
        }
        // What excludes it is told as an error.
        if key != WEIGHT_DECAY.key {
            all.push((key, other, active));
        }
    }
    all
}

/// Each field of several, the key that chooses one of them, and those that have the field.
fn fields_of<C: Choices>(
    chooser: &'static str,
) -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    let mut found: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for definition in C::ALL {
        for (_, field) in definition.fields {
            match found.iter_mut().find(|(key, ..)| *key == field.key) {
                Some((_, _, active)) => active.push(definition.name),
                None => found.push((field.key, chooser, vec![definition.name])),
            }
        }
    }
    found
}

/// Whoever takes steps between exchanges.
const LOCAL: &[&str] = &["diloco", "easgd"];

/// Keys of which one has to be `topk`, or the fraction does not matter.
const DIRECTIONS: [&str; 2] = ["exchange.up", "exchange.down"];

/// Keys that only matter while another one is more than so much.
const ONLY_ABOVE: &[(&str, &str, i64)] = &[
    ("merge.wait_ms_max", "merge.min_groups", 1),
    ("stragglers.spell_steps", "stragglers.spell_every", 0),
    ("stragglers.spell_factor", "stragglers.spell_every", 0),
];

/// Keys of one inner optimizer, by its name.
const OF_INNER: &[(&str, &str)] = &[
    ("local.momentum", "sgd"),
    ("local.nesterov", "sgd"),
    ("local.beta1", "adamw"),
    ("local.beta2", "adamw"),
    ("local.epsilon", "adamw"),
];

/// What has to hold for a key to have an effect, where these tables know of something; in Markdown.
pub(super) fn condition(key: &Key) -> Option<String> {
    let mut needs = Vec::new();
    if let Some(task) = key.task {
        needs.push(format!("`model.name` is `{task}`"));
    }
    for (name, other, active) in only_with() {
        if name == key.name {
            needs.push(format!("`{other}` is {}", either(&active)));
        }
    }
    for (name, inner) in OF_INNER {
        if *name == key.name {
            needs.push(format!("the inner optimizer is `{inner}`"));
        }
    }
    for (name, other, least) in ONLY_ABOVE {
        if *name == key.name {
            needs.push(format!("`{other}` is above {least}"));
        }
    }
    (!needs.is_empty()).then(|| needs.join(" and "))
}

/// Such as "`a`, `b` or `c`".
fn either(values: &[&str]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// A line for each key that was given another value than its default and has no effect.
pub(super) fn idle(values: &Values<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    let given = |name: &str| {
        let key = keys::find(name).expect("a known key");
        values.departure(key).is_some()
    };
    for (name, other, active) in only_with() {
        let now = values.text(other);
        if !active.contains(&now) && given(name) {
            lines.push(format!("{name} has no effect while {other} = {now:?}"));
        }
    }
    for (name, other, least) in ONLY_ABOVE {
        let now = values.int(other);
        if now <= *least && given(name) {
            lines.push(format!("{name} has no effect while {other} = {now}"));
        }
    }
    if let Some(inner) = local::inner_name(values) {
        for (name, of) in OF_INNER {
            if *of != inner && given(name) {
                lines.push(format!(
                    "{name} has no effect while local.inner is {inner:?}"
                ));
            }
        }
    }
    let profile = values.text("stragglers.profile");
    let factor = "stragglers.pause_factor";
    if values.float("stragglers.pause_rate") == 0.0 && profile != "pauses" && given(factor) {
        lines.push(format!(
            "{factor} has no effect while stragglers.pause_rate = 0 and stragglers.profile = {profile:?}"
        ));
    }
    let among = "stragglers.among";
    let zero = |name: &str| values.float(name) == 0.0;
    if zero("stragglers.jitter")
        && zero("stragglers.pause_rate")
        && values.int("stragglers.spell_every") == 0
        && !["jitter", "pauses"].contains(&profile)
        && given(among)
    {
        lines.push(format!(
            "{among} has no effect while there are no stragglers.jitter, pauses or spells"
        ));
    }
    let task = values.text("model.name");
    let chosen = match values.texts(script::COMMAND) {
        [] => format!("model.name = {task:?}"),
        _ => format!("{} is set", script::COMMAND),
    };
    for key in values.tasks.keys() {
        let of_another = key.task.is_some_and(|of| of != task);
        if of_another && values.departure(key).is_some() {
            lines.push(format!("{} has no effect while {chosen}", key.name));
        }
    }
    let fraction = "exchange.topk_fraction";
    let topk = |key: &&str| values.text(key) == "topk";
    if !DIRECTIONS.iter().any(topk) && given(fraction) {
        let [up, down] = DIRECTIONS;
        lines.push(format!(
            "{fraction} has no effect while neither {up} nor {down} is \"topk\""
        ));
    }
    lines.extend(gpus_under_slurm(values));
    let warmup = values.int("schedule.warmup_samples");
    if values.text("schedule.unit") == "samples" && warmup >= values.int("train.samples") {
        lines.push(
            "schedule.warmup_samples is not less than train.samples: the run ends before the learning rate is reached"
                .into(),
        );
    }
    lines
}

/// What ranks compute on and what their job asks for do not fit; said where the file speaks of Slurm at all.
fn gpus_under_slurm(values: &Values<'_>) -> Option<String> {
    let mut of_slurm = keys::all().filter(|key| key.name.starts_with("slurm."));
    if !of_slurm.any(|key| values.departure(key).is_some()) {
        return None;
    }
    let device = values.text("compute.device");
    let (key, gpus) = ("slurm.rank_gpus", values.int("slurm.rank_gpus"));
    match gpus {
        0 if device.starts_with("cuda") => Some(format!(
            "{key} = 0 asks Slurm for no GPUs, though compute.device = {device:?}"
        )),
        1.. if device == "cpu" => Some(format!(
            "{key} = {gpus} asks Slurm for GPUs that compute.device = {device:?} does not use"
        )),
        _ => None,
    }
}
