//! Moves blocks between the flat vector and the shards: streams to every shard's primary, all at
//! once; fresh blocks come down while later ones still go up.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use tradewind_common::pieces::Measured;
use tradewind_common::placement::Placement;
use tradewind_common::schedule::Seen;
use tradewind_common::{BlockId, Clock, Compression, Layout, ShardId};

use crate::core::session::{Purpose, Session, Summary};
use crate::destination::Destination;
use crate::directory::Directory;
use crate::exchange_error::ExchangeError;
use crate::link::{Link, Shared};
use crate::network::Reach;
use crate::parts::Parts;
use crate::pushed::{Pushed, Source};
use crate::sender::Sender;

/// One rank's streams to the shards.
pub struct Exchange {
    layout: Arc<Layout>,
    session: Session,
    links: Vec<Link>,
    sender: Sender,
    down: Compression,
    /// Of the gradient that is pushed next.
    norms: Option<Measured>,
}

impl Exchange {
    /// Streams for `session` to the primaries that `directory` names, opened when needed: as many to
    /// each as `reach` says, which share the shard's blocks in turn.
    pub fn new(
        layout: Arc<Layout>,
        session: Session,
        directory: &Directory,
        reach: &Reach,
    ) -> Self {
        let shards: BTreeMap<BlockId, ShardId> = session.slice().collect();
        let mut blocks: BTreeMap<ShardId, Vec<BlockId>> = BTreeMap::new();
        for block in layout.blocks.iter().map(|block| block.id) {
            if let Some(shard) = shards.get(&block) {
                blocks.entry(*shard).or_default().push(block);
            }
        }
        let mut links = Vec::new();
        for (shard, blocks) in blocks {
            let connections = (reach.connections.max(1) as usize).min(blocks.len());
            links.extend((0..connections).map(|first| {
                let share = blocks.iter().skip(first).step_by(connections);
                Link::new(shard, directory, reach, share.copied().collect())
            }));
        }
        Self {
            layout,
            session,
            links,
            sender: Sender::default(),
            down: Compression::None,
            norms: None,
        }
    }

    /// Uses the run's forms. Gradients go up with error feedback; an incarnation of a group begins without
    /// residuals: what the one before left out is lost.
    pub fn compressing(mut self, up: Compression, down: Compression) -> Self {
        self.sender = Sender::new(up, self.layout.elements());
        self.down = down;
        self
    }

    /// The gradient that is pushed next has these norms: needed where updates follow from them.
    pub fn measured(&mut self, norms: Measured) {
        self.norms = Some(norms);
    }

    /// The group goes on at `clock`, if it is not further: see [`Session::go_on_at`].
    pub fn go_on_at(&mut self, clock: Clock) {
        self.session.go_on_at(clock);
    }

    /// The clock of the next contribution.
    pub fn clock(&self) -> Clock {
        self.session.clock()
    }

    /// One exchange of every block of the slice. Where the run compresses answers, they come as
    /// differences: `values` are then those of the exchange before, untouched in the slice's range.
    /// On return the slice's range of `values` is fresh; after an error it is neither what it was nor fresh.
    pub async fn run<D: Destination + ?Sized>(
        &mut self,
        purpose: Purpose,
        seen: Seen,
        source: Source<'_, '_>,
        mut values: &mut D,
    ) -> Result<Summary, ExchangeError> {
        let pushed = Pushed::Whole(source);
        self.go(purpose, seen, pushed, Some(&mut values)).await
    }

    /// As [`run`](Self::run) with a gradient, the mean over `samples`, whose buckets are still to
    /// come: a block is sent when the buckets that it has part of and those before them are there.
    pub async fn run_parts<D: Destination + ?Sized>(
        &mut self,
        samples: u32,
        seen: Seen,
        parts: &Parts,
        mut values: &mut D,
    ) -> Result<Summary, ExchangeError> {
        let (purpose, pushed) = (Purpose::Gradient { samples }, Pushed::Parts(parts));
        self.go(purpose, seen, pushed, Some(&mut values)).await
    }

    /// As [`run`](Self::run), but no values come back.
    pub async fn push(
        &mut self,
        purpose: Purpose,
        seen: Seen,
        source: Source<'_, '_>,
    ) -> Result<Summary, ExchangeError> {
        self.go(purpose, seen, Pushed::Whole(source), None).await
    }

    async fn go(
        &mut self,
        purpose: Purpose,
        seen: Seen,
        pushed: Pushed<'_, '_>,
        values: Option<&mut dyn Destination>,
    ) -> Result<Summary, ExchangeError> {
        self.session.begin(purpose, seen);
        let shared = Shared {
            layout: &self.layout,
            norms: self.norms.take(),
            sender: RefCell::new(&mut self.sender),
            down: self.down,
            session: RefCell::new(&mut self.session),
            values: values.map(|values| RefCell::new(values as &mut dyn Destination)),
            pushed,
        };
        all(self.links.iter_mut().map(|link| link.exchange(&shared))).await?;
        self.sender.finish();
        Ok(self.session.finish().expect("every link has its answers"))
    }

    /// Reads every block of the slice into its range of `values`.
    pub async fn pull<D: Destination + ?Sized>(
        &mut self,
        values: &mut D,
    ) -> Result<Summary, ExchangeError> {
        self.run(Purpose::Pull, Seen::default(), &|_| Cow::default(), values)
            .await
    }
}

/// A block that the servers do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "block {block} belongs to no shard: the servers hold another model, of {blocks} blocks; use the configuration that the run was started with (config.toml in its folder)"
)]
pub struct Unplaced {
    /// Which.
    pub block: BlockId,
    /// How many they have.
    pub blocks: usize,
}

/// The blocks of a slice with the shards that they belong to.
///
/// # Errors
/// A block without one: nobody would exchange it, and its values would be whatever they were.
pub fn placed(
    slice: &[BlockId],
    placement: &Placement,
) -> Result<Vec<(BlockId, ShardId)>, Unplaced> {
    let blocks = placement.shards().len();
    let placed = |block: &BlockId| {
        let (block, shard) = (*block, placement.shard(*block));
        Ok((block, shard.ok_or(Unplaced { block, blocks })?))
    };
    slice.iter().map(placed).collect()
}

/// Runs the futures side by side on this task; the first error ends them all.
async fn all<E>(
    futures: impl Iterator<Item = impl Future<Output = Result<(), E>>>,
) -> Result<(), E> {
    futures_util::future::try_join_all(futures)
        .await
        .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_without_a_shard_is_named() {
        let placement = Placement::from_shards(vec![ShardId(1), ShardId(0)]);
        let both = placed(&[BlockId(0), BlockId(1)], &placement).unwrap();
        let want = [(BlockId(0), ShardId(1)), (BlockId(1), ShardId(0))];
        assert_eq!(both, want);
        let error = placed(&[BlockId(1), BlockId(2)], &placement).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("block 2 belongs to no shard"), "{text}");
        assert!(text.contains("of 2 blocks; use"), "{text}");
    }
}
