//! A rank of a worker as a thread of the test, with a task of the test's own.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tradewind_client::directory::Directory;
use tradewind_client::lease::{Lease, keep_lease};
use tradewind_client::membership::Joined;
use tradewind_client::pulse::Pulse;
use tradewind_common::Incarnation;
use tradewind_worker::enter::enter;
use tradewind_worker::fence::Fence;
use tradewind_worker::member::{Entry, Member};
use tradewind_worker::telemetry::Recorder;
use tradewind_worker::train::End;
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
    Member::with_task(entry, Box::new(Alone(task)), recorder, runtime).expect("a rank")
}

/// One life of its group, from joining to the end of training; it leaves if that ended well.
///
/// # Errors
/// Why training ended before the budget.
///
/// # Panics
/// If it may not join, enter or leave.
pub fn live(member: &mut Member) -> Result<End, TrainError> {
    let joined = member.join(Incarnation(0)).expect("it joins");
    let fence = Fence::new(&member.runtime, NEVER);
    let pulse = Arc::<Pulse>::default();
    let (lease, directory) = lease(member, &joined, pulse.clone());
    let guard = fence.guard();
    let heartbeat = {
        let _context = member.runtime.enter();
        keep_lease(&member.coordinator, lease, move |error| guard.lost(&error))
    };
    let entered = enter(member, &joined, &directory, pulse, fence.guard());
    let mut entered = entered.expect("it enters");
    let trained = entered.worker.train(entered.pulled);
    if trained.is_ok() {
        let finished = entered.worker.feed.take_finished();
        let left = entered.worker.member.leave(joined.incarnation, finished);
        left.expect("it leaves");
    }
    // Ends the prefetch, and whatever exchange is under way.
    drop(entered);
    drop(heartbeat);
    trained
}

fn lease(member: &Member, joined: &Joined, pulse: Arc<Pulse>) -> (Lease, Directory) {
    let (directory, news) = Directory::new(joined.holding.clone());
    let lease = Lease {
        seat: member.seat.clone(),
        incarnation: joined.incarnation,
        pause: Duration::from_millis(member.config.liveness.heartbeat_ms),
        length: member.lease(),
        pulse,
        news,
    };
    (lease, directory)
}
