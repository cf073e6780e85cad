//! The exchange of a step during its own backward: a bucket's blocks are pushed as soon as the
//! bucket is reduced, and their fresh values come back while backward computes the buckets behind
//! it.
//!
//! Backward reads the model's parameters, so the exchange has vectors of its own, and what it has
//! brought is loaded when backward has ended.
//!
//! Whether a bucket is finite is decided from its reduced gradient, whose bits are the same on all
//! ranks: so they agree without a word, and a bucket that is not is skipped by itself. Buffers are
//! known last, sent last, and skipped with any of the others.
//!
//! Nothing comes first but what is sent first: all groups keep one order, or they could wait for
//! each other under `sync`; and shards answer as blocks come. The bucket of the first layers, which
//! the next forward needs first, is the last one to be sent, but nothing would be gained from
//! having it sooner: forward begins when the group has gathered all, in one collective, which
//! must not run beside backward on the same process group.

use std::sync::Arc;

use tokio::runtime::Runtime;
use tradewind_client::background::{Background, Ended};
use tradewind_client::exchange::Exchange;
use tradewind_client::exchange_error::ExchangeError;
use tradewind_client::parts::{Parts, Plan};
use tradewind_common::schedule::Seen;
use tradewind_common::{Clock, Layout, TensorKind};

use crate::flat::Flat;
use crate::host::buffers::Buffers;
use crate::host::{Fresh, HostError};

/// A rank's exchanges during backward, one at a time.
pub struct During {
    background: Background<Fresh>,
    layout: Arc<Layout>,
    plan: Arc<Plan>,
    /// Of the exchange that is under way.
    parts: Option<Arc<Parts>>,
    /// As last pulled; none while an exchange has it.
    fresh: Option<Fresh>,
    clock: Clock,
}

impl During {
    /// `fresh` is as the exchange has pulled it; `plan` is that of the rank's slice.
    pub fn new(
        exchange: Exchange,
        layout: &Arc<Layout>,
        plan: &Arc<Plan>,
        fresh: Fresh,
        wire: Runtime,
    ) -> Self {
        Self {
            clock: exchange.clock(),
            background: Background::new(exchange, layout.clone(), wire),
            layout: layout.clone(),
            plan: plan.clone(),
            parts: None,
            fresh: Some(fresh),
        }
    }

    /// The group goes on at `clock`, if it is not further. The clock of the exchange to be begun.
    pub fn go_on_at(&mut self, clock: Clock) -> Clock {
        self.background.go_on_at(clock);
        self.background.clock()
    }

    /// The clock of the exchange that was begun last.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The clock of the exchange that is begun next.
    pub fn next_clock(&self) -> Clock {
        self.background.clock()
    }

    /// Before a backward: its buckets are sent as they are given to what this returns. `samples`
    /// are those of all ranks.
    pub fn begin(&mut self, samples: u32, seen: Seen) -> Arc<Parts> {
        let parts = Arc::new(Parts::new(&self.plan));
        self.clock = self.background.clock();
        let fresh = self.fresh.take().expect(ENDED);
        self.background
            .start_parts(samples, seen, parts.clone(), fresh);
        self.parts = Some(parts.clone());
        parts
    }

    /// After a backward: sends what has become of the buffers, or skips them, and waits for the end.
    /// The answers are to be [loaded](Self::load).
    pub fn finish(&mut self, buffers: Option<&Buffers>) -> Result<Ended<()>, ExchangeError> {
        let parts = self.parts.take().expect("begun");
        for (at, bucket) in self.layout.buckets.iter().enumerate() {
            if bucket.kind == TensorKind::Buffer {
                parts.give(at, buffers.map(|buffers| buffers.values(&bucket.elements)));
            }
        }
        let (ended, fresh) = self.background.wait()?.without_values();
        self.fresh = Some(fresh);
        Ok(ended)
    }

    /// Makes the slice as last pulled the model's.
    pub fn load(&mut self, flat: &mut Flat) -> Result<(), HostError> {
        self.fresh.as_mut().expect(ENDED).load(flat)
    }
}

const ENDED: &str = "the exchange before has ended";
