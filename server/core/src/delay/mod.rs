//! What is done about a gradient that was computed on old values: one small file a policy, behind
//! one trait. Its delay τ is measured by the block: the updates that were applied between the pull
//! that it was computed on and its own application.

mod compensate;
mod drop;
mod polynomial;
mod scale;

use tradewind_common::policy::StalenessSpec;
use tradewind_common::policy::staleness::None;

/// What becomes of a gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    /// It is applied.
    Apply {
        /// Times which it counts, more than 0; 1 is as it is.
        weight: f32,
    },
    /// It is left out, and its group is told so.
    Drop,
}

/// Decides by the delay. A gradient whose delay cannot be measured, because values were restored
/// since, counts as one of delay 0.
pub trait Delay: Send {
    /// What becomes of a gradient of delay τ, in updates.
    fn fate(&self, delay: u64) -> Fate;

    /// Whether [`compensate`](Self::compensate) does anything, so that blocks keep the values that
    /// they send.
    fn compensates(&self) -> bool {
        false
    }

    /// Changes a gradient in place, from one of the values `then` into one of the values `now`.
    /// `mean_square` is the policy's own, kept with the block: empty at the beginning. All four are
    /// as long as the block, but for that.
    fn compensate(
        &self,
        _gradient: &mut [f32],
        _now: &[f32],
        _then: &[f32],
        _mean_square: &mut Vec<f32>,
    ) {
    }
}

impl Delay for None {
    fn fate(&self, _: u64) -> Fate {
        Fate::Apply { weight: 1.0 }
    }
}

/// The rule of the policy that the run asks for.
pub fn from_spec(spec: StalenessSpec) -> Box<dyn Delay> {
    match spec {
        StalenessSpec::None(none) => Box::new(none),
        StalenessSpec::Scale(scale) => Box::new(scale),
        StalenessSpec::Polynomial(polynomial) => Box::new(polynomial),
        StalenessSpec::Drop(drop) => Box::new(drop),
        StalenessSpec::Compensate(compensate) => Box::new(compensate),
        StalenessSpec::CompensateAdaptive(compensate) => Box::new(compensate),
    }
}
