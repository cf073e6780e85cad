//! Which optimizer a run has, and what becomes of its rate.

use rand::Rng;
use tradewind_common::Compression;
use tradewind_common::optimizer::{Adam, AdamW, DelayedNesterov, Elastic, Lamb, Larc, Lars, Sgd};
use tradewind_common::policy::MomentumSpec;
use tradewind_common::policy::momentum::Lowered;
use tradewind_common::schedule::{Decay, Scaling, Schedule, Unit};
use tradewind_common::spec::{DecayExempt, OptimizerSpec};

use super::{BATCH, Scenario};
use crate::random_stream;

/// Of optimizers that have one.
pub const MOMENTUM: f64 = 0.5;

/// The same where asynchrony has a part in it: a gradient is held back by 7 updates.
pub const MOMENTUM_TOTAL: f64 = 0.875;

/// Part of the way that the centre of elastic averaging moves towards a group.
pub const ALPHA: f64 = 0.25;

/// Every optimizer, with and without what it may leave out, and a rate. Gradients are whole numbers
/// up to 8, so everything that an optimizer does moves values by far more than f32 rounds: weight
/// decay is strong, and ε is large enough to count, which also keeps Adam's first steps from hanging
/// on the sign of a sum that rounding makes.
pub const OPTIMIZERS: [(OptimizerSpec, f64); 13] = [
    (sgd(0.0, false, 0.0), 1.0),
    (sgd(MOMENTUM, false, 0.0), 1.0),
    (sgd(0.0, false, 0.25), 0.5),
    (sgd(MOMENTUM, false, 0.25), 0.5),
    (sgd(MOMENTUM, true, 0.25), 0.5),
    // The outer optimizer of DiLoCo.
    (sgd(MOMENTUM, true, 0.0), 0.5),
    (
        OptimizerSpec::Adam(Adam {
            beta1: 0.75,
            beta2: 0.875,
            epsilon: 0.0625,
            weight_decay: 0.5,
        }),
        0.25,
    ),
    (
        OptimizerSpec::AdamW(AdamW {
            beta1: 0.75,
            beta2: 0.875,
            epsilon: 0.0625,
            weight_decay: 0.5,
        }),
        0.25,
    ),
    (
        OptimizerSpec::Lamb(Lamb {
            beta1: 0.75,
            beta2: 0.875,
            epsilon: 0.0625,
            weight_decay: 0.5,
        }),
        0.125,
    ),
    (
        OptimizerSpec::Lars(Lars {
            momentum: MOMENTUM,
            weight_decay: 0.25,
            trust: 0.125,
        }),
        0.5,
    ),
    (
        OptimizerSpec::Larc(Larc {
            momentum: MOMENTUM,
            weight_decay: 0.25,
            trust: 0.125,
        }),
        0.125,
    ),
    (
        OptimizerSpec::DelayedNesterov(DelayedNesterov {
            momentum: MOMENTUM,
            every: 3,
            activation: 0.25,
        }),
        0.75,
    ),
    (OptimizerSpec::Elastic(Elastic {}), ALPHA),
];

const fn sgd(momentum: f64, nesterov: bool, weight_decay: f64) -> OptimizerSpec {
    OptimizerSpec::Sgd(Sgd {
        momentum,
        nesterov,
        weight_decay,
    })
}

impl Scenario {
    /// The same with one of [`OPTIMIZERS`], of which elastic averaging has no schedule.
    pub fn with_optimizer(mut self, number: usize) -> Self {
        (self.optimizer, self.rate) = OPTIMIZERS[number];
        if self.optimizer.capabilities().takes_values() {
            self.schedule = Schedule::constant(1.0);
        }
        self.with_total()
    }

    /// The same with momentum that follows from a policy. One that measures knows no compressed
    /// answers.
    pub fn with_momentum(mut self, momentum: MomentumSpec) -> Self {
        self.policies.momentum = momentum;
        if matches!(momentum, MomentumSpec::ClosedLoop(_)) {
            self.down = Compression::None;
        }
        self.fitting()
    }

    /// The same with an optimizer that goes together with all the rest: its own, or, if the
    /// specification of the run is refused with that, one that follows from the seed.
    pub(super) fn fitting(self) -> Self {
        if self.spec().check().is_ok() {
            return self.with_total();
        }
        let all = (0..OPTIMIZERS.len()).map(|number| self.clone().with_optimizer(number));
        let mut fit: Vec<_> = all.filter(|it| it.spec().check().is_ok()).collect();
        assert!(!fit.is_empty(), "nothing goes with {self:?}");
        let drawn = random_stream(self.seed, 8).random_range(0..fit.len());
        fit.swap_remove(drawn)
    }

    /// Where asynchrony has a part in the momentum, there has to be some left.
    fn with_total(mut self) -> Self {
        let lowered = self.policies.momentum == MomentumSpec::Lowered(Lowered {});
        if let OptimizerSpec::Sgd(Sgd { momentum, .. })
        | OptimizerSpec::Lars(Lars { momentum, .. })
        | OptimizerSpec::Larc(Larc { momentum, .. }) = &mut self.optimizer
            && lowered
            && *momentum > 0.0
        {
            *momentum = MOMENTUM_TOTAL;
        }
        self
    }

    /// An optimizer that follows from the seed, whether there is weight decay for vectors, and
    /// what becomes of the rate: nothing, every second time.
    pub(super) fn drawn(self) -> Self {
        let mut rng = random_stream(self.seed, 7);
        let number = rng.random_range(0..OPTIMIZERS.len());
        let mut drawn = self.with_optimizer(number);
        if rng.random_bool(0.5) {
            drawn.decay_exempt = DecayExempt::Vectors;
        }
        if rng.random_bool(0.5) {
            drawn.schedule = drawn.scheduled(rng.random_range(0..4));
        }
        drawn.fitting()
    }

    fn scheduled(&self, kind: u32) -> Schedule {
        let ranks: u32 = self.groups.iter().map(|group| group.size).sum();
        let largest = self.batch_ramp.last().map_or(BATCH, |step| step.batch);
        // At the largest batch an update of all groups has the whole rate, and one of a single group
        // a part of it.
        let reference = u64::from(ranks * largest);
        let samples = Schedule::constant(1.0);
        let updates = Schedule {
            unit: Unit::Updates { end: 16 },
            ..samples.clone()
        };
        let floor = 0.125;
        match kind {
            0 => Schedule {
                warmup: self.samples / 3,
                scaling: Scaling::Linear { reference },
                ..samples
            },
            1 => Schedule {
                decay: Decay::Step {
                    milestones: vec![self.samples / 4, self.samples / 2],
                    gamma: 0.5,
                    factors: vec![0.25, 0.5],
                },
                ..samples
            },
            2 => Schedule {
                warmup: self.samples / 4,
                decay: Decay::Cosine { floor },
                ..samples
            },
            _ => Schedule {
                warmup: 3,
                decay: Decay::Polynomial { power: 2.0, floor },
                scaling: Scaling::Sqrt { reference },
                ..updates
            },
        }
    }
}
