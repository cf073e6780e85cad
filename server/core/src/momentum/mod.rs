//! The explicit momentum of an update, the optimizer's own or another: one small file a policy,
//! behind one trait. Asynchrony has a momentum of its own, because gradients that are late act as if
//! they had waited in a velocity (Mitliagkas et al. 2016, "Asynchrony begets Momentum").

mod closed_loop;
mod lowered;

pub use closed_loop::ClosedLoop;
pub use lowered::Lowered;
use tradewind_common::policy::MomentumSpec;
use tradewind_common::spec::RunSpec;

use super::trace::Passed;

/// What an update of parameters is about to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Live groups.
    pub groups: usize,
    /// Contributions that it merges, at least 1.
    pub merged: usize,
}

/// Decides for one shard, at its primary.
pub trait Momentum: Send {
    /// The explicit momentum of an update; `None` leaves it to the optimizer.
    fn explicit(&mut self, at: Moment) -> Option<f64>;

    /// Whether [`passed`](Self::passed) is to be told, so that blocks keep a trace of their values.
    fn measures(&self) -> bool {
        false
    }

    /// A block of `blocks` in the shard has passed the values that a gradient was computed on.
    fn passed(&mut self, _passed: &Passed, _blocks: usize) {}

    /// As a copy: what the primary took.
    fn follow(&mut self, _explicit: f64) {}

    /// Values were restored: what was measured or followed before is not of them.
    fn begin_anew(&mut self) {}
}

/// The optimizer's own.
#[derive(Clone, Copy, Debug)]
pub struct Fixed;

impl Momentum for Fixed {
    fn explicit(&mut self, _: Moment) -> Option<f64> {
        None
    }
}

/// The rule of the policy that the run asks for.
pub fn from_spec(spec: &RunSpec) -> Box<dyn Momentum> {
    let optimizer = spec.optimizer.capabilities();
    let total = optimizer.momentum().unwrap_or(0.0);
    match spec.policies.momentum {
        MomentumSpec::Fixed(_) => Box::new(Fixed),
        MomentumSpec::Lowered(_) => Box::new(Lowered { total }),
        MomentumSpec::ClosedLoop(closed) => {
            let decay = optimizer.momentum_decay();
            Box::new(ClosedLoop::new(total, closed.gain, decay))
        }
    }
}
