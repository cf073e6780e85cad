//! A shard's part of a snapshot (rule 10).

use tradewind_common::Clock;
use tradewind_common::holders::Role;

use super::{Output, Shard};
use crate::capture::Capture;
use crate::log::Entry;
use crate::order::NotCaptured;

impl Shard {
    /// Captures every block for a snapshot: as it is when exactly the clocks before `at_clock` are
    /// decided, or as it is now. A newer snapshot takes the place of one that is under way.
    pub fn handle_capture(&mut self, number: u64, at_clock: Option<Clock>) {
        if !matches!(self.role, Some(Role::Primary(_))) || !self.complete() {
            let why = "this server does not answer for the shard, or it has no values";
            return self.not_captured(number, NotCaptured::Failed(why.into()));
        }
        if self
            .capture
            .as_ref()
            .is_some_and(|under_way| number <= under_way.number)
        {
            return;
        }
        self.capture = None;
        match at_clock {
            None => {
                let states = self.blocks.values().filter_map(|block| block.state());
                let result = Ok(states.collect());
                self.captured(Output::Captured { number, result });
            }
            Some(at) => {
                let mut capture = Capture::new(number, at);
                let leaves_behind = self.consistency.leaves_behind();
                let blocks = self.blocks.values();
                blocks.for_each(|block| capture.look(block, leaves_behind));
                self.capture = Some(capture);
                self.finish_capture();
            }
        }
    }

    /// Lets a snapshot go that holds every block, or cannot any more.
    pub(super) fn finish_capture(&mut self) {
        let blocks = self.blocks.len();
        let done = |capture: &mut Capture| capture.passed() || capture.captured() == blocks;
        let Some(capture) = self.capture.take_if(done) else {
            return;
        };
        let number = capture.number;
        if capture.passed() {
            let decided = self
                .blocks
                .values()
                .filter_map(|block| block.clock_decided());
            let highest = decided.max().unwrap_or_default();
            return self.not_captured(number, NotCaptured::Passed(highest));
        }
        let result = Ok(capture.states());
        self.captured(Output::Captured { number, result });
    }

    pub(super) fn not_captured(&mut self, number: u64, why: NotCaptured) {
        let result = Err(why);
        self.outputs.push_back(Output::Captured { number, result });
    }

    /// It is told like values: when every copy has confirmed what is in it.
    fn captured(&mut self, captured: Output) {
        self.log.append(Entry::Probe, &mut self.outputs);
        self.answer(captured);
    }
}
