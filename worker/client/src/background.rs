//! An exchange behind the computation of the next step: a thread of its own, on vectors that are
//! handed over and back, so that nothing is shared and nothing locked.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tradewind_common::pieces::Measured;
use tradewind_common::schedule::Seen;
use tradewind_common::{BlockId, Clock, Layout};

use crate::core::session::{Purpose, Summary};
use crate::destination::Destination;
use crate::exchange::Exchange;
use crate::exchange_error::ExchangeError;
use crate::parts::Parts;
use crate::ranges::{Range, open};
use crate::stopwatch::Stopwatch;

/// Runs the exchanges of a rank, one at a time, while its owner computes.
///
/// Fresh values come into a `V`. Dropping it gives up the exchange that is under way, if there is
/// one, and ends the thread.
pub struct Background<V = Vec<f32>> {
    clock: Clock,
    /// Of the gradient whose exchange is started next.
    norms: Option<Measured>,
    under_way: bool,
    /// `None` only while being dropped.
    orders: Option<mpsc::Sender<Order<V>>>,
    ended: Receiver<Result<Ended<V>, ExchangeError>>,
    thread: Option<JoinHandle<()>>,
}

/// An exchange that has ended.
#[derive(Debug)]
pub struct Ended<V = Vec<f32>> {
    /// What it came to.
    pub summary: Summary,
    /// The vector that was handed over; empty after parts.
    pub gradient: Vec<f32>,
    /// The same for values; the slice's blocks are fresh.
    pub values: V,
    /// From its start to its last answer.
    pub took: Duration,
    /// How much of that its owner had to wait for: what nothing has hidden.
    pub exposed: Duration,
    /// Runs since the last answer.
    pub since: Stopwatch,
}

impl<V> Ended<V> {
    /// The values apart.
    pub fn without_values(self) -> (Ended<()>, V) {
        let ended = Ended {
            values: (),
            summary: self.summary,
            gradient: self.gradient,
            took: self.took,
            exposed: self.exposed,
            since: self.since,
        };
        (ended, self.values)
    }
}

struct Order<V> {
    /// Of the contribution, if it is one.
    clock: Clock,
    norms: Option<Measured>,
    pushed: Pushed,
    seen: Seen,
    values: V,
}

enum Pushed {
    Whole {
        purpose: Purpose,
        gradient: Vec<f32>,
    },
    Parts {
        samples: u32,
        parts: Arc<Parts>,
    },
}

impl Pushed {
    fn is_pull(&self) -> bool {
        match self {
            Self::Whole { purpose, .. } => *purpose == Purpose::Pull,
            Self::Parts { .. } => false,
        }
    }
}

impl<V: Destination + Send + 'static> Background<V> {
    /// Takes over a rank's streams, over blocks of `layout`, and the runtime on which they have run
    /// so far.
    pub fn new(exchange: Exchange, layout: Arc<Layout>, wire: Runtime) -> Self {
        // Both have room for the one exchange that may be under way, so neither side waits.
        let (orders, asked) = mpsc::channel(1);
        let (done, ended) = sync_channel(1);
        let clock = exchange.clock();
        let work = move || wire.block_on(serve(exchange, &layout, asked, &done));
        // Not supervised: `wait` goes on with its panic.
        let thread = std::thread::Builder::new()
            .name("exchange".into())
            .spawn(work);
        Self {
            clock,
            norms: None,
            under_way: false,
            orders: Some(orders),
            ended,
            thread: Some(thread.expect("the system has room for one more thread")),
        }
    }

    /// The clock of the next contribution to be started.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The group goes on at `clock`, if it is not further: see
    /// [`Session::go_on_at`](crate::core::session::Session::go_on_at).
    ///
    /// # Panics
    /// If an exchange is under way.
    pub fn go_on_at(&mut self, clock: Clock) {
        assert!(!self.under_way, "no exchange in flight");
        self.clock = self.clock.max(clock);
    }

    /// The gradient whose exchange is started next has these norms: see [`Exchange::measured`].
    pub fn measured(&mut self, norms: Measured) {
        self.norms = Some(norms);
    }

    /// Starts an exchange of every block of the slice and returns at once. `gradient` and `values`
    /// are laid out as the flat vector; only the slice's blocks are read and written.
    ///
    /// # Panics
    /// If one is under way, or the last one has failed.
    pub fn start(&mut self, purpose: Purpose, seen: Seen, gradient: Vec<f32>, values: V) {
        let clock = self.clock;
        if matches!(purpose, Purpose::Gradient { .. } | Purpose::Skip) {
            self.clock = clock.tick();
        }
        let norms = self.norms.take();
        self.order(Order {
            clock,
            norms,
            pushed: Pushed::Whole { purpose, gradient },
            seen,
            values,
        });
    }

    /// As [`start`](Self::start), of a gradient that is still to come: the mean over `samples`, in
    /// `parts`. The exchange ends only when all of them are given.
    pub fn start_parts(&mut self, samples: u32, seen: Seen, parts: Arc<Parts>, values: V) {
        let clock = self.clock;
        self.clock = clock.tick();
        let norms = self.norms.take();
        self.order(Order {
            clock,
            norms,
            pushed: Pushed::Parts { samples, parts },
            seen,
            values,
        });
    }

    fn order(&mut self, order: Order<V>) {
        assert!(!self.under_way, "one exchange in flight");
        self.under_way = true;
        let orders = self.orders.as_ref().expect("not being dropped");
        let sent = orders.try_send(order);
        assert!(sent.is_ok(), "the exchange before this one has failed");
    }

    /// Reads every block of the slice into its range of `values`; returns when they are there. No
    /// contribution, so the clock stays.
    ///
    /// # Panics
    /// If an exchange is under way, or the last one has failed.
    pub fn pull(&mut self, values: V) -> Result<(Summary, V), ExchangeError> {
        self.start(Purpose::Pull, Seen::default(), Vec::new(), values);
        let Ended {
            summary, values, ..
        } = self.wait()?;
        Ok((summary, values))
    }

    /// Waits for the end of the exchange that was started, and gives the vectors back. After an
    /// error there is no going on: drop it.
    ///
    /// # Panics
    /// If none was started.
    pub fn wait(&mut self) -> Result<Ended<V>, ExchangeError> {
        assert!(self.under_way, "an exchange was started");
        self.under_way = false;
        let watch = Stopwatch::start();
        let Ok(result) = self.ended.recv() else {
            let thread = self.thread.take().expect("joined only when it has died");
            std::panic::resume_unwind(thread.join().expect_err("it ends early only by a panic"));
        };
        result.map(|ended| Ended {
            exposed: watch.elapsed(),
            ..ended
        })
    }
}

impl<V> Drop for Background<V> {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it was reported by `wait`, or concerns nobody any more.
            let _ = thread.join();
        }
    }
}

/// Runs what is ordered until an exchange fails or nobody can order any more.
async fn serve<V: Destination>(
    mut exchange: Exchange,
    layout: &Layout,
    mut orders: mpsc::Receiver<Order<V>>,
    done: &SyncSender<Result<Ended<V>, ExchangeError>>,
) {
    while let Some(order) = orders.recv().await {
        let result = tokio::select! {
            result = order.run(&mut exchange, layout) => result,
            // One at a time: what comes before its end is the end of all.
            _ = orders.recv() => return,
        };
        let failed = result.is_err();
        if done.send(result).is_err() || failed {
            return;
        }
    }
}

impl<V: Destination> Order<V> {
    async fn run(
        mut self,
        exchange: &mut Exchange,
        layout: &Layout,
    ) -> Result<Ended<V>, ExchangeError> {
        // A pull is no exchange of its own: its clock is that of the exchange to come.
        let _open = (!self.pushed.is_pull()).then(|| open(Range::Exchange(exchange.clock())));
        let watch = Stopwatch::start();
        exchange.go_on_at(self.clock);
        if let Some(norms) = self.norms.take() {
            exchange.measured(norms);
        }
        let (seen, values) = (self.seen, &mut self.values);
        let (summary, gradient) = match self.pushed {
            Pushed::Whole { purpose, gradient } => {
                let source = |id: BlockId| {
                    let block = layout.block(id).expect("a block of the slice");
                    Cow::Borrowed(&gradient[block.elements.clone()])
                };
                (
                    exchange.run(purpose, seen, &source, values).await?,
                    gradient,
                )
            }
            Pushed::Parts { samples, parts } => {
                let summary = exchange.run_parts(samples, seen, &parts, values).await?;
                (summary, Vec::new())
            }
        };
        Ok(Ended {
            summary,
            gradient,
            values: self.values,
            took: watch.elapsed(),
            exposed: Duration::ZERO,
            since: Stopwatch::start(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use tradewind_common::{GroupId, Incarnation, RunId, ShardId, TensorKind, layout::TensorSpec};
    use tradewind_proto::auth::Credentials;

    use super::*;
    use crate::core::session::{Identity, Session};
    use crate::directory::{Directory, testing::holding};
    use crate::network::{Reach, wire};

    /// For a slow and noisy machine; a hang fails the test.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A rank whose only block lies on a server at `address`.
    fn background(address: String, retry: Duration) -> Background {
        let weight = TensorSpec {
            name: "weight".into(),
            shape: vec![4],
            kind: TensorKind::Parameter,
        };
        let layout = Arc::new(Layout::new(&[weight], 64).unwrap());
        let identity = Identity {
            run: RunId::new("r").unwrap(),
            group: GroupId(0),
            incarnation: Incarnation(1),
        };
        let session = Session::new(identity, Clock(5), [(BlockId(0), ShardId(0))]);
        let directory = Directory::fixed(holding(1, Some((0, &address))));
        let credentials = Credentials::default();
        let reach = Reach {
            credentials,
            retry,
            connections: 1,
        };
        let exchange = Exchange::new(layout.clone(), session, &directory, &reach);
        Background::new(exchange, layout, wire().unwrap())
    }

    fn start(background: &mut Background) {
        let purpose = Purpose::Gradient { samples: 1 };
        background.start(purpose, Seen::default(), vec![1.0; 4], vec![0.0; 4]);
    }

    /// What `work` comes to, unless it hangs.
    fn ends<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, ended) = sync_channel(1);
        std::thread::spawn(move || done.send(work()));
        ended.recv_timeout(PATIENCE).expect("it ends")
    }

    #[test]
    fn an_exchange_that_fails_is_told_to_whoever_waits() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        drop(free);
        let mut background = background(address, Duration::ZERO);
        assert_eq!(background.clock(), Clock(5));
        start(&mut background);
        assert_eq!(background.clock(), Clock(6));
        let error = ends(move || background.wait().map(drop)).unwrap_err();
        assert!(
            matches!(error, ExchangeError::Unreachable { shard, .. } if shard == ShardId(0)),
            "{error}"
        );
    }

    #[test]
    fn dropping_it_gives_up_what_is_under_way() {
        // Takes connections and never says a word.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let mut background = background(address, Duration::MAX);
        start(&mut background);
        ends(move || drop(background));
    }

    #[test]
    fn dropping_it_idle_ends_its_thread() {
        let background = background("127.0.0.1:1".into(), Duration::ZERO);
        ends(move || drop(background));
    }
}
