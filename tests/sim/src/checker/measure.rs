//! The explicit momentum of a shard where it follows from what is measured, recomputed: Zhang and
//! Mitliagkas 2017, "YellowFin and the art of momentum tuning", section 4 and algorithm 5.

use tradewind_common::TensorKind;
use tradewind_common::optimizer::Sgd;
use tradewind_common::policy::MomentumSpec;
use tradewind_common::policy::momentum::ClosedLoop;
use tradewind_common::spec::OptimizerSpec;
use tradewind_core::decided;

use super::block::Record;
use super::history::Step;
use super::terms::{PassedOn, Terms, Traffic};
use super::{Rule, Violation};
use crate::values;

/// How far what is told may be from what was recomputed, both in f64 and of the same values.
const TOLERANCE: f64 = 1e-6;

/// Versions that a primary keeps for certain.
const KEPT: u64 = 100;

impl Record {
    /// The momentum of the shard's next update after what was decided since step `from`, by one of so
    /// many blocks. `explicit` is what it was before; not known where a primary has just begun or
    /// its values are not: then the next one that copies are told is believed.
    pub(super) fn measure(
        &self,
        from: usize,
        (explicit, blocks): (Option<f64>, usize),
        passed_on: &[PassedOn],
        (traffic, terms): (&Traffic, &Terms),
    ) -> Result<Option<f64>, Violation> {
        let MomentumSpec::ClosedLoop(ClosedLoop { gain }) = terms.policies.momentum else {
            return Ok(explicit);
        };
        let OptimizerSpec::Sgd(Sgd { momentum, .. }) = terms.optimizer else {
            return Ok(None);
        };
        let changes = |step: &usize| self.history[*step].version > self.history[*step - 1].version;
        let updates: Vec<usize> = (from..self.history.len()).filter(changes).collect();
        let number = match &updates[..] {
            [] => return Ok(explicit),
            _ if self.kind == TensorKind::Buffer => return Ok(explicit),
            [number] => *number,
            // What the block was like between them, nobody else has seen.
            _ => return Ok(None),
        };
        let told = passed_on.iter().find_map(|update| update.momentum);
        if let (Some(own), Some(told)) = (explicit, told)
            && (own - told).abs() > TOLERANCE
        {
            let text = format!("block {}: momentum is {told}, not {own}", self.id);
            return Err(Violation::new(Rule::ExactlyOnce, text));
        }
        let Some(mut explicit) = told.or(explicit) else {
            return Ok(None);
        };
        for ((group, clock), verdict) in &self.decided {
            let applied = verdict.decided.verdict == decided::Verdict::Applied;
            if verdict.step != number || !applied {
                continue;
            }
            let life = (*group, self.history[number].last[group].0);
            let pushed = traffic.pushed[&(self.id, life, *clock)];
            // The version is another line's, or nothing had moved before it.
            if pushed.lineage != self.lineage || pushed.version == 0 {
                continue;
            }
            let on = pushed.version;
            let around = [on - 1, on, on + 1].map(|version| self.exactly(version));
            let [Some(before), Some(now), Some(after)] = around else {
                return Ok(None);
            };
            let gradient = values::gradient(life, *clock, self.id, self.length, terms.brought);
            let gradient = gradient.expect("it was applied");
            let total = self.total([before, now, after], &gradient, terms);
            if let Some(total) = total.filter(|total| total.is_finite()) {
                let change = gain / blocks as f64 * (momentum - total);
                explicit = (explicit + change).clamp(-0.9, 0.999);
            }
        }
        Ok(Some(explicit))
    }

    /// A version, bit for bit, if this primary has kept it.
    fn exactly(&self, version: u64) -> Option<&Step> {
        let kept = version >= self.began && version + KEPT >= self.now()?.version;
        let mut steps = self.history.iter().filter(|_| kept);
        steps.find(|step| step.version == version && step.state.is_some())
    }

    /// The total momentum: the median over the elements that had moved, of an even number the
    /// greater of the two in the middle.
    fn total(
        &self,
        [before, now, after]: [&Step; 3],
        gradient: &[f32],
        terms: &Terms,
    ) -> Option<f64> {
        let OptimizerSpec::Sgd(Sgd { weight_decay, .. }) = terms.optimizer else {
            return None;
        };
        let mut ratios = Vec::new();
        for part in &terms.parts[&self.id] {
            let decay = if part.decays { weight_decay } else { 0.0 };
            for at in part.elements.clone() {
                let moved = now.values[at] - before.values[at];
                let gradient = f64::from(gradient[at]) + decay * now.values[at];
                let kept = after.values[at] - now.values[at] + after.rate * gradient;
                ratios.extend((moved != 0.0).then_some(kept / moved));
            }
        }
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied()
    }
}
