//! Policies that are off by one.

use tradewind_core::consistency::{Consistency, Decision, Scene, Sync};
use tradewind_core::delay::{self, Delay};
use tradewind_core::momentum::{ClosedLoop, Lowered, Moment, Momentum};
use tradewind_core::trace::Passed;

/// Momentum as for one group more.
pub(super) struct LowerMore(pub(super) Lowered);

impl Momentum for LowerMore {
    fn explicit(&mut self, at: Moment) -> Option<f64> {
        let groups = at.groups + 1;
        self.0.explicit(Moment { groups, ..at })
    }
}

/// Momentum as if gradients had been computed on the values of the next version.
pub(super) struct MeasureLater(pub(super) ClosedLoop);

impl Momentum for MeasureLater {
    fn explicit(&mut self, at: Moment) -> Option<f64> {
        self.0.explicit(at)
    }

    fn measures(&self) -> bool {
        true
    }

    fn passed(&mut self, passed: &Passed, blocks: usize) {
        let later = Passed {
            before: passed.now.clone(),
            now: passed.after.clone(),
            ..passed.clone()
        };
        self.0.passed(&later, blocks);
    }

    fn follow(&mut self, explicit: f64) {
        self.0.follow(explicit);
    }

    fn begin_anew(&mut self) {
        self.0.begin_anew();
    }
}

/// A stale gradient counts 1/(τ + 1).
pub(super) struct ScaleMore;

impl Delay for ScaleMore {
    fn fate(&self, delay: u64) -> delay::Fate {
        let weight = 1.0 / (delay + 1) as f32;
        delay::Fate::Apply { weight }
    }
}

/// A sync policy that leaves out the last of several groups if it has not arrived.
pub(super) struct AllButOne;

impl Consistency for AllButOne {
    fn decide(&self, scene: &Scene<'_>) -> Decision {
        let Some(clock) = scene.slowest() else {
            return Decision::Wait;
        };
        let arrived: Vec<_> = scene.waiting_at(clock).collect();
        if !arrived.is_empty() && arrived.len() + 1 >= scene.due(clock) {
            Decision::Merge(arrived)
        } else {
            Decision::Wait
        }
    }
}

/// With backup groups, a skip takes the place of a gradient.
pub(super) struct CountsSkips(pub(super) Sync);

impl Consistency for CountsSkips {
    fn decide(&self, scene: &Scene<'_>) -> Decision {
        let decision = self.0.decide(scene);
        let Some(clock) = scene.present().filter(|_| decision == Decision::Wait) else {
            return decision;
        };
        let needed = scene.begun(clock).saturating_sub(self.0.backup_groups);
        match scene.came(clock) >= needed.max(1) {
            true => Decision::Merge(scene.waiting_at(clock).collect()),
            false => Decision::Wait,
        }
    }

    fn averages(&self) -> bool {
        true
    }

    fn leaves_behind(&self) -> bool {
        true
    }
}

/// With backup groups, what comes too late is applied all the same.
pub(super) struct AppliesLate(pub(super) Sync);

impl Consistency for AppliesLate {
    fn decide(&self, scene: &Scene<'_>) -> Decision {
        match self.0.decide(scene) {
            Decision::LeaveOut(late) => Decision::Merge(late),
            other => other,
        }
    }

    fn averages(&self) -> bool {
        true
    }

    fn leaves_behind(&self) -> bool {
        true
    }
}
