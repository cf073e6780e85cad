//! The training loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tch::Tensor;
use tradewind_common::finite::all_finite;
use tradewind_common::record::StepRecord;
use tradewind_common::schedule::Seen;
use tradewind_common::{BlockId, GroupId, Incarnation, Layout, Rank, TensorKind};

use crate::buffers::Buffers;
use crate::c10d;
use crate::exchanges::{Ended, Exchanges, Step, over_ranks};
use crate::feed::{Feed, FeedError};
use crate::fence::Guard;
use crate::group::{Group, GroupError};
use crate::member::Member;
use crate::pace::Pace;
use crate::telemetry::wall;
use tradewind_client::core::session::Purpose;
use tradewind_client::exchange::ExchangeError;
use tradewind_client::stopwatch::Stopwatch;

/// Everything that a rank trains with in one life of its group.
pub struct Worker<'a> {
    /// What it has in all of them.
    pub member: &'a mut Member,
    /// The ranks that step together.
    pub group: Box<dyn Group>,
    /// The streams to the shards, and when they are used.
    pub exchanges: Exchanges,
    /// Which samples come next.
    pub feed: Feed,
    /// Statistics that the model keeps.
    pub buffers: Buffers,
    /// Which life of the group.
    pub incarnation: Incarnation,
    /// What heartbeats tell.
    pub clock: Arc<AtomicU64>,
    /// Knows whether the lease is lost.
    pub guard: Guard,
    /// Whether an exchange has ended.
    pub exchanged: bool,
}

/// Why training ended before the budget.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// No next batch.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// The group broke.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// A shard refused, or is gone.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The coordinator has taken the group out, or has not been heard for too long.
    #[error("the lease is lost")]
    LeaseLost,
    /// The training has diverged, or the data are not finite.
    #[error(
        "{SKIPS_MAX} exchanges in a row had no finite gradient, or not of all (the last at clock {clock}): training has diverged; lower optimizer.learning_rate or lengthen schedule.warmup_samples"
    )]
    Diverged {
        /// The last of them.
        clock: u64,
    },
}

/// A group that has skipped so many exchanges in a row, or a part of each, gives up: something of
/// the model would never be trained.
pub const SKIPS_MAX: u32 = 100;

impl Worker<'_> {
    /// Trains until the shards say stop. `seen` is what they have applied so far.
    pub fn train(&mut self, mut seen: Seen) -> Result<(), TrainError> {
        let pace = Pace::new(Duration::from_secs_f64(self.member.config.step_seconds));
        let mut skips = 0;
        loop {
            if self.guard.is_lost() {
                return Err(TrainError::LeaseLost);
            }
            let mut watch = Stopwatch::start();
            let batch = self.next_batch()?;
            let loss = self.member.task.loss(&batch);
            self.begin(batch.samples.len(), seen);
            let exposed = self.group.backward(&loss)?;
            let mut compute = watch.lap().saturating_sub(exposed);
            pace.keep(compute);
            compute += watch.lap();

            let mut step = self.agree(&loss, batch.samples.len())?;
            step.compute = compute;
            step.reduce = exposed + watch.lap();
            // With overlap it is the exchange of the step before that ends here.
            let Some(ended) = self.exchange(step, seen)? else {
                continue;
            };

            let Ended { step, summary, .. } = ended;
            self.feed.done();
            self.exchanged = true;
            self.clock.store(step.clock.tick().0, Ordering::Relaxed);
            seen = summary.seen();
            self.record(&ended);
            if summary.stop {
                return Ok(());
            }
            let skipped = step.buckets_skipped > 0;
            skips = if skipped { skips + 1 } else { 0 };
            if skips == SKIPS_MAX {
                let clock = step.clock.0;
                return Err(TrainError::Diverged { clock });
            }
        }
    }

    fn next_batch(&mut self) -> Result<crate::data::Batch, FeedError> {
        let Self {
            member,
            feed,
            group,
            incarnation,
            ..
        } = self;
        let Member {
            coordinator,
            seat,
            runtime,
            ..
        } = &mut **member;
        feed.next(&**group, &mut |finished, held| {
            runtime.block_on(coordinator.lease_chunk(seat, *incarnation, finished, held))
        })
    }

    /// By bucket an exchange begins before the gradient is there.
    fn begin(&mut self, samples: usize, seen: Seen) {
        if let Exchanges::During(during) = &mut self.exchanges {
            // Batches are equal: the feed drops what fills none.
            let samples = samples as u32 * self.group.size();
            during.begin(samples, seen);
        }
    }

    /// Ranks agree on finiteness before the first block leaves (rule 7), and on the mean loss. By
    /// bucket they have come to the same result about the gradient, and agree about the buffers.
    fn agree(&mut self, loss: &Tensor, samples: usize) -> Result<Step, GroupError> {
        let loss = f64::try_from(loss).unwrap_or(f64::NAN);
        let layout = &self.member.layout;
        let buckets = layout.buckets.len();
        let bad = match &self.exchanges {
            Exchanges::During(during) => during.skipped(),
            Exchanges::Between(..) | Exchanges::Behind(_) => {
                let gradients = (0..buckets).filter_map(|bucket| self.group.gradient(bucket));
                gradients
                    .filter(|gradient| !all_finite(plain(gradient)))
                    .count()
            }
        };
        let buffers = self
            .buffers
            .changed(self.member.flat.values(), &*self.group)?;
        let mut sums = [
            loss * samples as f64,
            samples as f64,
            f64::from(u8::from(bad > 0 || !buffers)),
        ];
        self.group.all_reduce_sum(&mut sums)?;
        let [loss, samples, not_finite] = sums;
        let clock = self.exchanges.clock();
        let buckets_skipped = match &self.exchanges {
            _ if not_finite == 0.0 => 0,
            Exchanges::During(_) => bad + layout.count(TensorKind::Buffer),
            Exchanges::Between(..) | Exchanges::Behind(_) => buckets,
        };
        if buckets_skipped > 0 {
            tracing::warn!(%clock, buckets_skipped, buckets, "no finite gradient: the group skips");
        }
        let purpose = if buckets_skipped == buckets {
            Purpose::Skip
        } else {
            Purpose::Gradient {
                samples: samples as u32,
            }
        };
        Ok(Step {
            clock,
            purpose,
            buckets_skipped,
            loss: loss / samples,
            samples: samples as u64,
            compute: Duration::ZERO,
            reduce: Duration::ZERO,
        })
    }

    /// The exchange of this step. With overlap it is only started, once that of the step before,
    /// if there was one, has ended; unless that one's answers said stop.
    fn exchange(&mut self, mut step: Step, seen: Seen) -> Result<Option<Ended>, TrainError> {
        let Self {
            member,
            exchanges,
            group,
            buffers,
            ..
        } = self;
        let Member { flat, layout, .. } = &mut **member;
        let pushed = |id| pushed(&**group, layout, buffers, id);
        match exchanges {
            Exchanges::Between(exchange, wire) => {
                let mut watch = Stopwatch::start();
                let run = exchange.run(step.purpose, seen, &pushed, flat.values_mut());
                let own = wire.block_on(run)?;
                let took = watch.lap();
                group.gather(flat)?;
                let summary = over_ranks(&**group, own)?;
                buffers.pulled(flat.values());
                step.reduce += watch.lap();
                Ok(Some(Ended {
                    step,
                    summary,
                    took,
                    exposed: took,
                    wall: wall(),
                }))
            }
            Exchanges::During(during) => {
                let finite = step.buckets_skipped == 0;
                let exchanged = during.finish(finite.then_some(&*buffers))?;
                let mut watch = Stopwatch::start();
                during.load(flat.values_mut());
                group.gather(flat)?;
                let summary = over_ranks(&**group, exchanged.summary)?;
                buffers.pulled(flat.values());
                step.reduce += watch.lap();
                Ok(Some(Ended {
                    step,
                    summary,
                    took: exchanged.took,
                    exposed: exchanged.exposed,
                    wall: wall(),
                }))
            }
            Exchanges::Behind(behind) => {
                let mut ended = behind.wait()?;
                let watch = Stopwatch::start();
                let mut seen = seen;
                if let Some(Ended { summary, .. }) = &mut ended {
                    *summary = over_ranks(&**group, *summary)?;
                    if summary.stop {
                        return Ok(ended);
                    }
                    seen = summary.seen();
                }
                behind.load(flat.values_mut());
                behind.start(step, seen, pushed);
                group.gather(flat)?;
                match step.purpose {
                    // What is not finite, and the changes that came with it, go nowhere.
                    Purpose::Skip => buffers.pulled(flat.values()),
                    _ => buffers.pulled_without_changes(flat.values_mut()),
                }
                behind.add_reduce(watch.elapsed());
                Ok(ended)
            }
        }
    }

    fn record(&mut self, ended: &Ended) {
        if self.group.rank() != Rank(0) {
            return;
        }
        let Ended { step, summary, .. } = ended;
        let wait_seconds = summary.waited_us as f64 / 1e6;
        let GroupId(group) = self.member.seat.group;
        self.member.recorder.write(&StepRecord {
            wall: ended.wall,
            group,
            clock: step.clock.0,
            loss: Some(step.loss).filter(|loss| loss.is_finite()),
            samples: step.samples,
            samples_applied: summary.samples_applied,
            updates: summary.updates,
            lag: summary.lag,
            delay: summary.delay,
            skipped: step.purpose == Purpose::Skip,
            buckets_skipped: step.buckets_skipped as u64,
            compute_seconds: step.compute.as_secs_f64(),
            reduce_seconds: step.reduce.as_secs_f64(),
            exchange_seconds: (ended.took.as_secs_f64() - wait_seconds).max(0.0),
            exposed_seconds: ended.exposed.as_secs_f64(),
            wait_seconds,
        });
    }
}

/// What a step pushes for a block: the gradient of parameters, the changes of buffers.
fn pushed<'a>(
    group: &'a dyn Group,
    layout: &Layout,
    buffers: &'a Buffers,
    id: BlockId,
) -> &'a [f32] {
    let block = layout.block(id).expect("a block of the slice");
    match block.kind {
        TensorKind::Parameter => gradient_of(group, layout, id),
        TensorKind::Buffer => buffers.changes(&block.elements),
    }
}

fn gradient_of<'a>(group: &'a dyn Group, layout: &Layout, id: BlockId) -> &'a [f32] {
    let holds = |blocks: &std::ops::Range<usize>| blocks.contains(&(id.0 as usize));
    let at = layout
        .buckets
        .iter()
        .position(|b| holds(&b.blocks))
        .expect("every block has a bucket");
    let (bucket, block) = (&layout.buckets[at], &layout.blocks[id.0 as usize]);
    let gradient = plain(group.gradient(at).expect("parameters have a gradient"));
    let start = block.elements.start - bucket.elements.start;
    &gradient[start..start + block.elements.len()]
}

fn plain(gradient: &Tensor) -> &[f32] {
    c10d::values(gradient).expect("the group is in main memory, and no bucket is empty")
}
