//! Overlap 0, by bucket: the exchange of a step runs during its own backward. Blocks are pushed as soon
//! as the buckets that they have part of are reduced, and their fresh values come back while backward
//! computes the buckets behind these.
//!
//! Backward reads the model's parameters, so the exchange has vectors of its own, and what it has
//! brought is loaded when backward has ended.
//!
//! Whether a bucket is finite is decided from its reduced gradient, whose bits are the same on all
//! ranks: so they agree without a word, and the blocks that have part of a bucket that is not are skipped by
//! themselves. Buffers are known last, sent last, and skipped with any of the others.
//!
//! Nothing comes first but what is sent first: all groups keep one order, or they could wait for
//! each other under `sync`; and shards answer as blocks come. The bucket of the first layers, which
//! the next forward needs first, is the last one to be sent, but nothing would be gained from
//! having it sooner: forward begins when the group has gathered all, in one collective, which
//! must not run beside backward on the same process group.

use std::sync::Arc;

use tch::Tensor;
use tradewind_client::background::Background;
use tradewind_client::core::session::Summary;
use tradewind_client::parts::{Parts, Plan};
use tradewind_client::ranges::{Range, open, within};
use tradewind_client::replica::Replica as _;
use tradewind_client::step::{Computed, Ended, Step};
use tradewind_client::stopwatch::{Stopwatch, wall};
use tradewind_client::streams::Streams;
use tradewind_common::Clock;
use tradewind_common::schedule::Seen;

use super::{Exchanging, Replica};
use crate::flat::Flat;
use crate::group::Group;
use crate::host::buffers::Buffers;
use crate::host::{BucketPath, Checked, Fresh, HostError, HostSide};
use crate::train_error::TrainError;

/// Exchanges during backward, one at a time. Most of a gradient has left before all of it is known: so there
/// is no scale of the loss and there are no norms.
pub(super) struct DuringBackward {
    path: Box<dyn BucketPath>,
    buffers: Buffers,
    background: Background<Box<dyn Fresh>>,
    plan: Arc<Plan>,
    /// Of the exchange that is under way.
    parts: Option<Arc<Parts>>,
    /// Values as last pulled; none while an exchange has them.
    fresh: Option<Box<dyn Fresh>>,
    /// Of the exchange that was begun last.
    clock: Clock,
}

impl DuringBackward {
    pub(super) fn new(
        host: &HostSide,
        path: Box<dyn BucketPath>,
        buffers: Buffers,
        Streams { exchange, wire }: Streams,
        fresh: Box<dyn Fresh>,
    ) -> Self {
        Self {
            path,
            buffers,
            clock: exchange.clock(),
            background: Background::new(exchange, host.layout().clone(), wire),
            plan: host.plan().clone(),
            parts: None,
            fresh: Some(fresh),
        }
    }

    /// Makes the slice as last pulled the model's.
    fn load(&mut self, flat: &mut Flat) -> Result<(), HostError> {
        self.fresh.as_mut().expect(ENDED).load(flat)
    }

    /// Sends what has become of the buffers, which are known last, or skips them.
    fn push_buffers(&self, parts: &Parts, step: &Step) {
        let finite = step.buckets_skipped == 0;
        parts.give_buffers(finite.then(|| self.buffers.all()));
    }
}

impl Exchanging for DuringBackward {
    fn pull(&mut self, replica: &mut Replica<'_>) -> Result<Summary, TrainError> {
        let fresh = self.fresh.take().expect(ENDED);
        let (pulled, fresh) = self.background.pull(fresh)?;
        self.fresh = Some(fresh);
        self.load(replica.flat)?;
        replica.gathered(pulled)
    }

    fn next_clock(&self) -> Clock {
        self.background.clock()
    }

    fn clock(&self) -> Clock {
        self.clock
    }

    /// Starts the exchange: buckets are sent as backward comes to them.
    fn begin_backward(&mut self, samples: u32, seen: Seen) -> Result<(), HostError> {
        let parts = Arc::new(Parts::new(&self.plan));
        self.clock = self.background.clock();
        let fresh = self.fresh.take().expect(ENDED);
        self.background
            .start_parts(samples, seen, parts.clone(), fresh);
        self.path.begin(&parts)?;
        self.parts = Some(parts);
        Ok(())
    }

    /// About the gradient the ranks have come to the same result by themselves.
    fn computed(&mut self, loss: &Tensor, group: &dyn Group) -> Result<Computed, HostError> {
        // SAFETY: the next line waits for the copies before the buffers are looked at.
        unsafe { self.buffers.take(group) }?;
        let Checked { loss, bad } = self.path.check(loss)?;
        Ok(Computed {
            loss,
            finite: bad == 0 && self.buffers.finite(),
            skips: bad + usize::from(!self.buffers.all().is_empty()),
            buckets: self.plan.parts(),
        })
    }

    /// What is left to agree on, the buffers, is sent by [`exchange`](Self::exchange).
    fn agreed(&mut self, _step: &Step, _group: &dyn Group, _flat: &Flat) -> Result<(), HostError> {
        Ok(())
    }

    /// Sends the buffers, and waits for the end.
    fn exchange(
        &mut self,
        mut step: Step,
        _seen: Seen,
        replica: &mut Replica<'_>,
    ) -> Result<Option<Ended>, TrainError> {
        let parts = self.parts.take().expect("begun");
        let finish = || {
            self.push_buffers(&parts, &step);
            self.background.wait()
        };
        let (ended, fresh) = within(Range::Wait, finish)?.without_values();
        self.fresh = Some(fresh);
        let mut watch = Stopwatch::start();
        let _open = open(Range::Reduce);
        self.load(replica.flat)?;
        let summary = replica.gathered(ended.summary)?;
        step.reduce += watch.lap();
        Ok(Some(Ended {
            step,
            summary,
            took: ended.took,
            exposed: ended.exposed,
            wall: wall(),
        }))
    }

    fn go_on_at(&mut self, clock: Clock) -> Clock {
        self.background.go_on_at(clock);
        self.background.clock()
    }
}

const ENDED: &str = "the exchange before has ended";
