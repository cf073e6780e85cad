//! How a rank's exchanges stand to its steps: between them, with overlap behind them, or by bucket
//! during them.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tradewind_client::background::Background;
use tradewind_client::core::session::{Purpose, Summary};
use tradewind_client::exchange::{Exchange, ExchangeError};
use tradewind_common::schedule::Seen;
use tradewind_common::{BlockId, Clock, Layout};

use crate::during::During;
use crate::group::{Group, GroupError};
use crate::telemetry::wall;

/// How exchanges stand to steps.
pub enum Exchanges {
    /// Overlap 0: a step's exchange has ended before the next step begins. Blocks go straight from
    /// libtorch's memory to the shards and back.
    Between(Exchange, Runtime),
    /// Overlap 1: it runs behind the next step.
    Behind(Behind),
    /// Overlap 0, by bucket: it runs during the step's own backward.
    During(During),
}

impl Exchanges {
    /// The clock of the contribution of the step at hand.
    pub fn clock(&self) -> Clock {
        match self {
            Self::Between(exchange, _) => exchange.clock(),
            Self::Behind(behind) => behind.background.clock(),
            Self::During(during) => during.clock(),
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
    /// Mean over the samples of all ranks.
    pub loss: f64,
    /// Of all ranks.
    pub samples: u64,
    /// Data, forward and backward.
    pub compute: Duration,
    /// What reductions, agreement and the gather have added to that.
    pub reduce: Duration,
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

/// Overlap 1. Gradients and values are double: the model has its own, the exchange that is under
/// way has these. Of both only the blocks of the rank's slice are in use.
pub struct Behind {
    background: Background,
    layout: Arc<Layout>,
    slice: Vec<BlockId>,
    /// Empty while an exchange has it.
    gradient: Vec<f32>,
    /// As last pulled; empty while an exchange has it.
    values: Vec<f32>,
    under_way: Option<Step>,
}

impl Behind {
    /// `pulled` is the flat vector as the exchange has pulled it.
    pub fn new(
        exchange: Exchange,
        layout: &Arc<Layout>,
        slice: Vec<BlockId>,
        pulled: &[f32],
        wire: Runtime,
    ) -> Self {
        let mut behind = Self {
            background: Background::new(exchange, layout.clone(), wire),
            layout: layout.clone(),
            slice,
            gradient: vec![0.0; layout.elements()],
            values: vec![0.0; layout.elements()],
            under_way: None,
        };
        copy_slice(layout, &behind.slice, pulled, &mut behind.values);
        behind
    }

    /// Waits for the exchange that is under way, if there is one.
    pub fn wait(&mut self) -> Result<Option<Ended>, ExchangeError> {
        let Some(step) = self.under_way.take() else {
            return Ok(None);
        };
        let ended = self.background.wait()?;
        (self.gradient, self.values) = (ended.gradient, ended.values);
        Ok(Some(Ended {
            step,
            summary: ended.summary,
            took: ended.took,
            exposed: ended.exposed,
            wall: wall() - ended.since.elapsed().as_secs_f64(),
        }))
    }

    /// Copies the slice as last pulled into the flat vector.
    pub fn load(&self, flat: &mut [f32]) {
        copy_slice(&self.layout, &self.slice, &self.values, flat);
    }

    /// Starts the exchange of a step, whose gradient and changes `pushed` tells block by block.
    pub fn start<'a>(&mut self, step: Step, seen: Seen, pushed: impl Fn(BlockId) -> &'a [f32]) {
        if step.purpose != Purpose::Skip {
            for id in &self.slice {
                let block = self.layout.block(*id).expect("a block of the slice");
                self.gradient[block.elements.clone()].copy_from_slice(pushed(*id));
            }
        }
        let vectors = [&mut self.gradient, &mut self.values].map(std::mem::take);
        let [gradient, values] = vectors;
        self.background.start(step.purpose, seen, gradient, values);
        self.under_way = Some(step);
    }

    /// The step whose exchange is under way took more time for reductions.
    pub fn add_reduce(&mut self, spent: Duration) {
        if let Some(step) = &mut self.under_way {
            step.reduce += spent;
        }
    }
}

pub(crate) fn copy_slice(layout: &Layout, slice: &[BlockId], from: &[f32], to: &mut [f32]) {
    for id in slice {
        let elements = &layout.block(*id).expect("a block of the slice").elements;
        to[elements.clone()].copy_from_slice(&from[elements.clone()]);
    }
}

/// The summary over the blocks of all ranks: every rank puts its own numbers into its slots of a
/// sum, and all take the largest. Counts stay exact below 2^53.
pub fn over_ranks(group: &dyn Group, own: Summary) -> Result<Summary, GroupError> {
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
