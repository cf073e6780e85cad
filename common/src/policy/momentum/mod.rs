//! Where the explicit momentum of an update comes from: asynchrony acts like a momentum of its own. One
//! file a policy; the rule of each is in `server/core/src/momentum/`.

mod closed_loop;
mod fixed;
mod lowered;

pub use closed_loop::ClosedLoop;
pub use fixed::Fixed;
pub use lowered::Lowered;

use crate::choices;

choices! {
    /// Where the explicit momentum of an update comes from.
    "momentum policy" is MomentumSpec, of which one may ask Ask {
        Fixed,
        Lowered,
        ClosedLoop,
    }
}

/// What other settings may ask of a momentum policy, so that none of them needs to know its name.
pub trait Ask {
    /// Whether updates may have another momentum than the optimizer's.
    fn acts(&self) -> bool {
        true
    }

    /// Whether it measures the steps that updates have come to: they have to be a rate times a
    /// gradient, from values that are kept.
    fn measures(&self) -> bool {
        false
    }
}

impl Default for MomentumSpec {
    fn default() -> Self {
        Fixed {}.into()
    }
}
