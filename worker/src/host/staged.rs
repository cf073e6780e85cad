//! A model on a device: gradients leave it bucket by bucket while backward goes on.
//!
//! On the computation's stream a bucket is only checked, and multiplied where the loss was scaled.
//! The rest is done on a stream of its own, which nothing waits for but whoever pushes: the
//! computation waits for it only before gradients are overwritten, in the order of streams. So
//! between two steps the host waits for the end of backward and a copy of a few bytes.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tch::{Device, Kind, Tensor};
use tradewind_client::parts::{Parts, Plan};
use tradewind_common::Compression;
use tradewind_common::layout::Bucket;

use super::giver::{Gift, Giver, Landing};
use super::outgoing::Outgoing;
use super::{BucketPath, Checked, GradientPath, HostError, Leaves, Pushed};
use crate::c10d::C10dError;
use crate::group::Group;
use crate::host::buffers::Buffers;
use crate::stream::{Event, PageLocked, Stream, copy, torch};

/// The path of gradients from a device, as a whole or bucket by bucket.
pub(super) struct Staged {
    device: Device,
    plan: Arc<Plan>,
    stage: Arc<Mutex<Stage>>,
    /// A flag for each bucket and then the loss, f32, on the device; and all of it here.
    report: Tensor,
    loss: Tensor,
    reported: PageLocked,
    factor: f64,
}

/// What the threads of the group use.
struct Stage {
    out: Stream,
    buckets: Vec<Outgoing>,
    factor: Tensor,
    /// Gradients of this step go to the landings of this turn.
    turn: usize,
    /// How many gifts there were when each turn was pushed.
    given: Vec<u64>,
    /// Buckets are given to these as they come, or else kept.
    open: Option<Arc<Parts>>,
    left: Vec<(usize, Arc<Landing>, Event)>,
    giver: Giver,
    failed: Option<C10dError>,
}

impl Staged {
    /// From here on `group` tells this of its buckets. Encodes where they travel as bf16 (`up`); other
    /// forms are made from f32 by whoever sends.
    pub(super) fn new(
        buckets: &[Bucket],
        plan: &Arc<Plan>,
        group: &mut dyn Group,
        up: Compression,
        leaves: Leaves,
    ) -> Result<Self, HostError> {
        let device = group.device();
        let buckets = buckets.len();
        let room = |length: usize| {
            let room = Tensor::f_ones([length as i64], (Kind::Float, device));
            room.map_err(torch("making room for flags"))
        };
        let report = room(buckets + 1)?;
        let place = |at: usize| report.f_narrow(0, at as i64, 1).map_err(torch("a flag"));
        let turns = leaves.turns;
        let bf16 = up == Compression::Bf16;
        let form = if bf16 { Kind::BFloat16 } else { Kind::Float };
        let lengths = |at| plan.own(at).iter().map(Range::len).sum();
        let lengths: Vec<usize> = (0..buckets).map(lengths).collect();
        // By bucket, for each turn.
        let mut landings: Vec<Vec<Landing>> = lengths.iter().map(|_| Vec::new()).collect();
        for _ in 0..turns {
            let turn = Landing::each(&lengths, form, device)?;
            landings
                .iter_mut()
                .zip(turn)
                .for_each(|(all, one)| all.push(one));
        }
        let outgoing = landings.into_iter().enumerate();
        let outgoing = outgoing
            .map(|(at, landings)| Outgoing::new(plan.own(at), place(at)?, device, bf16, landings));
        let stage = Arc::new(Mutex::new(Stage {
            out: Stream::new(device)?,
            buckets: outgoing.collect::<Result<_, _>>()?,
            factor: room(1)?,
            turn: 0,
            given: vec![0; turns],
            open: None,
            left: Vec::new(),
            giver: Giver::new(buckets, group.breaker()?),
            failed: None,
        }));
        let told = stage.clone();
        group.watch(Arc::new(move |bucket, gradient| {
            let mut stage = lock(&told);
            let told = match leaves.later {
                false => stage.told(bucket, gradient),
                true => stage.check(bucket, gradient),
            };
            if let Err(error) = told {
                stage.failed.get_or_insert(error);
            }
        }))?;
        Ok(Self {
            device,
            plan: plan.clone(),
            stage,
            loss: place(buckets)?,
            report,
            reported: PageLocked::new(buckets + 1, Kind::Float, device)?,
            factor: 1.0,
        })
    }

    /// With `parts` each bucket is given to them as it comes.
    fn begin_step(&mut self, factor: f64, parts: Option<&Arc<Parts>>) -> Result<(), HostError> {
        let mut stage = lock(&self.stage);
        stage.open = parts.cloned();
        stage.left.clear();
        // The exchange of this turn has ended: at most a moment.
        let given = stage.given[stage.turn];
        stage.giver.wait(given);
        // Backward overwrites what is copied on that stream.
        stage.out.event()?.block()?;
        let failed = torch("beginning a step");
        let _ = self.report.f_zero_().map_err(&failed)?;
        if factor != self.factor {
            let _ = stage.factor.f_fill_(factor).map_err(&failed)?;
            self.factor = factor;
        }
        Ok(())
    }

    fn check_step(&mut self, loss: &Tensor) -> Result<Checked, HostError> {
        let loss = loss.f_detach().and_then(|loss| loss.f_reshape([1]));
        copy(&self.loss, &loss.map_err(torch("reading the loss"))?)?;
        // SAFETY: it is read only below, after the wait, and written by this copy alone.
        copy(unsafe { self.reported.tensor() }, &self.report)?;
        Event::now(self.device)?.wait()?;
        let mut stage = lock(&self.stage);
        if let Some(error) = stage.failed.take().or_else(|| stage.giver.failure()) {
            return Err(error.into());
        }
        let (loss, flags) = self
            .reported
            .f32()
            .split_last()
            .expect("one more than buckets");
        if stage.open.is_some() {
            let skipped = |bucket: usize| flags.get(bucket).is_some_and(|flag| *flag != 0.0);
            for (at, bucket) in stage.buckets.iter_mut().enumerate() {
                if !skipped(at) {
                    bucket.pushed(&self.plan.withheld(at, skipped))?;
                }
            }
        }
        Ok(Checked {
            loss: f64::from(*loss),
            bad: flags.iter().filter(|flag| **flag != 0.0).count(),
        })
    }
}

impl GradientPath for Staged {
    fn begin(&mut self, factor: f64) -> Result<(), HostError> {
        self.begin_step(factor, None)
    }

    fn leave(&mut self, group: &dyn Group) -> Result<(), HostError> {
        let mut stage = lock(&self.stage);
        (0..stage.buckets.len()).try_for_each(|bucket| {
            let left = stage.told(bucket, group.gradient(bucket));
            left.map_err(HostError::from)
        })
    }

    fn check(&mut self, loss: &Tensor, _group: &dyn Group) -> Result<Checked, HostError> {
        self.check_step(loss)
    }

    /// Done on the device when the bucket was reduced.
    fn unscale(&mut self, _factor: f64, _group: &dyn Group) {}

    fn shorten(&mut self, factor: f64, group: &dyn Group) -> Result<(), HostError> {
        self.begin_step(factor, None)?;
        self.leave(group)
    }

    unsafe fn push<'a>(&mut self, _group: &'a dyn Group, buffers: &'a Buffers) -> Pushed<'a> {
        let parts = Arc::new(Parts::new(&self.plan));
        let mut stage = lock(&self.stage);
        for (bucket, landing, event) in std::mem::take(&mut stage.left) {
            stage.buckets[bucket].all_pushed();
            stage.give(&parts, bucket, landing, event);
        }
        stage.turn = (stage.turn + 1) % stage.given.len();
        parts.give_buffers(Some(buffers.all()));
        Pushed::Parts(parts)
    }
}

impl BucketPath for Staged {
    fn begin(&mut self, parts: &Arc<Parts>) -> Result<(), HostError> {
        self.begin_step(1.0, Some(parts))
    }

    fn check(&mut self, loss: &Tensor) -> Result<Checked, HostError> {
        self.check_step(loss)
    }
}

impl Stage {
    fn check(&mut self, bucket: usize, gradient: &Tensor) -> Result<(), C10dError> {
        self.buckets[bucket].check(gradient, &self.factor)
    }

    fn told(&mut self, bucket: usize, gradient: &Tensor) -> Result<(), C10dError> {
        let outgoing = &mut self.buckets[bucket];
        // SAFETY: the landing goes to the giver with its event, which waits for it.
        let left = unsafe { outgoing.leave(gradient, &self.factor, self.turn, &self.out) };
        let open = self.open.clone();
        match (left, open) {
            (Ok((landing, event)), Some(parts)) => self.give(&parts, bucket, landing, event),
            (Ok((landing, event)), None) => self.left.push((bucket, landing, event)),
            (Err(error), Some(parts)) => {
                // The exchange waits for it.
                parts.lend(bucket, None);
                return Err(error);
            }
            (Err(error), None) => return Err(error),
        }
        Ok(())
    }

    fn give(&mut self, parts: &Arc<Parts>, bucket: usize, landing: Arc<Landing>, event: Event) {
        self.given[self.turn] = self.giver.give(Gift {
            parts: parts.clone(),
            bucket,
            landing,
            event,
        });
    }
}

impl Drop for Stage {
    /// The memory is free for others only when nothing is copied there any more.
    fn drop(&mut self) {
        let _ = self.out.event().and_then(|event| event.wait());
    }
}

fn lock(stage: &Mutex<Stage>) -> MutexGuard<'_, Stage> {
    stage.lock().unwrap_or_else(PoisonError::into_inner)
}
