//! A rank of a worker as a thread of the test, with a task of the test's own.

use std::time::Duration;

use tokio::runtime::Handle;
use tradewind_client::membership::End;
use tradewind_client::recorder::Recorder;
use tradewind_worker::lives::once;
use tradewind_worker::member::{Entry, Member};
use tradewind_worker::train_error::TrainError;

use super::training::{Alone, Training};

/// The process is the test's: a rank that is stuck must not end it.
const NEVER: Duration = Duration::from_secs(1 << 20);

/// A rank's process, without one of its own.
///
/// # Panics
/// If the configuration does not fit.
pub fn member(entry: Entry, task: impl Training + 'static, runtime: &Handle) -> Member {
    let recorder = Recorder::open(None).expect("nothing to open");
    let member = Member::with_task(entry, Box::new(Alone(task)), recorder, runtime);
    let mut member = member.expect("a rank");
    member.process.settings.patience = NEVER;
    member
}

/// One incarnation of its group, from joining to the end of training; it leaves if that ended well.
///
/// # Errors
/// Why training ended before the budget.
///
/// # Panics
/// If it may not join, enter or leave.
pub fn live(member: &mut Member) -> Result<End, TrainError> {
    once(member).map_err(|error| error.downcast().expect("it joins, enters and leaves"))
}
