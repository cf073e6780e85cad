//! A gradient that is pushed as a whole, when the ranks have agreed on it: of all ways but by bucket.
//!
//! Nothing has left before the agreement, so the loss may be scaled (a step that overflows is skipped as a
//! whole), and norms of the gradient may go with it.

use tch::Tensor;
use tradewind_client::behind::Beside;
use tradewind_client::between::Direct;
use tradewind_client::core::session::Summary;
use tradewind_client::exchange_error::ExchangeError;
use tradewind_client::pushed::{Contributed, Contribution};
use tradewind_client::ranges::{Range, within};
use tradewind_client::ranks::Ranks;
use tradewind_client::replica;
use tradewind_client::step::{Computed, Step};
use tradewind_client::streams::Streams;
use tradewind_common::pieces::Measured;
use tradewind_common::schedule::Seen;

use super::Replica;
use crate::clip::Clip;
use crate::flat::Flat;
use crate::group::Group;
use crate::host::buffers::Buffers;
use crate::host::{Checked, Fresh, GradientPath, HostError, Pushed};
use crate::norms::TensorNorms;
use crate::precision::LossScaler;
use crate::train_error::TrainError;

/// The gradient of the step at hand, and the buffers that are pushed with it.
pub(super) struct WholeGradient {
    /// How many the gradient has, the buffers counted as one.
    buckets: usize,
    path: Box<dyn GradientPath>,
    buffers: Buffers,
    /// The scale of the loss, where it is scaled.
    scaler: Option<LossScaler>,
    /// What shortens a gradient, which leaves later then.
    clip: Option<Clip>,
}

impl WholeGradient {
    pub(super) fn new(
        buckets: usize,
        path: Box<dyn GradientPath>,
        buffers: Buffers,
        scaler: Option<LossScaler>,
    ) -> Self {
        Self {
            buckets,
            path,
            buffers,
            scaler,
            clip: None,
        }
    }

    /// The same with gradients that are shortened; its path lets them leave [later](crate::host::Leaves::later).
    pub(super) fn with_clip(self, clip: Option<Clip>) -> Self {
        Self { clip, ..self }
    }

    pub(super) fn loss_scale(&self) -> Option<f64> {
        self.scaler.as_ref().map(LossScaler::scale)
    }

    /// Before a backward.
    pub(super) fn begin(&mut self) -> Result<(), HostError> {
        self.path.begin(1.0 / self.loss_scale().unwrap_or(1.0))
    }

    /// After the backward of a step that is exchanged by itself, with its buffers.
    pub(super) fn computed(
        &mut self,
        loss: &Tensor,
        group: &dyn Group,
    ) -> Result<Computed, HostError> {
        // SAFETY: `computed_alone` waits for the copies before the buffers are looked at.
        unsafe { self.buffers.take(group) }?;
        let computed = self.computed_alone(loss, group)?;
        Ok(Computed {
            finite: computed.finite && self.buffers.finite(),
            ..computed
        })
    }

    /// After the backward of a step between exchanges, which leaves its buffers to the steps to come.
    pub(super) fn computed_alone(
        &mut self,
        loss: &Tensor,
        group: &dyn Group,
    ) -> Result<Computed, HostError> {
        let Checked { loss, bad } = self.path.check(loss, group)?;
        Ok(Computed {
            loss,
            finite: bad == 0,
            skips: self.buckets,
            buckets: self.buckets,
        })
    }

    /// The ranks have agreed on a step.
    pub(super) fn agreed(&mut self, step: &Step, group: &dyn Group) -> Result<(), HostError> {
        if let Some(scaler) = &mut self.scaler {
            // All ranks have heard the same.
            scaler.stepped(step.overflowed);
        }
        if let (Some(scale), false) = (step.loss_scale, step.overflowed) {
            self.path.unscale(1.0 / scale, group);
        }
        match self.clip {
            Some(clip) if !step.is_skipped() => self.path.shorten(clip.factor(group)?, group),
            Some(_) | None => Ok(()),
        }
    }

    /// Notes what the buffers are before a step's forward, for [`Self::put_buffers_back`].
    pub(super) fn keep_buffers(&mut self) -> Result<(), HostError> {
        self.buffers.keep()
    }

    /// What the step's forward has made of the buffers would stay for all steps to come.
    pub(super) fn put_buffers_back(&mut self) -> Result<(), HostError> {
        self.buffers.put_back()
    }

    /// In its buckets the group has something else by now than backward has left: that will be pushed,
    /// with the buffers as they are. There is no loss.
    pub(super) fn replaced(&mut self, group: &dyn Group) -> Result<Computed, HostError> {
        self.path.begin(1.0)?;
        self.path.leave(group)?;
        let no_loss = Tensor::from(0f32).to_device(group.device());
        self.computed(&no_loss, group)
    }

    /// What the exchange of a step pushes; `None` if it is skipped. At most once a step.
    pub(super) fn push<'a>(
        &'a mut self,
        step: &Step,
        group: &'a dyn Group,
    ) -> Option<Contribution<'a>> {
        let samples = step.pushed?;
        // SAFETY: this and the group are borrowed as long as what is pushed, so nobody calls the path or the group's
        // backward, which alone writes gradients once a step is agreed on.
        let pushed = unsafe { self.path.push(group, &self.buffers) };
        let values = match pushed {
            Pushed::InPlace(at) => Contributed::Whole(Box::new(move |id| at.block(id))),
            Pushed::Parts(parts) => Contributed::Parts(parts),
        };
        Some(Contribution { samples, values })
    }
}

/// A replica whose gradient is pushed as a whole, for one exchange.
pub(super) struct Stepping<'s, 'r> {
    pub(super) gradient: &'s mut WholeGradient,
    pub(super) replica: &'s mut Replica<'r>,
}

/// The same, where no exchange has what values come into.
pub(super) struct SteppingInto<'s, 'r> {
    pub(super) stepping: Stepping<'s, 'r>,
    pub(super) fresh: &'s mut Box<dyn Fresh>,
}

impl replica::Replica for Stepping<'_, '_> {
    type Error = TrainError;

    fn ranks(&self) -> &dyn Ranks {
        self.replica.ranks()
    }

    fn is_asked_to_leave(&self) -> bool {
        self.replica.is_asked_to_leave()
    }

    fn gather(&mut self) -> Result<(), TrainError> {
        self.replica.gather()
    }
}

impl replica::Replica for SteppingInto<'_, '_> {
    type Error = TrainError;

    fn ranks(&self) -> &dyn Ranks {
        self.stepping.ranks()
    }

    fn is_asked_to_leave(&self) -> bool {
        self.stepping.is_asked_to_leave()
    }

    fn gather(&mut self) -> Result<(), TrainError> {
        self.stepping.gather()
    }
}

impl Direct for SteppingInto<'_, '_> {
    fn pull(&mut self, streams: &mut Streams) -> Result<Summary, ExchangeError> {
        streams.pull(self.fresh)
    }

    fn exchange(
        &mut self,
        streams: &mut Streams,
        step: &Step,
        seen: Seen,
    ) -> Result<Summary, ExchangeError> {
        let contribution = self.stepping.contribution(step);
        streams.exchange(seen, contribution, self.fresh)
    }

    fn load(&mut self) -> Result<(), TrainError> {
        Ok(self.fresh.load(self.stepping.replica.flat)?)
    }
}

impl Beside for Stepping<'_, '_> {
    type Fresh = Box<dyn Fresh>;

    fn contribution(&mut self, step: &Step) -> Option<Contribution<'_>> {
        self.gradient.push(step, &*self.replica.group)
    }

    fn load(&mut self, fresh: &mut Box<dyn Fresh>) -> Result<(), TrainError> {
        Ok(fresh.load(self.replica.flat)?)
    }

    fn go_on_with_own_buffers(&mut self) -> Result<(), TrainError> {
        Ok(self.gradient.buffers.go_on_with_own()?)
    }
}

/// The norms that a step's gradient is pushed with, where the optimizer asks for some. `flat` is still what
/// the gradient was computed on.
pub(super) fn measured(
    norms: Option<&TensorNorms>,
    step: &Step,
    group: &dyn Group,
    flat: &Flat,
) -> Result<Option<Measured>, HostError> {
    match norms {
        Some(norms) if !step.is_skipped() => {
            let measure = || norms.measure(flat, group);
            within(Range::Reduce, measure).map(Some)
        }
        Some(_) | None => Ok(None),
    }
}
