//! A rank that takes part in a run through the real client, without a model: it pushes the gradients
//! that a test makes up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tradewind_client::coordinator::{Coordinator, Joined, MembershipError, RankId, Start};
use tradewind_client::core::session::{Identity, Purpose, Session, Summary};
use tradewind_client::directory::{Directory, News};
use tradewind_client::exchange::{Exchange, placed};
use tradewind_client::exchange_error::ExchangeError;
use tradewind_client::heartbeat::HeartbeatState;
use tradewind_client::lease::{Heartbeat, Lease, keep_lease};
use tradewind_client::network::Reach;
use tradewind_common::identity::Identity as Certified;
use tradewind_common::schedule::Seen;
use tradewind_common::spec::RunSpec;
use tradewind_common::{BlockId, Clock, GroupId, Incarnation, Layout, Rank, RunId};

use super::client::ANSWER;
use super::fleet::Fleet;

/// Beats in a lease.
const BEATS: u32 = 5;

/// Longest pause between two beats, so that news of another primary come soon.
const BEAT: Duration = Duration::from_millis(200);

/// Who takes part.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    /// The run.
    pub run: &'a str,
    /// The group.
    pub group: u32,
    /// The rank in it, as configured.
    pub rank: u32,
    /// Names the process.
    pub life: u64,
    /// The incarnation of the group that has broken, for a rank that joins again.
    pub after: u64,
}

impl<'a> Who<'a> {
    /// The only rank of a group, in its only process.
    pub fn group(run: &'a str, group: u32) -> Self {
        Self {
            run,
            group,
            rank: 0,
            life: 1,
            after: 0,
        }
    }
}

/// One rank of a group.
pub struct Member {
    /// The run's blocks.
    pub layout: Arc<Layout>,
    /// The flat vector, of which the last exchange has left this rank's slice.
    pub values: Vec<f32>,
    /// That of its group.
    pub incarnation: Incarnation,
    exchange: Exchange,
    seen: Seen,
    kept: Option<Kept>,
}

/// A lease that is kept.
struct Kept {
    heartbeat: Arc<HeartbeatState>,
    lost: Arc<AtomicBool>,
    _beats: Heartbeat,
}

/// One that has joined and does not yet push.
pub struct Joining {
    /// What the join brought.
    pub joined: Joined,
    layout: Arc<Layout>,
    spec: RunSpec,
    id: RankId,
    reach: Reach,
    coordinator: Coordinator,
    directory: Directory,
    news: News,
    kept: Option<Kept>,
}

impl Joining {
    /// Joins as the only rank of `group` of `run`.
    ///
    /// # Panics
    /// If that is refused.
    pub async fn join(fleet: &Fleet, (run, group): (&str, u32), spec: &RunSpec) -> Self {
        let joined = Self::try_join(fleet, Who::group(run, group), spec).await;
        joined.expect("the group joins")
    }

    /// Joins.
    ///
    /// # Errors
    /// If that is refused.
    ///
    /// # Panics
    /// If the specification cannot be followed.
    pub async fn try_join(
        fleet: &Fleet,
        who: Who<'_>,
        spec: &RunSpec,
    ) -> Result<Self, MembershipError> {
        let id = RankId {
            run: RunId::new(who.run).expect("a name"),
            group: GroupId(who.group),
            rank: Rank(who.rank),
        };
        let certified = Certified::Rank {
            run: id.run.clone(),
            group: id.group,
            rank: Some(id.rank),
        };
        let reach = reach(fleet, &certified, ANSWER);
        let mut coordinator = Coordinator::new(fleet.coordinator(), reach.clone());
        let after = Incarnation(who.after);
        let joined = coordinator.join(&id, who.life, spec, "", after).await?;
        let (directory, news) = Directory::new(joined.holding.clone());
        let layout = spec.layout_within(joined.bucket_bytes);
        Ok(Self {
            joined,
            layout: Arc::new(layout.expect("a specification that can be followed")),
            spec: spec.clone(),
            id,
            reach,
            coordinator,
            directory,
            news,
            kept: None,
        })
    }

    /// Reaches servers at other addresses than they told, in their order; news of others do not
    /// count.
    #[must_use]
    pub fn through(mut self, addresses: &[String]) -> Self {
        let holding = &mut self.joined.holding;
        for (server, address) in holding.servers.iter_mut().zip(addresses) {
            server.address.clone_from(address);
        }
        (self.directory, self.news) = Directory::new(holding.clone());
        self
    }

    /// Keeps its lease from now on, and follows what the beats tell.
    #[must_use]
    pub fn keeping(mut self) -> Self {
        let length = Duration::from_millis(self.spec.lease_ms);
        let heartbeat = Arc::<HeartbeatState>::default();
        let lost = Arc::<AtomicBool>::default();
        let lease = Lease {
            id: self.id.clone(),
            incarnation: self.joined.incarnation,
            pause: (length / BEATS).min(BEAT),
            length,
            heartbeat: heartbeat.clone(),
            news: self.news.clone(),
        };
        let over = lost.clone();
        let beats = keep_lease(&self.coordinator, lease, move |_| {
            over.store(true, Ordering::Relaxed);
        });
        self.kept = Some(Kept {
            heartbeat,
            lost,
            _beats: beats,
        });
        self
    }

    /// Creates `initial` if it is told to, waits until it may push, and pulls.
    ///
    /// # Panics
    /// If any of it is refused.
    pub async fn begin(self, initial: &[f32]) -> Member {
        let begun = self.try_begin(initial).await;
        begun.expect("it may begin")
    }

    /// As [`begin`](Self::begin).
    ///
    /// # Errors
    /// If the group breaks before it has begun.
    ///
    /// # Panics
    /// If a server refuses its frames.
    pub async fn try_begin(mut self, initial: &[f32]) -> Result<Member, MembershipError> {
        let mut created = false;
        let start = loop {
            let incarnation = self.joined.incarnation;
            let ready = self.coordinator.await_ready(&self.id, incarnation, created);
            match ready.await? {
                Start::At(clock) => break clock,
                Start::Create => {
                    let source = |id: BlockId| {
                        initial[self.layout.blocks[id.0 as usize].elements.clone()].into()
                    };
                    let mut exchange = self.exchange(Clock(0));
                    let made = exchange
                        .push(Purpose::Create, Seen::default(), &source)
                        .await;
                    made.expect("it may create");
                    created = true;
                }
            }
        };
        let mut exchange = self.exchange(start);
        let mut values = vec![f32::NAN; self.layout.elements()];
        let pulled = exchange.pull(&mut values).await.expect("it may pull");
        Ok(Member {
            seen: pulled.seen(),
            incarnation: self.joined.incarnation,
            layout: self.layout,
            values,
            exchange,
            kept: self.kept,
        })
    }

    fn exchange(&self, start: Clock) -> Exchange {
        let identity = Identity {
            run: self.id.run.clone(),
            group: self.id.group,
            incarnation: self.joined.incarnation,
        };
        let slice = self
            .layout
            .slice(self.joined.group_rank, self.joined.group_size);
        let blocks = placed(&slice, &self.joined.placement).expect("the run's model");
        let session = Session::new(identity, start, blocks);
        Exchange::new(self.layout.clone(), session, &self.directory, &self.reach)
            .compressing(self.spec.up, self.spec.down)
    }
}

impl Member {
    /// The clock of the next exchange.
    pub fn clock(&self) -> u64 {
        self.exchange.clock().0
    }

    /// Whether it was told that this incarnation of its group is over.
    pub fn lost(&self) -> bool {
        let kept = self.kept.as_ref();
        kept.is_some_and(|kept| kept.lost.load(Ordering::Relaxed))
    }

    /// Whether its group was asked to leave.
    pub fn asked_to_leave(&self) -> bool {
        self.kept
            .as_ref()
            .is_some_and(|kept| kept.heartbeat.leave())
    }

    /// One exchange of a flat gradient, the mean over so many samples.
    ///
    /// # Errors
    /// If a server refuses or cannot be reached.
    ///
    /// # Panics
    /// If it has not ended after a minute.
    pub async fn push(&mut self, gradient: &[f32], samples: u32) -> Result<Summary, ExchangeError> {
        let layout = self.layout.clone();
        let source = |id: BlockId| gradient[layout.blocks[id.0 as usize].elements.clone()].into();
        let purpose = Purpose::Gradient { samples };
        let run = self
            .exchange
            .run(purpose, self.seen, &source, &mut self.values);
        let done = tokio::time::timeout(ANSWER, run)
            .await
            .expect("an exchange ends");
        if let Ok(summary) = &done {
            self.seen = summary.seen();
        }
        if let Some(kept) = &self.kept {
            kept.heartbeat.set_clock(self.exchange.clock());
        }
        done
    }
}

/// All values of a run, as nobody in particular reads them.
///
/// # Panics
/// If they cannot be read.
pub async fn read(fleet: &Fleet, run: &str, layout: &Arc<Layout>) -> Vec<f32> {
    // A server that has just come back answers for its shards when it has heard that they are its own.
    let reach = reach(fleet, &Certified::Person(None), Duration::from_secs(10));
    let run = RunId::new(run).expect("a name");
    let mut coordinator = Coordinator::new(fleet.coordinator(), reach.clone());
    let placed_as = coordinator.placement(&run).await.expect("a run");
    let nobody = Identity {
        run,
        group: GroupId(0),
        incarnation: Incarnation(0),
    };
    let all: Vec<BlockId> = layout.blocks.iter().map(|block| block.id).collect();
    let blocks = placed(&all, &placed_as.placement).expect("the run's model");
    let session = Session::new(nobody, Clock(0), blocks);
    let directory = Directory::fixed(placed_as.holding);
    let mut exchange = Exchange::new(layout.clone(), session, &directory, &reach);
    let mut values = vec![f32::NAN; layout.elements()];
    exchange
        .pull(&mut values)
        .await
        .expect("everybody may read");
    values
}

fn reach(fleet: &Fleet, certified: &Certified, retry: Duration) -> Reach {
    Reach {
        credentials: fleet.credentials_of(certified),
        retry,
        connections: 1,
    }
}
