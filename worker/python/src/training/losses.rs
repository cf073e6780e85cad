//! Losses of steps. A script says that of a step before or after it, so it is known when the next one begins.

use std::collections::BTreeMap;

use tradewind_client::step::{Ended, Step};
use tradewind_common::Clock;

/// Losses of the steps of exchanges, and exchanges whose losses are not all known.
#[derive(Debug, Default)]
pub(super) struct Losses {
    of: BTreeMap<Clock, Mean>,
    /// The step that was taken last, until its loss is known: its clock, and the samples that count.
    last: Option<(Clock, u64)>,
    ended: Vec<Ended>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    samples: u64,
}

impl Losses {
    /// The loss of the step before the one at hand; NaN if nobody says.
    pub(super) fn hear(&mut self, loss: f64) {
        if let Some((clock, samples @ 1..)) = self.last.take() {
            let mean = self.of.entry(clock).or_default();
            mean.sum += loss * samples as f64;
            mean.samples += samples;
        }
    }

    /// A step was taken. One that is skipped counts for nothing.
    pub(super) fn stepped(&mut self, step: &Step) {
        let samples = if step.is_skipped() { 0 } else { step.samples };
        self.last = Some((step.clock, samples));
    }

    /// An exchange has ended.
    pub(super) fn ended(&mut self, ended: Ended) {
        self.ended.push(ended);
    }

    /// The exchanges that have ended and whose losses are all known, now that the step at hand is for `clock`.
    pub(super) fn known(&mut self, clock: Clock) -> Vec<Ended> {
        let known = self.ended.extract_if(.., |ended| ended.step.clock < clock);
        let known = known.map(|ended| {
            let Mean { sum, samples } = self.of.remove(&ended.step.clock).unwrap_or_default();
            let loss = sum / samples as f64;
            let step = Step { loss, ..ended.step };
            Ended { step, ..ended }
        });
        known.collect()
    }
}
