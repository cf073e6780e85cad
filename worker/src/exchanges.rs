//! How a rank's exchanges stand to its steps: between them, with overlap behind them, or by bucket
//! during them.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tradewind_client::background::Background;
use tradewind_client::core::session::{Purpose, Summary};
use tradewind_client::destination::Destination;
use tradewind_client::exchange::Exchange;
use tradewind_client::exchange_error::ExchangeError;
use tradewind_common::pieces::Measured;
use tradewind_common::schedule::Seen;
use tradewind_common::{BlockId, Clock, Layout};

use crate::during::During;
use crate::flat::Flat;
use crate::group::{Group, GroupError};
use crate::host::{Fresh, HostError, Pushed};
use crate::precision::SCALE_MIN;
use crate::telemetry::wall;

/// How exchanges stand to steps.
pub enum Exchanges {
    /// Overlap 0: a step's exchange has ended before the next step begins.
    Between(Box<Between>),
    /// Overlap 1: it runs behind the next step, θₜ₊₁ = θₜ − η g(θₜ₋₁) for one group: the gradient lag of
    /// Kurth et al. 2018, "Exascale Deep Learning for Climate Analytics", section V-B.
    Behind(Behind),
    /// Overlap 0, by bucket: it runs during the step's own backward.
    During(During),
}

impl Exchanges {
    /// The clock of the next contribution to be started.
    pub fn next_clock(&self) -> Clock {
        match self {
            Self::During(during) => during.next_clock(),
            Self::Between(..) | Self::Behind(_) => self.clock(),
        }
    }

    /// The clock of the contribution of the step at hand.
    pub fn clock(&self) -> Clock {
        match self {
            Self::Between(between) => between.exchange.clock(),
            Self::Behind(behind) => behind.background.clock(),
            Self::During(during) => during.clock(),
        }
    }

    /// The gradient of the step at hand has these norms.
    ///
    /// # Panics
    /// By bucket, where a gradient is pushed before all of it is known: the configuration refuses
    /// optimizers that ask for norms there.
    pub fn measured(&mut self, norms: Measured) {
        match self {
            Self::Between(between) => between.exchange.measured(norms),
            Self::Behind(behind) => behind.background.measured(norms),
            Self::During(_) => unreachable!("refused by the configuration"),
        }
    }

    /// When the exchange of a step has ended: the group goes on at `clock`, if it is not further.
    /// The clock of the step that comes next.
    pub fn go_on_at(&mut self, clock: Clock) -> Clock {
        match self {
            Self::Between(between) => {
                between.exchange.go_on_at(clock);
                between.exchange.clock()
            }
            // It did so before it started the exchange that is under way.
            Self::Behind(behind) => behind.background.clock(),
            Self::During(during) => during.go_on_at(clock),
        }
    }
}

/// A step whose gradient is there.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Of its exchange.
    pub clock: Clock,
    /// What the ranks agreed to do with the gradient: a skip is one of all of it.
    pub purpose: Purpose,
    /// Buckets that are skipped.
    pub buckets_skipped: usize,
    /// Because gradients of the scaled loss overflowed; of several steps as one, in all of them.
    pub overflowed: bool,
    /// What the loss was multiplied by, and the gradient is divided by, if it was.
    pub loss_scale: Option<f64>,
    /// Mean over the samples of all ranks.
    pub loss: f64,
    /// Of all ranks.
    pub samples: u64,
    /// How many steps it is: several where a group takes some between exchanges.
    pub local_steps: u32,
    /// Those of them that were skipped.
    pub local_skipped: u32,
    /// Data, forward and backward.
    pub compute: Duration,
    /// What reductions, agreement and the gather have added to that.
    pub reduce: Duration,
    /// Steps in which the computation of a rank took longer than its pace.
    pub missed_pace: u32,
    /// Bus bandwidth of the reductions of its gradient, where it is known.
    pub reduce_bytes_per_second: Option<f64>,
}

impl Step {
    /// This and the next step of the same exchange as one. What is skipped counts for nothing but
    /// time.
    pub fn and(self, next: Self) -> Self {
        let kept = match (self.purpose, next.purpose) {
            (_, Purpose::Skip) => self,
            (Purpose::Gradient { samples: before }, Purpose::Gradient { samples: added }) => {
                let samples = self.samples + next.samples;
                let of = |step: &Self| step.loss * (step.samples as f64 / samples as f64);
                let purpose = Purpose::Gradient {
                    samples: before + added,
                };
                Self {
                    purpose,
                    loss: of(&self) + of(&next),
                    samples,
                    ..next
                }
            }
            _ => next,
        };
        Self {
            // With one that has a gradient it is not skipped.
            overflowed: self.overflowed && next.overflowed,
            loss_scale: next.loss_scale,
            local_steps: self.local_steps + next.local_steps,
            local_skipped: self.local_skipped + next.local_skipped,
            compute: self.compute + next.compute,
            reduce: self.reduce + next.reduce,
            missed_pace: self.missed_pace + next.missed_pace,
            reduce_bytes_per_second: next.reduce_bytes_per_second,
            ..kept
        }
    }

    /// Samples of its contribution.
    pub fn samples_pushed(&self) -> u64 {
        match self.purpose {
            Purpose::Gradient { samples } => u64::from(samples),
            _ => 0,
        }
    }

    /// Whether its overflow has lowered the scale, so that the next step may have none.
    pub fn lowered_scale(&self) -> bool {
        self.overflowed && self.loss_scale > Some(SCALE_MIN)
    }
}

/// A step whose exchange has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The step.
    pub step: Step,
    /// What its exchange came to.
    pub summary: Summary,
    /// How long that took.
    pub took: Duration,
    /// For how much of it the rank stood still.
    pub exposed: Duration,
    /// When it ended, seconds since the Unix epoch.
    pub wall: f64,
}

/// Overlap 0. Where the model is in main memory, blocks go straight from libtorch's memory to the
/// shards and back.
pub struct Between {
    /// The rank's streams.
    pub exchange: Exchange,
    /// On which they run.
    pub wire: Runtime,
    /// Where values come, if not into the flat vector.
    pub fresh: Option<Fresh>,
}

impl Between {
    /// The exchange of a step, which pushes nothing if it is skipped. Its values are to be
    /// [loaded](Self::load).
    pub fn run(
        &mut self,
        step: &Step,
        seen: Seen,
        pushed: Option<Pushed<'_>>,
        flat: &mut Flat,
    ) -> Result<Summary, ExchangeError> {
        let (exchange, purpose) = (&mut self.exchange, step.purpose);
        let mut own;
        let into: &mut dyn Destination = match &mut self.fresh {
            Some(fresh) => fresh,
            None => {
                own = flat.values_mut();
                &mut own
            }
        };
        self.wire.block_on(async {
            match pushed {
                None => exchange.run(Purpose::Skip, seen, &|_| &[], into).await,
                Some(Pushed::InPlace(at)) => {
                    let source = |id| at.block(id);
                    exchange.run(purpose, seen, &source, into).await
                }
                Some(Pushed::Parts(parts)) => {
                    let samples = step.samples as u32;
                    exchange.run_parts(samples, seen, &parts, into).await
                }
            }
        })
    }

    /// Makes the slice as pulled the model's.
    pub fn load(&mut self, flat: &mut Flat) -> Result<(), HostError> {
        self.fresh.as_mut().map_or(Ok(()), |fresh| fresh.load(flat))
    }
}

/// Overlap 1. Gradients and values are double: the model has its own, the exchange that is under
/// way has these. Of both only the blocks of the rank's slice are in use.
pub struct Behind {
    background: Background<Fresh>,
    layout: Arc<Layout>,
    slice: Vec<BlockId>,
    /// Empty while an exchange has it, and where gradients are copied by whoever gives them.
    gradient: Vec<f32>,
    /// As last pulled; none while an exchange has it.
    fresh: Option<Fresh>,
    under_way: Option<Step>,
}

impl Behind {
    /// `fresh` is as the exchange has pulled it.
    pub fn new(
        exchange: Exchange,
        layout: &Arc<Layout>,
        slice: Vec<BlockId>,
        fresh: Fresh,
        wire: Runtime,
    ) -> Self {
        Self {
            background: Background::new(exchange, layout.clone(), wire),
            layout: layout.clone(),
            slice,
            gradient: Vec::new(),
            fresh: Some(fresh),
            under_way: None,
        }
    }

    /// Waits for the exchange that is under way, if there is one.
    pub fn wait(&mut self) -> Result<Option<Ended>, ExchangeError> {
        let Some(step) = self.under_way.take() else {
            return Ok(None);
        };
        let ended = self.background.wait()?;
        (self.gradient, self.fresh) = (ended.gradient, Some(ended.values));
        Ok(Some(Ended {
            step,
            summary: ended.summary,
            took: ended.took,
            exposed: ended.exposed,
            wall: wall() - ended.since.elapsed().as_secs_f64(),
        }))
    }

    /// The group goes on at `clock`, if it is not further. The clock of the exchange to be started.
    pub fn go_on_at(&mut self, clock: Clock) -> Clock {
        self.background.go_on_at(clock);
        self.background.clock()
    }

    /// Makes the slice as last pulled the model's. No exchange is under way.
    pub fn load(&mut self, flat: &mut Flat) -> Result<(), HostError> {
        self.fresh.as_mut().expect(NONE_UNDER_WAY).load(flat)
    }

    /// Starts the exchange of a step, which pushes nothing if it is skipped.
    pub fn start(&mut self, step: Step, seen: Seen, pushed: Option<Pushed<'_>>) {
        let fresh = self.fresh.take().expect(NONE_UNDER_WAY);
        let mut gradient = std::mem::take(&mut self.gradient);
        let background = &mut self.background;
        match pushed {
            None => background.start(Purpose::Skip, seen, gradient, fresh),
            Some(Pushed::InPlace(at)) => {
                gradient.resize(self.layout.elements(), 0.0);
                for id in &self.slice {
                    let block = self.layout.block(*id).expect("a block of the slice");
                    gradient[block.elements.clone()].copy_from_slice(at.block(*id));
                }
                background.start(step.purpose, seen, gradient, fresh);
            }
            Some(Pushed::Parts(parts)) => {
                background.start_parts(step.samples as u32, seen, parts, fresh);
            }
        }
        self.under_way = Some(step);
    }

    /// The step whose exchange is under way took more time for reductions.
    pub fn add_reduce(&mut self, spent: Duration) {
        if let Some(step) = &mut self.under_way {
            step.reduce += spent;
        }
    }
}

const NONE_UNDER_WAY: &str = "no exchange is under way";

/// The summary over the blocks of all ranks: every rank puts its own numbers into its slots of a
/// sum, and all take the largest, or of what is counted the sum. Counts stay exact below 2^53.
pub fn over_ranks(group: &dyn Group, own: Summary) -> Result<Summary, GroupError> {
    const FIELDS: usize = 9;
    let mut slots = vec![0.0; FIELDS * group.size() as usize];
    let at = FIELDS * group.rank().0 as usize;
    slots[at..at + FIELDS].copy_from_slice(&[
        own.updates as f64,
        own.delay.map_or(0.0, |delay| delay as f64 + 1.0),
        own.lag as f64,
        own.waited_us as f64,
        own.samples_applied as f64,
        f64::from(u8::from(own.stop)),
        own.dropped as f64,
        own.next.0 as f64,
        f64::from(u8::from(own.leave)),
    ]);
    group.all_reduce_sum(&mut slots)?;
    let of_ranks = |field: usize| slots.iter().skip(field).step_by(FIELDS);
    let largest = |field: usize| of_ranks(field).fold(0.0, |a, b| f64::max(a, *b));
    Ok(Summary {
        updates: largest(0) as u64,
        delay: (largest(1) as u64).checked_sub(1),
        lag: largest(2) as u64,
        waited_us: largest(3) as u64,
        samples_applied: largest(4) as u64,
        stop: largest(5) > 0.0,
        dropped: of_ranks(6).sum::<f64>() as u64,
        next: Clock(largest(7) as u64),
        leave: largest(8) > 0.0,
    })
}
