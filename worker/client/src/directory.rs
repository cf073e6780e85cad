//! Where the shards of a run are at the moment: heartbeats bring the news, links follow it.

use std::sync::Arc;

use tokio::sync::watch;
use tradewind_common::{Generation, ShardId};
use tradewind_proto::holding::{Endpoint, Holding};

/// Knows who answers for each shard. Clones see the same news, each at its own pace.
#[derive(Clone, Debug)]
pub struct Directory(watch::Receiver<Arc<Holding>>, watch::Receiver<bool>);

/// Brings a [`Directory`] the news.
#[derive(Clone, Debug)]
pub struct News(Arc<(watch::Sender<Arc<Holding>>, watch::Sender<bool>)>);

/// Who answers for a shard, and since when: another `since` is another log, even of the same
/// process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Primary {
    /// Where it is.
    pub endpoint: Endpoint,
    /// When it became primary.
    pub since: Generation,
}

impl Directory {
    /// A directory that begins with `holding`, and the way to tell it of later ones.
    pub fn new(holding: Holding) -> (Self, News) {
        let (news, directory) = watch::channel(Arc::new(holding));
        let (ends, over) = watch::channel(false);
        (Self(directory, over), News(Arc::new((news, ends))))
    }

    /// A directory that never changes.
    pub fn fixed(holding: Holding) -> Self {
        Self::new(holding).0
    }

    /// The newest holding that it was told.
    pub fn holding(&self) -> Arc<Holding> {
        self.0.borrow().clone()
    }

    /// Who answers for a shard; `None` while nobody does.
    pub fn primary(&self, shard: ShardId) -> Option<Primary> {
        primary(&self.0.borrow(), shard)
    }

    /// Waits for a newer holding than the one that this was asked about last. Never returns once
    /// nobody can bring news any more. May be dropped and called again.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }

    /// Waits until somebody else than `known` answers for a shard, or nobody; returns at once if
    /// it is so already. May be dropped and called again.
    pub(crate) async fn moved(&mut self, shard: ShardId, known: Option<&Primary>) {
        let other = |holding: &Arc<Holding>| primary(holding, shard).as_ref() != known;
        if self.0.wait_for(other).await.is_err() {
            std::future::pending().await
        }
    }

    /// Waits until there is nothing more to be exchanged with anybody. May be dropped and called
    /// again.
    pub(crate) async fn over(&mut self) {
        if self.1.wait_for(|over| *over).await.is_err() {
            std::future::pending().await
        }
    }
}

impl News {
    /// Tells that the lease is lost: whoever waits for an answer waits no more, for nobody may push
    /// without a lease, and nobody brings news of where the shards are.
    pub fn end(&self) {
        self.0.1.send_replace(true);
    }

    /// Tells of a holding; `false` if a newer one, or this one, is known already.
    pub fn tell(&self, holding: Holding) -> bool {
        self.0.0.send_if_modified(|known| {
            let newer = holding.generation > known.generation;
            if newer {
                *known = Arc::new(holding);
            }
            newer
        })
    }
}

fn primary(holding: &Holding, shard: ShardId) -> Option<Primary> {
    let since = holding.holders.get(shard.0 as usize)?.primary?.since;
    let endpoint = holding.primary(shard)?.clone();
    Some(Primary { endpoint, since })
}

/// For tests.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    use tradewind_common::holders::{self, Holders};
    use tradewind_common::{Incarnation, ServerId};

    use super::*;

    /// A holding of one shard: who answers for it since this generation, if anybody does.
    pub fn holding(generation: u64, primary: Option<(u32, &str)>) -> Holding {
        let generation = Generation(generation);
        let server = |(server, address): (u32, &str)| Endpoint {
            server: ServerId(server),
            incarnation: Incarnation(1),
            address: address.into(),
        };
        let since = |(server, _)| holders::Primary {
            server: ServerId(server),
            since: generation,
        };
        Holding {
            generation,
            holders: vec![Holders {
                primary: primary.map(since),
                ..Holders::default()
            }],
            servers: primary.map(server).into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::testing::holding;
    use super::*;

    const SHARD: ShardId = ShardId(0);

    fn soon(work: impl Future<Output = ()>) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let bounded = async { tokio::time::timeout(Duration::from_millis(20), work).await };
        runtime.block_on(bounded).is_ok()
    }

    #[test]
    fn only_newer_holdings_are_taken() {
        let (directory, news) = Directory::new(holding(3, Some((0, "a:1"))));
        assert!(!news.tell(holding(3, Some((1, "b:1")))));
        assert!(!news.tell(holding(2, None)));
        assert_eq!(directory.primary(SHARD).unwrap().endpoint.address, "a:1");
        assert!(news.tell(holding(4, Some((1, "b:1")))));
        assert_eq!(directory.primary(SHARD).unwrap().endpoint.address, "b:1");
        assert_eq!(directory.primary(ShardId(7)), None);
        assert!(news.tell(holding(5, None)));
        assert_eq!(directory.primary(SHARD), None);
    }

    #[test]
    fn a_move_is_noticed_whenever_it_came() {
        let (mut directory, news) = Directory::new(holding(3, Some((0, "a:1"))));
        let at_first = directory.primary(SHARD);
        assert!(!soon(directory.moved(SHARD, at_first.as_ref())));
        news.tell(holding(4, Some((1, "b:1"))));
        for _ in 0..2 {
            assert!(soon(directory.moved(SHARD, at_first.as_ref())));
        }
        let now = directory.primary(SHARD);
        assert!(!soon(directory.moved(SHARD, now.as_ref())));
        drop(news);
        assert!(!soon(directory.moved(SHARD, now.as_ref())));
        assert!(!soon(directory.changed()) || !soon(directory.changed()));
    }
}
