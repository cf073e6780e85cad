//! How a rank's exchanges stand to its steps: one trait, and one file for each way.
//!
//! | file | the exchange of a step runs | asked for with |
//! |---|---|---|
//! | `between.rs` | between this step and the next one | none of the keys below |
//! | `behind.rs` | while the next step computes | `train.overlap = 1` |
//! | `during.rs` | during the backward of the step, bucket by bucket | `exchange.per_bucket = true` |
//! | `local/` | between steps, once after several of them | `local.algorithm` |
//!
//! [`build`] makes the one that the configuration asks for. What the training loop then calls, in this
//! order:
//!
//! ```text
//! pull
//! again and again:
//!     steps() times: begin_step, (forward), begin_backward, (backward), computed,
//!                    (the ranks agree), agreed, stepped
//!     finish_steps, exchange, go_on_at
//! ```

mod behind;
mod between;
mod build;
mod during;
mod local;
mod replica;
mod whole;

use tch::Tensor;
use tradewind_client::core::session::Summary;
use tradewind_client::step::{Computed, Ended, Step};
use tradewind_common::Clock;
use tradewind_common::schedule::Seen;

use crate::flat::Flat;
use crate::group::{Group, GroupError};
use crate::host::HostError;
use crate::train_error::TrainError;

pub use build::{Setup, build};
pub use replica::Replica;

/// One way in which exchanges stand to steps, with the streams to the shards that it uses. It lives as
/// long as one incarnation of the group. All ranks of a group have the same one, and make the same calls.
pub trait Exchanging {
    /// Brings all values of the shards into the model, before the first step.
    fn pull(&mut self, replica: &mut Replica<'_>) -> Result<Summary, TrainError>;

    /// The clock of the contribution that is started next.
    fn next_clock(&self) -> Clock;

    /// The clock of the contribution that the step at hand is for.
    fn clock(&self) -> Clock;

    /// How many steps the group takes until its next exchange: at least 1, as many on all ranks.
    fn steps(&self, group: &dyn Group) -> Result<u32, GroupError> {
        let _ = group;
        Ok(1)
    }

    /// Before a step's forward.
    fn begin_step(&mut self) -> Result<(), HostError> {
        Ok(())
    }

    /// What the loss is multiplied by before backward, if it is. The gradient that is pushed is divided
    /// by it again.
    fn loss_scale(&self) -> Option<f64> {
        None
    }

    /// Between a step's forward and its backward. `samples` are those of all ranks; `seen` is what was
    /// applied when the last exchange ended, and what the group has added since.
    fn begin_backward(&mut self, samples: u32, seen: Seen) -> Result<(), HostError>;

    /// After a step's backward: waits until the step is computed. `loss` is without its scale.
    fn computed(&mut self, loss: &Tensor, group: &dyn Group) -> Result<Computed, HostError>;

    /// The ranks have agreed on a step. `flat` is still what its gradient was computed on.
    fn agreed(&mut self, step: &Step, group: &dyn Group, flat: &Flat) -> Result<(), HostError>;

    /// A step on which the ranks have agreed is over. `seen` is as before its backward.
    fn stepped(&mut self, step: &Step, seen: Seen) -> Result<(), HostError> {
        let _ = (step, seen);
        Ok(())
    }

    /// After the last step before an exchange; `steps` is all of them as one. What is found out here
    /// about what will be pushed is noted there.
    fn finish_steps(&mut self, steps: &mut Step, group: &dyn Group) -> Result<(), TrainError> {
        let _ = (steps, group);
        Ok(())
    }

    /// The exchange of the steps since the last one. What has ended when this returns, and is in the
    /// model: the exchange of these steps or, where exchanges run behind, of those before. If that says
    /// stop or leave, these steps are not pushed.
    fn exchange(
        &mut self,
        step: Step,
        seen: Seen,
        replica: &mut Replica<'_>,
    ) -> Result<Option<Ended>, TrainError>;

    /// After the end of an exchange: the group goes on at `clock`, if it is not further. Returns the
    /// clock of the step that comes next.
    fn go_on_at(&mut self, clock: Clock) -> Clock;
}

#[cfg(test)]
mod tests;
