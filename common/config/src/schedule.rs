//! The learning rate: section `schedule`.

use super::Values;
use tradewind_common::schedule::{Decay, MILESTONES_MAX, Scaling, Schedule, Unit};

/// What the configuration says of it; `wrong` hears what does not fit together.
pub(super) fn read(values: &Values<'_>, wrong: &mut dyn FnMut(&str, String)) -> Schedule {
    let count = |key| values.int(key) as u64;
    let decay = decay(values, wrong);
    let (unit, warmup) = match values.text("schedule.unit") {
        "updates" => {
            let (end, warmup) = (
                count("schedule.end_updates"),
                count("schedule.warmup_updates"),
            );
            if decay.ends() && end <= warmup {
                wrong(
                    "schedule.end_updates",
                    "is not more than schedule.warmup_updates, and this schedule.decay has to end"
                        .into(),
                );
            }
            (Unit::Updates { end }, warmup)
        }
        _ => (Unit::Samples, count("schedule.warmup_samples")),
    };
    let reference = count("schedule.reference_batch");
    let scaling = match values.text("schedule.scaling") {
        "linear" => Scaling::Linear { reference },
        "sqrt" => Scaling::Sqrt { reference },
        _ => Scaling::None,
    };
    if scaling != Scaling::None && reference == 0 {
        wrong(
            "schedule.reference_batch",
            "is 0; schedule.scaling needs the samples of an update at which optimizer.learning_rate holds".into(),
        );
    }
    Schedule {
        learning_rate: values.float("optimizer.learning_rate"),
        unit,
        warmup,
        decay,
        scaling,
    }
}

fn decay(values: &Values<'_>, wrong: &mut dyn FnMut(&str, String)) -> Decay {
    let floor = values.float("schedule.floor");
    match values.text("schedule.decay") {
        "step" => {
            let key = "schedule.milestones";
            let milestones: Vec<u64> = values.ints(key).iter().map(|n| *n as u64).collect();
            if milestones.is_empty() {
                wrong(
                    key,
                    "is empty, and schedule.decay = \"step\" needs one".into(),
                );
            }
            if milestones.len() > MILESTONES_MAX {
                wrong(key, format!("are more than {MILESTONES_MAX}"));
            }
            if !milestones.is_sorted_by(|a, b| a < b) {
                wrong(key, "do not increase".into());
            }
            Decay::Step {
                milestones,
                gamma: values.float("schedule.gamma"),
            }
        }
        "cosine" => Decay::Cosine { floor },
        "polynomial" => {
            let power = values.float("schedule.power");
            if power == 0.0 {
                wrong(
                    "schedule.power",
                    "is no power of a decay; take schedule.decay = \"constant\", or more than 0"
                        .into(),
                );
            }
            Decay::Polynomial { power, floor }
        }
        _ => Decay::Constant,
    }
}
