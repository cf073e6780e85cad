//! The training loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tradewind_common::finite::all_finite;
use tradewind_common::record::StepRecord;
use tradewind_common::{BlockId, GroupId, Incarnation, Layout, Rank, TensorKind};

use crate::buffers::Buffers;
use crate::feed::{Feed, FeedError};
use crate::flat::Flat;
use crate::group::{Group, GroupError};
use crate::model::Task;
use crate::telemetry::{Recorder, wall};
use tradewind_client::core::session::{Purpose, Summary};
use tradewind_client::exchange::{Exchange, ExchangeError};
use tradewind_client::membership::{Coordinator, Seat};
use tradewind_client::stopwatch::Stopwatch;

/// Everything that a rank trains with.
pub struct Worker {
    /// Model, loss, data.
    pub task: Box<dyn Task>,
    /// Its parameters as one vector.
    pub flat: Flat,
    /// The flat vector's blocks.
    pub layout: Arc<Layout>,
    /// The ranks that step together.
    pub group: Box<dyn Group>,
    /// The streams to the shards.
    pub exchange: Exchange,
    /// Which samples come next.
    pub feed: Feed,
    /// Statistics that the model keeps.
    pub buffers: Buffers,
    /// Where data are leased.
    pub coordinator: Coordinator,
    /// Who this is.
    pub seat: Seat,
    /// Which life of the group.
    pub incarnation: Incarnation,
    /// Where exchanges and leases run.
    pub runtime: Handle,
    /// What heartbeats tell.
    pub clock: Arc<AtomicU64>,
    /// Where rank 0 writes its steps down.
    pub recorder: Recorder,
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
    /// The training has diverged, or the data are not finite.
    #[error(
        "{SKIPS_MAX} exchanges in a row had no finite gradient (the last at clock {clock}): training has diverged; lower optimizer.learning_rate or lengthen schedule.warmup_samples"
    )]
    Diverged {
        /// The last of them.
        clock: u64,
    },
}

/// A group that has skipped so many exchanges in a row gives up: nothing would ever be applied.
pub const SKIPS_MAX: u32 = 100;

impl Worker {
    /// Trains until the shards say stop. `samples_seen` is what they have applied so far.
    pub fn train(&mut self, mut samples_seen: u64) -> Result<(), TrainError> {
        let mut skips = 0;
        loop {
            let mut watch = Stopwatch::start();
            let batch = self.next_batch()?;
            let loss = self.task.loss(&batch);
            let exposed = self.group.backward(&loss)?;
            let compute = watch.lap().saturating_sub(exposed);

            let step = self.agree(
                f64::try_from(&loss).unwrap_or(f64::NAN),
                batch.samples.len(),
            )?;
            let agree = watch.lap();
            let clock = self.exchange.clock();
            let summary = self.exchange(step.purpose, samples_seen)?;
            let exchange = watch.lap();
            self.group.gather(self.flat.values_mut())?;
            let summary = over_ranks(&*self.group, summary)?;
            let reduce = exposed + agree + watch.lap();

            self.buffers.pulled(self.flat.values());
            self.feed.done();
            self.clock.store(self.exchange.clock().0, Ordering::Relaxed);
            samples_seen = summary.samples_applied;
            self.record(clock.0, &step, &summary, [compute, reduce, exchange]);
            if summary.stop {
                return Ok(());
            }
            skips = if step.purpose == Purpose::Skip {
                skips + 1
            } else {
                0
            };
            if skips == SKIPS_MAX {
                return Err(TrainError::Diverged { clock: clock.0 });
            }
        }
    }

    fn next_batch(&mut self) -> Result<crate::data::Batch, FeedError> {
        let Self {
            feed,
            group,
            coordinator,
            seat,
            incarnation,
            runtime,
            ..
        } = self;
        feed.next(&**group, &mut |finished, held| {
            runtime.block_on(coordinator.lease_chunk(seat, *incarnation, finished, held))
        })
    }

    /// Ranks agree on finiteness before the first block leaves (rule 7), and on the mean loss.
    fn agree(&mut self, loss: f64, samples: usize) -> Result<Step, GroupError> {
        let buckets = 0..self.layout.buckets.len();
        let gradients = buckets
            .filter_map(|bucket| self.group.gradient(bucket))
            .all(all_finite);
        let buffers = self.buffers.changed(self.flat.values(), &*self.group)?;
        let mut sums = [
            loss * samples as f64,
            samples as f64,
            f64::from(u8::from(!(gradients && buffers))),
        ];
        self.group.all_reduce_sum(&mut sums)?;
        let [loss, samples, not_finite] = sums;
        let purpose = if not_finite > 0.0 {
            tracing::warn!(clock = %self.exchange.clock(), "no finite gradient: the group skips this exchange");
            Purpose::Skip
        } else {
            Purpose::Gradient {
                samples: samples as u32,
            }
        };
        Ok(Step {
            purpose,
            loss: loss / samples,
            samples: samples as u64,
        })
    }

    fn exchange(&mut self, purpose: Purpose, samples_seen: u64) -> Result<Summary, ExchangeError> {
        let Self {
            exchange,
            flat,
            group,
            layout,
            buffers,
            runtime,
            ..
        } = self;
        let source = |id: BlockId| {
            let block = layout.block(id).expect("a block of the slice");
            match block.kind {
                TensorKind::Parameter => gradient_of(&**group, layout, id),
                TensorKind::Buffer => buffers.changes(&block.elements),
            }
        };
        runtime.block_on(exchange.run(purpose, samples_seen, &source, flat.values_mut()))
    }

    fn record(&mut self, clock: u64, step: &Step, summary: &Summary, spent: [Duration; 3]) {
        if self.group.rank() != Rank(0) {
            return;
        }
        let [compute, reduce, exchange] = spent.map(|d| d.as_secs_f64());
        let wait_seconds = summary.waited_us as f64 / 1e6;
        let GroupId(group) = self.seat.group;
        self.recorder.write(&StepRecord {
            wall: wall(),
            group,
            clock,
            loss: Some(step.loss).filter(|loss| loss.is_finite()),
            samples: step.samples,
            samples_applied: summary.samples_applied,
            updates: summary.updates,
            lag: summary.lag,
            delay: summary.delay,
            skipped: step.purpose == Purpose::Skip,
            compute_seconds: compute,
            reduce_seconds: reduce,
            exchange_seconds: (exchange - wait_seconds).max(0.0),
            wait_seconds,
        });
    }
}

/// What the ranks agreed on.
struct Step {
    purpose: Purpose,
    loss: f64,
    samples: u64,
}

fn gradient_of<'a>(group: &'a dyn Group, layout: &Layout, id: BlockId) -> &'a [f32] {
    let holds = |blocks: &std::ops::Range<usize>| blocks.contains(&(id.0 as usize));
    let at = layout
        .buckets
        .iter()
        .position(|b| holds(&b.blocks))
        .expect("every block has a bucket");
    let (bucket, block) = (&layout.buckets[at], &layout.blocks[id.0 as usize]);
    let gradient = group.gradient(at).expect("parameters have a gradient");
    let start = block.elements.start - bucket.elements.start;
    &gradient[start..start + block.elements.len()]
}

/// The summary over the blocks of all ranks: every rank puts its own numbers into its slots of a
/// sum, and all take the largest. Counts stay exact below 2^53.
fn over_ranks(group: &dyn Group, own: Summary) -> Result<Summary, GroupError> {
    const FIELDS: usize = 6;
    let mut slots = vec![0.0; FIELDS * group.size() as usize];
    let at = FIELDS * group.rank().0 as usize;
    slots[at..at + FIELDS].copy_from_slice(&[
        own.updates as f64,
        own.delay.map_or(0.0, |delay| delay as f64 + 1.0),
        own.lag as f64,
        own.waited_us as f64,
        own.samples_applied as f64,
        f64::from(u8::from(own.stop)),
    ]);
    group.all_reduce_sum(&mut slots)?;
    let largest = |field: usize| {
        slots
            .iter()
            .skip(field)
            .step_by(FIELDS)
            .fold(0.0, |a, b| f64::max(a, *b))
    };
    Ok(Summary {
        updates: largest(0) as u64,
        delay: (largest(1) as u64).checked_sub(1),
        lag: largest(2) as u64,
        waited_us: largest(3) as u64,
        samples_applied: largest(4) as u64,
        stop: largest(5) > 0.0,
    })
}
