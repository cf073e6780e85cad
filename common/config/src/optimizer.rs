//! How gradients are applied: section `optimizer`, and with it `schedule`.

use super::{Values, choice, schedule};
use tradewind_common::choice::Unfit;
use tradewind_common::optimizer::fields::{MOMENTUM, WEIGHT_DECAY};
use tradewind_common::schedule::{Schedule, Unit};
use tradewind_common::spec::{DecayExempt, OptimizerSpec};

/// How gradients are applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimizer {
    /// The algorithm.
    pub spec: OptimizerSpec,
    /// Which tensors weight decay spares.
    pub decay_exempt: DecayExempt,
    /// The learning rate; its warm-up is 0 where it is counted in epochs.
    pub schedule: Schedule,
    /// The largest L2 norm of a group's mean gradient, if there is one.
    pub clip_norm: Option<f64>,
    /// Length of the warm-up in epochs, if that is not 0.
    pub warmup_epochs: f64,
}

/// The key of [`Optimizer::clip_norm`].
pub(super) const CLIP_NORM: &str = "optimizer.clip_norm";

/// The key of [`Optimizer::warmup_epochs`].
pub(super) const WARMUP_EPOCHS: &str = "schedule.warmup_epochs";

impl Optimizer {
    /// The learning rate where an epoch has so many samples.
    pub fn schedule_of(&self, epoch_samples: u64) -> Schedule {
        let mut schedule = self.schedule.clone();
        if self.warmup_epochs > 0.0 {
            schedule.warmup = (self.warmup_epochs * epoch_samples as f64).round() as u64;
        }
        schedule
    }

    /// What servers would refuse.
    pub(super) fn unfit(&self, values: &Values<'_>) -> Option<Unfit> {
        // What such a name needs is told of the name.
        let other = values.text("optimizer.name") != OUTER_NESTEROV;
        other.then(|| self.spec.check(&self.schedule).err())?
    }
}

/// A name for a setting of `sgd` that local steps need.
pub(super) const OUTER_NESTEROV: &str = "outer-nesterov";

/// What the configuration says of it; `wrong` hears what does not fit together.
pub(super) fn read(values: &Values<'_>, wrong: &mut dyn FnMut(&str, String)) -> Optimizer {
    let name = values.text("optimizer.name");
    let momentum = values.float(MOMENTUM.key);
    let spec = if name == OUTER_NESTEROV {
        OptimizerSpec::outer_nesterov(momentum)
    } else {
        choice::read(values, "optimizer.name")
    };
    if name == OUTER_NESTEROV || spec.capabilities().takes_pseudo_gradients() {
        if values.float(WEIGHT_DECAY.key) > 0.0 {
            wrong(
                WEIGHT_DECAY.key,
                "excludes this optimizer.name: pseudo-gradients hold the decay of their inner steps"
                    .into(),
            );
        }
        if momentum == 0.0 {
            wrong(
                MOMENTUM.key,
                "is 0, and this optimizer.name needs some; 0.9 is usual".into(),
            );
        }
    }
    let schedule = schedule::read(values);
    let warmup_epochs = values.float(WARMUP_EPOCHS);
    if warmup_epochs > 0.0 {
        if schedule.unit != Unit::Samples {
            wrong(
                WARMUP_EPOCHS,
                "needs schedule.unit = \"samples\"; schedule.warmup_updates counts updates".into(),
            );
        }
        if schedule.warmup > 0 {
            wrong(
                WARMUP_EPOCHS,
                "stands beside another length of the warm-up: give one of them".into(),
            );
        }
        if values.text("local.algorithm") != "none" {
            wrong(
                WARMUP_EPOCHS,
                "excludes local.algorithm: schedule.warmup_samples counts for it".into(),
            );
        }
    }
    Optimizer {
        spec,
        decay_exempt: choice::read(values, "optimizer.decay_exempt"),
        clip_norm: Some(values.float(CLIP_NORM)).filter(|most| *most > 0.0),
        schedule,
        warmup_epochs,
    }
}
