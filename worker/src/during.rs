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

use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Runtime;
use tradewind_client::background::{Background, Ended};
use tradewind_client::exchange::{Exchange, ExchangeError};
use tradewind_client::parts::{Parts, Plan};
use tradewind_common::finite::all_finite;
use tradewind_common::schedule::Seen;
use tradewind_common::{BlockId, Clock, Layout, TensorKind};

use crate::buffers::Buffers;
use crate::c10d;
use crate::exchanges::copy_slice;
use crate::group::{Group, GroupError};

/// A rank's exchanges during backward, one at a time.
pub struct During {
    background: Background,
    layout: Arc<Layout>,
    slice: Vec<BlockId>,
    plan: Arc<Plan>,
    /// Where the group's threads put what is reduced.
    parts: Arc<Mutex<Arc<Parts>>>,
    /// As last pulled; empty while an exchange has it.
    values: Vec<f32>,
    clock: Clock,
}

impl During {
    /// `pulled` is the flat vector as the exchange has pulled it. From here on `group` tells this
    /// of its buckets.
    pub fn new(
        exchange: Exchange,
        layout: &Arc<Layout>,
        slice: Vec<BlockId>,
        pulled: &[f32],
        wire: Runtime,
        group: &mut dyn Group,
    ) -> Result<Self, GroupError> {
        let plan = Arc::new(Plan::new(layout, &slice));
        let parts = Arc::new(Mutex::new(Arc::new(Parts::new(&plan))));
        let open = parts.clone();
        group.watch(Arc::new(move |bucket, gradient| {
            let parts = present(&open);
            let gradient = c10d::values(gradient).expect("in main memory, and no bucket is empty");
            parts.give(bucket, all_finite(gradient).then_some(gradient));
        }))?;
        let mut values = vec![0.0; layout.elements()];
        copy_slice(layout, &slice, pulled, &mut values);
        Ok(Self {
            clock: exchange.clock(),
            background: Background::new(exchange, layout.clone(), wire),
            layout: layout.clone(),
            slice,
            plan,
            parts,
            values,
        })
    }

    /// The clock of the exchange that was begun last.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Before a backward: its buckets are sent as they come. `samples` are those of all ranks.
    pub fn begin(&mut self, samples: u32, seen: Seen) {
        let parts = Arc::new(Parts::new(&self.plan));
        *self.parts.lock().unwrap_or_else(PoisonError::into_inner) = parts.clone();
        self.clock = self.background.clock();
        let values = std::mem::take(&mut self.values);
        self.background.start_parts(samples, seen, parts, values);
    }

    /// After a backward: how many buckets were not finite.
    pub fn skipped(&self) -> usize {
        present(&self.parts).skipped()
    }

    /// After a backward: sends the changes of the buffers, or skips them, and waits for the end.
    /// The answers are to be [loaded](Self::load).
    pub fn finish(&mut self, buffers: Option<&Buffers>) -> Result<Ended, ExchangeError> {
        let parts = present(&self.parts);
        for at in self.layout.order() {
            let bucket = &self.layout.buckets[at];
            if bucket.kind == TensorKind::Buffer {
                parts.give(at, buffers.map(|buffers| buffers.changes(&bucket.elements)));
            }
        }
        let mut ended = self.background.wait()?;
        self.values = std::mem::take(&mut ended.values);
        Ok(ended)
    }

    /// Copies the slice as last pulled into the flat vector.
    pub fn load(&self, flat: &mut [f32]) {
        copy_slice(&self.layout, &self.slice, &self.values, flat);
    }
}

fn present(parts: &Mutex<Arc<Parts>>) -> Arc<Parts> {
    parts.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
