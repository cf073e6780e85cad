//! A shard's part of a snapshot (rule 10).

use tradewind_common::Clock;

use super::saves::Captured;
use super::{Output, Shard};
use crate::order::NotCaptured;

impl Shard {
    /// Captures every block for a snapshot: as it is when exactly the clocks before `at_clock` are
    /// decided, or as it is now. A newer snapshot takes the place of one that is under way.
    pub fn handle_capture(&mut self, number: u64, at_clock: Option<Clock>) {
        if !self.holder.is_primary() || !self.blocks.are_complete() {
            let why = "this server does not answer for the shard, or it has no values";
            return self.not_captured(number, NotCaptured::Failed(why.into()));
        }
        if self.saves.is_under_way(number) {
            return;
        }
        self.saves.give_up();
        match at_clock {
            None => {
                let result = Ok(self.blocks.states());
                self.captured(Captured { number, result });
            }
            Some(at) => {
                let leaves_behind = self.policies.leaves_behind();
                self.saves.begin(number, at, &self.blocks, leaves_behind);
                self.finish_capture();
            }
        }
    }

    /// Lets a snapshot go that holds every block, or cannot any more.
    pub(super) fn finish_capture(&mut self) {
        let Some(captured) = self.saves.finish(&self.blocks) else {
            return;
        };
        match captured.result {
            Ok(_) => self.captured(captured),
            Err(why) => self.not_captured(captured.number, why),
        }
    }

    pub(super) fn not_captured(&mut self, number: u64, why: NotCaptured) {
        let result = Err(why);
        self.out.push(Output::Captured { number, result });
    }

    /// It is told like values: when every copy has confirmed what is in it.
    fn captured(&mut self, captured: Captured) {
        let Captured { number, result } = captured;
        self.out.ask_and_answer(Output::Captured { number, result });
    }
}
