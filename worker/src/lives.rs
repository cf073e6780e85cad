//! The lives of a group as one of its ranks sees them: it enters, trains, and where the life ends
//! before the run does, enters the next one; without a restart of its process.
//!
//! A life begins afresh, by pulling: what compression has left out of the gradients of the one
//! before, values of buffers that were on their way, and leased data that were not used up are
//! nobody's any more. The data are leased again, the rest is lost.

use std::sync::Arc;
use std::time::Duration;

use tradewind_client::directory::{Directory, News};
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

/// Trains until the run's budget is applied or the group is asked to leave, through all incarnations of the
/// group that it takes.
pub fn live(member: &mut Member) -> anyhow::Result<End> {
    live_pausing(member, PAUSE)
}

/// `pause` grows with every incarnation that was in vain.
fn live_pausing(member: &mut Member, pause: Duration) -> anyhow::Result<End> {
    let mut lives = Lives::default();
    loop {
        let error = match lives.next(member) {
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
        let Lives { last, fruitless } = lives;
        if fruitless == FRUITLESS_MAX {
            let text = format!("{FRUITLESS_MAX} lives of the group ended without an exchange");
            return Err(anyhow::anyhow!("{error:#}").context(text));
        }
        tracing::warn!(incarnation = %last, fruitless, "entering the group again: {error:#}");
        // Others may be slower to see what has happened.
        std::thread::sleep(pause * fruitless);
    }
}

/// The incarnations of the group that a rank has been through.
struct Lives {
    /// The one that was joined last; 0 before the first.
    last: Incarnation,
    /// How many in a row have ended without an exchange.
    fruitless: u32,
}

impl Default for Lives {
    fn default() -> Self {
        Self {
            last: Incarnation(0),
            fruitless: 0,
        }
    }
}

impl Lives {
    /// The next incarnation, from joining to leaving.
    fn next(&mut self, member: &mut Member) -> anyhow::Result<End> {
        // Until it has made an exchange.
        self.fruitless += 1;
        let joined = member.join(self.last)?;
        self.last = joined.incarnation;
        let (incarnation, size) = (joined.incarnation, joined.group_size);
        tracing::info!(%incarnation, group_size = size, group_rank = %joined.group_rank, "joined");

        let fence = Fence::new(&member.runtime, member.lease());
        let pulse = Arc::<Pulse>::default();
        let (directory, news) = Directory::new(joined.holding.clone());
        let heartbeat = beat(member, incarnation, pulse.clone(), news, &fence);
        let mut entered = enter(member, &joined, &directory, pulse, fence.guard())?;
        let trained = entered.worker.train(entered.pulled);
        if entered.worker.exchanged {
            self.fruitless = 0;
        }
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
        entered.worker.member.leave(incarnation, finished)?;
        drop(heartbeat);
        Ok(end)
    }
}

/// Sends heartbeats from here on. They tell and bring `pulse`, and bring `news` of the shards; the fence
/// hears when the lease is lost.
fn beat(
    member: &Member,
    incarnation: Incarnation,
    pulse: Arc<Pulse>,
    news: News,
    fence: &Fence,
) -> Heartbeat {
    let lease = Lease {
        seat: member.seat.clone(),
        incarnation,
        pause: Duration::from_millis(member.config.liveness.heartbeat_ms),
        length: member.lease(),
        pulse,
        news,
    };
    let _context = member.runtime.enter();
    let guard = fence.guard();
    keep_lease(&member.coordinator, lease, move |error| guard.lost(&error))
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

#[cfg(test)]
mod tests;
