//! The lives of a group as one of its ranks sees them: it enters, trains, and where the life ends
//! before the run does, enters the next one; without a restart of its process.
//!
//! A life begins afresh, by pulling: what compression has left out of the gradients of the one
//! before, values of buffers that were on their way, and leased data that were not used up are
//! nobody's any more. The data are leased again, the rest is lost.

use std::sync::Arc;
use std::time::Duration;

use tradewind_client::directory::Directory;
use tradewind_client::lease::{Heartbeat, Lease, keep_lease};
use tradewind_client::membership::MembershipError;
use tradewind_client::network::PAUSE;
use tradewind_client::pulse::Pulse;
use tradewind_common::Incarnation;
use tradewind_proto::refusal::{self, Reason};

use crate::enter::enter;
use crate::fence::Fence;
use crate::member::Member;
use crate::train::End;
use crate::verdict::Verdict;

/// A rank that has entered so many lives in a row, none of which finished an exchange, gives up.
pub const FRUITLESS_MAX: u32 = 20;

/// Trains until the run's budget is applied or the group is asked to leave, through all lives of the
/// group that it takes.
pub fn live(member: &mut Member) -> anyhow::Result<End> {
    live_pausing(member, PAUSE)
}

/// `pause` grows with every life that was in vain.
fn live_pausing(member: &mut Member, pause: Duration) -> anyhow::Result<End> {
    let mut last = Incarnation(0);
    let mut fruitless = 0;
    loop {
        let mut progress = false;
        let error = match one_life(member, &mut last, &mut progress) {
            Ok(end) => return Ok(end),
            Err(error) => error,
        };
        if was_drained(&error) {
            return Ok(End::Left);
        }
        if Verdict::of(&error) != Verdict::Again {
            return Err(error);
        }
        if member.leaving.is_asked() {
            tracing::warn!("this life of the group ended before the group could leave: {error:#}");
            return Ok(End::Left);
        }
        fruitless = if progress { 0 } else { fruitless + 1 };
        if fruitless == FRUITLESS_MAX {
            let text = format!("{FRUITLESS_MAX} lives of the group ended without an exchange");
            return Err(anyhow::anyhow!("{error:#}").context(text));
        }
        tracing::warn!(incarnation = %last, fruitless, "entering the group again: {error:#}");
        // Others may be slower to see what has happened.
        std::thread::sleep(pause * fruitless);
    }
}

/// One life, from joining to leaving. `last` is the life that was entered last, before and after;
/// `progress` is set if it has finished an exchange.
fn one_life(
    member: &mut Member,
    last: &mut Incarnation,
    progress: &mut bool,
) -> anyhow::Result<End> {
    let joined = member.join(*last)?;
    *last = joined.incarnation;
    let (size, rank) = (joined.group_size, joined.group_rank);
    tracing::info!(incarnation = %last, group_size = size, group_rank = %rank, "joined");

    let fence = Fence::new(&member.runtime, member.lease());
    let pulse = Arc::<Pulse>::default();
    let (directory, news) = Directory::new(joined.holding.clone());
    let lease = Lease {
        seat: member.seat.clone(),
        incarnation: joined.incarnation,
        pause: Duration::from_millis(member.config.liveness.heartbeat_ms),
        length: member.lease(),
        pulse: pulse.clone(),
        news,
    };
    let heartbeat = beat(member, lease, &fence);
    let mut entered = enter(member, &joined, &directory, pulse, fence.guard())?;
    let trained = entered.worker.train(entered.pulled);
    *progress = entered.worker.exchanged;
    let end = match trained {
        Ok(end) => end,
        Err(error) => {
            // The coordinator hears of it now, since the rank may get stuck: dropping the group waits
            // for the end of its collectives.
            fence.ending();
            drop(heartbeat);
            drop(entered);
            return Err(error.into());
        }
    };
    // The first rank to leave takes the group out, which is no news for the others.
    fence.over();
    let finished = entered.worker.feed.take_finished();
    entered.worker.member.leave(*last, finished)?;
    drop(heartbeat);
    Ok(end)
}

/// Whether the group was asked to leave while it was not together.
fn was_drained(error: &anyhow::Error) -> bool {
    let refused = error.downcast_ref::<MembershipError>();
    refused.is_some_and(|error| match error {
        MembershipError::Refused { status, .. } => {
            refusal::reason(status) == Some(Reason::Drained.word())
        }
        MembershipError::Unreachable { .. } => false,
    })
}

fn beat(member: &Member, lease: Lease, fence: &Fence) -> Heartbeat {
    let _context = member.runtime.enter();
    let guard = fence.guard();
    keep_lease(&member.coordinator, lease, move |error| guard.lost(&error))
}

#[cfg(test)]
mod tests;
