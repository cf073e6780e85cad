//! A rank in one incarnation of its group, from joining to leaving.
//!
//! It begins afresh, by pulling: what compression has left out of the gradients of the one before, values of
//! buffers that were on their way, and leased data that were not used up are nobody's any more. The data are
//! leased again, the rest is lost.

use std::borrow::Cow;
use std::sync::Arc;

use tradewind_common::data::Chunk;
use tradewind_common::schedule::Seen;
use tradewind_common::{BlockId, Clock, GroupId};
use tradewind_proto::refusal::{self, Reason};

use crate::coordinator::{Joined, MembershipError, Start};
use crate::core::session::{Identity, Purpose, Session};
use crate::directory::Directory;
use crate::exchange::{Exchange, Unplaced, placed};
use crate::exchange_error::ExchangeError;
use crate::feed::{Feed, FeedError, Place};
use crate::fence::{Break, Fence};
use crate::heartbeat::HeartbeatState;
use crate::lease::{Heartbeat, Lease, keep_lease};
use crate::leaving::Leaving;
use crate::network::wire;
use crate::rank_settings::RankSettings;
use crate::step::Ended;
use crate::streams::Streams;

/// A group that has skipped so many exchanges in a row, or a part of each, gives up: something of
/// the model would never be trained.
const SKIPS_MAX: u32 = 100;

/// A rank that has joined. When it is dropped its heartbeats end, and with them the incarnation, unless the
/// group has left.
pub struct Membership {
    settings: RankSettings,
    leaving: Leaving,
    joined: Joined,
    directory: Directory,
    heartbeat: Arc<HeartbeatState>,
    /// Exchanges in a row that were skipped, or a part of each.
    skips: u32,
    beats: Option<Heartbeat>,
    fence: Fence,
}

/// Why training has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The run's budget is applied.
    Applied,
    /// The group was asked to leave; others go on.
    Left,
}

/// The coordinator has taken the group out, or has not been heard for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease is lost")]
pub struct LeaseLost;

/// The training has diverged, or the data are not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{SKIPS_MAX} exchanges in a row had no finite gradient, or not of all (the last at clock {clock}): training has diverged; lower optimizer.learning_rate or lengthen schedule.warmup_samples"
)]
pub struct NoneFinite {
    /// The last of them.
    pub clock: u64,
}

impl Membership {
    /// Of a rank that has joined. It sends heartbeats from here on.
    pub(crate) fn new(settings: RankSettings, leaving: Leaving, joined: Joined) -> Self {
        let fence = Fence::new(&settings.runtime, settings.patience);
        let heartbeat = Arc::<HeartbeatState>::default();
        let (directory, news) = Directory::new(joined.holding.clone());
        let lease = Lease {
            id: settings.id.clone(),
            incarnation: joined.incarnation,
            pause: settings.heartbeat,
            length: settings.lease(),
            heartbeat: heartbeat.clone(),
            news,
        };
        let beats = {
            let _context = settings.runtime.enter();
            let guard = fence.guard();
            keep_lease(&settings.coordinator, lease, move |error| {
                guard.lost(&error)
            })
        };
        Self {
            settings,
            leaving,
            joined,
            directory,
            heartbeat,
            skips: 0,
            beats: Some(beats),
            fence,
        }
    }

    /// What the rank is.
    pub fn settings(&self) -> &RankSettings {
        &self.settings
    }

    /// What the join has brought.
    pub fn joined(&self) -> &Joined {
        &self.joined
    }

    /// What heartbeats tell and bring.
    pub fn heartbeat(&self) -> &Arc<HeartbeatState> {
        &self.heartbeat
    }

    /// The group.
    pub fn group(&self) -> GroupId {
        self.settings.id.group
    }

    /// The blocks that this rank exchanges.
    pub fn slice(&self) -> Vec<BlockId> {
        let Joined {
            group_rank,
            group_size,
            ..
        } = self.joined;
        self.settings.layout.slice(group_rank, group_size)
    }

    /// The ranks have met, or begin to. `break_group` breaks their collectives, where those can hang: it is
    /// called when the lease is lost, or now if it is already.
    pub fn formed(&self, break_group: Option<Break>) {
        self.fence.guard().formed(break_group);
    }

    /// Waits until the group may begin; returns its first clock. If this rank is told to create its slice,
    /// it does so from `initial`, a flat vector.
    ///
    /// # Errors
    /// What the coordinator or a shard refuses, [`MembershipError`] or [`ExchangeError`]; or [`Unplaced`].
    pub fn await_start<V: AsRef<[f32]>>(
        &mut self,
        initial: impl Fn() -> V,
    ) -> anyhow::Result<Clock> {
        let mut created = false;
        loop {
            let RankSettings {
                coordinator,
                id,
                runtime,
                ..
            } = &mut self.settings;
            let ready = coordinator.await_ready(id, self.joined.incarnation, created);
            match runtime.block_on(ready)? {
                Start::At(clock) => {
                    self.heartbeat.set_clock(clock);
                    return Ok(clock);
                }
                Start::Create => created = self.create(initial().as_ref())?,
            }
        }
    }

    /// Creates the rank's slice. `false` if somebody has created before: an answer was lost, and the run is
    /// ready now.
    fn create(&self, initial: &[f32]) -> anyhow::Result<bool> {
        tracing::info!("creating initial values");
        let source = |id: BlockId| {
            let block = self.settings.layout.block(id);
            let elements = block.expect("a block of the slice").elements.clone();
            Cow::Borrowed(&initial[elements])
        };
        let mut exchange = self.exchange(Clock(0))?;
        let create = exchange.push(Purpose::Create, Seen::default(), &source);
        match self.settings.runtime.block_on(create) {
            Ok(_) => Ok(true),
            Err(ExchangeError::Refused { status, .. })
                if refusal::reason(&status) == Some(Reason::NotCreator.word()) =>
            {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The rank's streams to the shards of its slice, for contributions from `start` on.
    ///
    /// # Errors
    /// [`Unplaced`], or a system without room for them.
    pub fn streams(&self, start: Clock) -> anyhow::Result<Streams> {
        Ok(Streams {
            exchange: self.exchange(start)?,
            wire: wire()?,
        })
    }

    fn exchange(&self, start: Clock) -> Result<Exchange, Unplaced> {
        let RankSettings {
            id,
            layout,
            reach,
            spec,
            overlap,
            ..
        } = &self.settings;
        let identity = Identity {
            run: id.run.clone(),
            group: id.group,
            incarnation: self.joined.incarnation,
        };
        let blocks = placed(&self.slice(), &self.joined.placement)?;
        let session = Session::new(identity, start, blocks).with_overlap(*overlap);
        let exchange = Exchange::new(layout.clone(), session, &self.directory, reach);
        Ok(exchange.compressing(spec.up, spec.down))
    }

    /// The rank's samples from a clock on.
    pub fn feed(&self, start: Clock) -> Result<Feed, FeedError> {
        let place = Place {
            group: self.settings.id.group,
            rank: self.settings.id.rank,
            start,
            origin: self.joined.origin,
        };
        Feed::new(&self.settings.spec, place)
    }

    /// Leases the next chunk of data to the group, which holds some and has finished others.
    pub fn lease_chunk(
        &mut self,
        finished: Vec<u64>,
        held: Vec<u64>,
    ) -> Result<Chunk, MembershipError> {
        let RankSettings {
            coordinator,
            id,
            runtime,
            ..
        } = &mut self.settings;
        let lease = coordinator.lease_chunk(id, self.joined.incarnation, finished, held);
        runtime.block_on(lease)
    }

    /// Before a step: an error if the lease is lost.
    pub fn check(&self) -> Result<(), LeaseLost> {
        match self.fence.guard().is_lost() {
            true => Err(LeaseLost),
            false => Ok(()),
        }
    }

    /// Whether the group was asked to leave, as far as this rank knows.
    pub fn is_asked_to_leave(&self) -> bool {
        self.leaving.is_asked() || self.heartbeat.leave()
    }

    /// An exchange has ended, the same for all ranks: whether the group takes another step.
    ///
    /// # Errors
    /// If nothing finite comes any more.
    pub fn ended(&mut self, ended: &Ended) -> Result<Option<End>, NoneFinite> {
        let Ended { step, summary, .. } = ended;
        self.heartbeat.set_clock(step.clock.tick());
        if summary.stop {
            return Ok(Some(End::Applied));
        }
        if summary.leave {
            return Ok(Some(End::Left));
        }
        self.skips = match (step.buckets_skipped, step.lowered_scale()) {
            (0, _) => 0,
            // The next one may fare better.
            (_, true) => self.skips,
            (_, false) => self.skips + 1,
        };
        if self.skips == SKIPS_MAX {
            let clock = step.clock.0;
            return Err(NoneFinite { clock });
        }
        Ok(None)
    }

    /// The group is done, and so are these chunks of data.
    pub fn leave(&mut self, finished: Vec<u64>) -> Result<(), MembershipError> {
        // The first rank to leave takes the group out, which is no news for the others.
        self.fence.over();
        let RankSettings {
            coordinator,
            id,
            runtime,
            ..
        } = &mut self.settings;
        let left = runtime.block_on(coordinator.leave(id, self.joined.incarnation, finished));
        self.beats = None;
        left
    }

    /// This incarnation of the group is over for the rank, which may get stuck before it comes back: dropping
    /// the group waits for the end of its collectives. The coordinator hears of it now.
    pub fn break_off(&mut self) {
        self.fence.ending();
        self.beats = None;
    }
}
