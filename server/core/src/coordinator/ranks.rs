//! What ranks call.

use tradewind_common::data::Chunk;
use tradewind_common::spec::RunSpec;
use tradewind_common::{Generation, GroupId, Incarnation, RunId};

use super::Coordinator;
use crate::ReplyTo;
use crate::answer::Refused;
use crate::run::{Beat, Beaten, Caller, Join};

impl Coordinator {
    /// A rank joins a run; the first one creates it, or resumes it.
    pub fn join(&mut self, run: RunId, spec: RunSpec, join: Join, to: ReplyTo, now_ms: u64) {
        self.journal.set_now(now_ms);
        let joined = self.runs.joined(&run, spec, &self.fleet, &mut self.journal);
        match joined {
            Ok(run) => run.join(join, to, now_ms),
            Err(refused) => self.journal.reply(to, Err(refused)),
        }
        self.drain();
    }

    /// A rank asks to push.
    pub fn await_ready(
        &mut self,
        run: &RunId,
        caller: Caller,
        created: bool,
        to: ReplyTo,
        now_ms: u64,
    ) {
        match self.run_mut(run, now_ms) {
            Ok(run) => run.await_ready(caller, created, to, now_ms),
            Err(refused) => self.journal.reply(to, Err(refused)),
        }
        self.drain();
    }

    /// Renews a rank's lease; answers the present generation, and how fast others are.
    pub fn heartbeat(
        &mut self,
        run: &RunId,
        caller: Caller,
        beat: Beat,
        now_ms: u64,
    ) -> Result<Beaten, Refused> {
        self.run_mut(run, now_ms)?.heartbeat(caller, beat, now_ms)
    }

    /// Whether a rank's life of its group is still the one; nothing is renewed.
    pub fn check(&mut self, run: &RunId, caller: Caller) -> Result<Generation, Refused> {
        let now_ms = self.journal.now_ms();
        self.run_mut(run, now_ms)?.check(caller)
    }

    /// The connection that held a rank's lease has broken.
    pub fn rank_lost(&mut self, run: &RunId, caller: Caller, now_ms: u64) {
        if let Ok(run) = self.run_mut(run, now_ms) {
            run.rank_lost(caller, now_ms);
        }
        self.drain();
    }

    /// Leases a chunk of training data.
    pub fn lease_chunk(
        &mut self,
        run: &RunId,
        owner: (GroupId, Incarnation),
        finished: &[u64],
        holds: &[u64],
    ) -> Result<Chunk, Refused> {
        let leased = self
            .run_mut(run, self.journal.now_ms())?
            .lease_chunk(owner, finished, holds);
        self.drain();
        leased
    }

    /// A rank is done, and so are these chunks of data.
    pub fn leave(
        &mut self,
        run: &RunId,
        caller: Caller,
        finished: &[u64],
        now_ms: u64,
    ) -> Result<(), Refused> {
        let run = self.run_mut(run, now_ms)?;
        let left = run.leave(caller, finished, now_ms);
        self.drain();
        left
    }
}
