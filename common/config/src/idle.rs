//! Settings that have no effect beside others: not wrong, but worth a word.

use tradewind_common::choice::Choices;
use tradewind_common::optimizer::fields::{MOMENTUM, WEIGHT_DECAY};
use tradewind_common::policy::{MomentumSpec, StalenessSpec};
use tradewind_common::schedule::{Decay, Scaling, Unit, WARMUP_SAMPLES, WARMUP_UPDATES};
use tradewind_common::spec::{ConsistencySpec, OptimizerSpec};

use super::Values;
use super::compute::Precision;
use super::keys::{self, Key};
use super::local::{self, Algorithm, Inner};
use super::optimizer::OUTER_NESTEROV;
use super::script;
use super::tasks::Tasks;

/// A key that only matters while another key has one of some values.
struct Only {
    key: &'static str,
    with: &'static str,
    active: Vec<&'static str>,
}

/// All of them: the fields of what one chooses, where some lack them, and the keys below.
fn only_with() -> Vec<Only> {
    let only = |key, with, active: &[&'static str]| Only {
        key,
        with,
        active: active.to_vec(),
    };
    let mut all = vec![
        only(keys::BATCHES_PER_STEP, "train.consistency", &["sync"]),
        only(WARMUP_SAMPLES.key, "schedule.unit", &["samples"]),
        only(WARMUP_UPDATES.key, "schedule.unit", &["updates"]),
    ];
    all.extend(fields_of::<Precision>("compute.precision"));
    all.extend(fields_of::<ConsistencySpec>("train.consistency"));
    all.extend(fields_of::<Unit>("schedule.unit"));
    all.extend(fields_of::<Decay>("schedule.decay"));
    all.extend(fields_of::<Scaling>("schedule.scaling"));
    all.extend(fields_of::<StalenessSpec>("staleness.policy"));
    all.extend(fields_of::<MomentumSpec>("momentum.policy"));
    for mut only in fields_of::<OptimizerSpec>("optimizer.name") {
        if only.key == MOMENTUM.key {
            only.active.push(OUTER_NESTEROV);
        }
        // What excludes it is told as an error.
        if only.key != WEIGHT_DECAY.key {
            all.push(only);
        }
    }
    let of_local = keys::all().map(|key| key.name);
    let of_local = of_local.filter(|name| name.starts_with("local.") && *name != LOCAL);
    all.extend(of_local.map(|key| Only {
        key,
        with: LOCAL,
        active: Algorithm::ALL.iter().map(|is| is.name).collect(),
    }));
    all
}

/// Each field of several that not all of them have, with the key that chooses one of them.
fn fields_of<C: Choices>(with: &'static str) -> Vec<Only> {
    let mut found: Vec<Only> = Vec::new();
    for definition in C::ALL {
        for (_, field) in definition.fields {
            match found.iter_mut().find(|only| only.key == field.key) {
                Some(only) => only.active.push(definition.name),
                None => found.push(Only {
                    key: field.key,
                    with,
                    active: vec![definition.name],
                }),
            }
        }
    }
    found.retain(|only| only.active.len() < C::ALL.len());
    found
}

/// What decides whether there are steps between exchanges.
const LOCAL: &str = "local.algorithm";

/// A key that only matters while one of the next two is `topk`.
const FRACTION: &str = "exchange.topk_fraction";
const DIRECTIONS: [&str; 2] = ["exchange.up", "exchange.down"];

/// Keys that only matter while another one is more than so much.
const ONLY_ABOVE: &[(&str, &str, i64)] = &[
    ("merge.wait_ms_max", "merge.min_groups", 1),
    ("stragglers.spell_steps", "stragglers.spell_every", 0),
    ("stragglers.spell_factor", "stragglers.spell_every", 0),
];

/// What has to hold for a key to have an effect, where these tables know of something; in Markdown.
pub(super) fn condition(key: &Key) -> Option<String> {
    let mut needs = Vec::new();
    if !key.tasks.is_empty() {
        needs.push(format!("`model.name` is {}", either(key.tasks)));
    }
    for only in only_with() {
        if only.key == key.name {
            needs.push(format!("`{}` is {}", only.with, either(&only.active)));
        }
    }
    for only in fields_of::<Inner>("local.inner") {
        if only.key == key.name {
            needs.push(format!("the inner optimizer is {}", either(&only.active)));
        }
    }
    for (name, other, least) in ONLY_ABOVE {
        if *name == key.name {
            needs.push(format!("`{other}` is above {least}"));
        }
    }
    if key.name == FRACTION {
        let [up, down] = DIRECTIONS;
        needs.push(format!("`{up}` or `{down}` is `topk`"));
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
    for Only { key, with, active } in only_with() {
        let now = values.text(with);
        if !active.contains(&now) && given(key) {
            lines.push(format!("{key} has no effect while {with} = {now:?}"));
        }
    }
    for (name, other, least) in ONLY_ABOVE {
        let now = values.int(other);
        if now <= *least && given(name) {
            lines.push(format!("{name} has no effect while {other} = {now}"));
        }
    }
    if let Some(inner) = local::inner_name(values) {
        for Only { key, with, active } in fields_of::<Inner>("local.inner") {
            if !active.contains(&inner) && given(key) {
                lines.push(format!("{key} has no effect while {with} is {inner:?}"));
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
        if !key.is_for(task) && values.departure(key).is_some() {
            lines.push(format!("{} has no effect while {chosen}", key.name));
        }
    }
    // A built-in task that takes samples in any form has a key for their layout.
    let takes_samples = |key: &Key| key.name == "data.layout" && key.is_for(task);
    let alone =
        Tasks::built_in().named(task).is_some() && !Tasks::built_in().keys().any(takes_samples);
    if alone && values.texts(script::COMMAND).is_empty() {
        for key in ["loader.cache", "loader.damaged"]
            .into_iter()
            .filter(|key| given(key))
        {
            lines.push(format!(
                "{key} has no effect while {chosen}, which reads its files by itself"
            ));
        }
    }
    if !values.texts(script::COMMAND).is_empty() {
        let reads_ahead = [
            "loader.readers",
            "loader.batches_ahead",
            "loader.bytes_ahead",
        ];
        for key in reads_ahead.into_iter().filter(|key| given(key)) {
            lines.push(format!(
                "{key} has no effect while {chosen}: its loader reads ahead as num_workers and prefetch_factor say"
            ));
        }
    }
    let topk = |key: &&str| values.text(key) == "topk";
    if !DIRECTIONS.iter().any(topk) && given(FRACTION) {
        let [up, down] = DIRECTIONS;
        lines.push(format!(
            "{FRACTION} has no effect while neither {up} nor {down} is \"topk\""
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
