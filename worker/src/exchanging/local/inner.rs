//! What a group does with the gradients of its steps between exchanges, and what it pushes after them.

use std::ops::Range;

use tch::nn::{self, OptimizerConfig};
use tch::{COptimizer, TchError, Tensor};
use tradewind_client::heartbeat::HeartbeatState;
use tradewind_client::local::{agreed_steps, drawn};
use tradewind_common::TensorKind;
use tradewind_common::layout::{Bucket, Stretch};
use tradewind_common::schedule::Seen;
use tradewind_config::{Algorithm, Inner, Local};

use crate::flat::{Flat, in_layout_order};
use crate::group::{Group, GroupError};
use crate::host::{HostError, HostSide};
use crate::stream::torch;

/// A group's own optimizer, and the values that its steps began with.
pub(in crate::exchanging) struct InnerSteps {
    config: Local,
    outer: Outer,
    /// The model's parameters, and whether weight decay applies to each.
    tensors: Vec<(Tensor, bool)>,
    optimizer: COptimizer,
    /// All parameters in the flat vector, with the gaps between them.
    values: Tensor,
    /// The same. DiLoCo: as pulled; elastic averaging: during an exchange, the group's own values.
    kept: Tensor,
    /// Of each bucket, views of both.
    buckets: Vec<Vec<[Tensor; 2]>>,
    /// The steps have come to values that are not finite.
    lost: bool,
}

/// What the servers do with what groups push.
#[derive(Clone, Copy, Debug)]
pub(in crate::exchanging) struct Outer {
    /// The rate of their updates: α, of elastic averaging.
    pub(in crate::exchanging) rate: f64,
    /// The run's samples: the schedule's end.
    pub(in crate::exchanging) budget: u64,
}

impl InnerSteps {
    /// `tensors` are the model's own, in its order of creation, and views of `flat`. Before the first step
    /// values have to be [pulled](Self::begin).
    pub(in crate::exchanging) fn new(
        config: &Local,
        outer: Outer,
        host: &HostSide,
        flat: &Flat,
        tensors: &[(String, Tensor)],
    ) -> Result<Self, HostError> {
        let layout = host.layout();
        let tensors = layout.tensors.iter().zip(in_layout_order(layout, tensors)?);
        let trained = tensors.filter(|(placed, _)| placed.spec.kind == TensorKind::Parameter);
        let exempt = config.decay_exempt;
        let tensors: Vec<_> = trained
            .map(|(placed, tensor)| (tensor, exempt.decays(&placed.spec)))
            .collect();
        let parameters = layout.of_kind(TensorKind::Parameter);
        let last = flat.memory().stretches(&parameters).last();
        let whole = |all: &Tensor, range: &Range<usize>| {
            let view = all.f_narrow(0, range.start as i64, range.len() as i64);
            view.map_err(torch("a range of the flat vector"))
        };
        let values = whole(flat.storage(), &(0..last.map_or(0, |last| last.memory.end)))?;
        let kept = values.f_zeros_like();
        let kept = kept.map_err(torch("making room for what was pulled"))?;
        let both = |Stretch { memory, .. }| {
            Ok::<_, HostError>([whole(&values, &memory)?, whole(&kept, &memory)?])
        };
        let views = |bucket: &Bucket| {
            flat.memory()
                .stretches(&bucket.elements)
                .map(both)
                .collect()
        };
        Ok(Self {
            buckets: host.buckets().iter().map(views).collect::<Result<_, _>>()?,
            config: config.clone(),
            outer,
            optimizer: optimizer(config, &tensors).map_err(torch("an inner optimizer"))?,
            tensors,
            values,
            kept,
            lost: false,
        })
    }

    /// The group has just pulled all values.
    pub(super) fn begin(&mut self) -> Result<(), HostError> {
        let kept = tch::no_grad(|| self.kept.f_copy_(&self.values));
        Ok(kept.map_err(torch("keeping what was pulled"))?)
    }

    /// How many steps there are until the next exchange: the ranks of a group take as many as its first
    /// rank finds, from the group's speed and that of the fastest.
    pub(super) fn steps(
        &self,
        group: &dyn Group,
        heartbeat: &HeartbeatState,
    ) -> Result<u32, GroupError> {
        if !self.config.fitted {
            return Ok(self.config.steps);
        }
        let fitted = self
            .config
            .fitted_steps(heartbeat.speed(), heartbeat.fastest());
        Ok(agreed_steps(fitted, group)?)
    }

    /// One step with the gradients that the model's tensors have. `seen` is what was applied when the
    /// last exchange ended and what the group has done since, `samples` what this step adds.
    pub(super) fn step(&mut self, seen: Seen, samples: u64) -> Result<(), HostError> {
        let rate = self.config.schedule.rate(seen, samples, self.outer.budget);
        let stepped = self.optimizer.set_learning_rate(rate);
        let stepped = stepped.and_then(|()| self.optimizer.step());
        Ok(stepped.map_err(torch("an inner step"))?)
    }

    /// After the steps: what the group exchanges takes the place of its gradient, and the model has
    /// what its exchange has pulled last.
    pub(super) fn push(&mut self, group: &dyn Group) -> Result<(), HostError> {
        let algorithm = self.config.algorithm;
        let pushed = tch::no_grad(|| {
            for (at, views) in self.buckets.iter().enumerate() {
                let lengths = views.iter().map(|[values, _]| values.numel() as i64);
                let lengths: Vec<_> = lengths.collect();
                let gradients = group.gradient(at).f_split_with_sizes(&lengths[..], 0)?;
                for ([values, kept], mut gradient) in views.iter().zip(gradients) {
                    match algorithm {
                        Algorithm::DiLoCo => drop(kept.f_sub_out(&gradient, values)?),
                        Algorithm::Elastic => gradient.f_copy_(values)?,
                    }
                }
            }
            match algorithm {
                Algorithm::DiLoCo => self.values.f_copy_(&self.kept),
                Algorithm::Elastic => self.kept.f_copy_(&self.values),
            }
        });
        Ok(pushed.map_err(torch("what steps came to"))?)
    }

    /// What the steps came to is not finite: nothing of it is kept, nor the state of the inner
    /// optimizer.
    pub(super) fn give_up(&mut self) -> Result<(), HostError> {
        self.lost = true;
        let anew = optimizer(&self.config, &self.tensors);
        self.optimizer = anew.map_err(torch("an inner optimizer"))?;
        Ok(())
    }

    /// The model has what an exchange has brought; `applied` says whether the group's contribution
    /// is in it.
    pub(super) fn pulled(&mut self, applied: bool) -> Result<(), HostError> {
        let lost = std::mem::take(&mut self.lost);
        let algorithm = self.config.algorithm;
        let part = drawn(self.outer.rate, applied);
        let (values, kept) = (&mut self.values, &mut self.kept);
        let moved = tch::no_grad(|| match (algorithm, lost) {
            (Algorithm::Elastic, false) => {
                let _ = kept.f_lerp_(values, part)?;
                values.f_copy_(kept)
            }
            (Algorithm::Elastic, true) | (Algorithm::DiLoCo, _) => kept.f_copy_(values),
        });
        Ok(moved.map_err(torch("taking values from an exchange"))?)
    }
}

/// libtorch's, at the beginning.
fn optimizer(config: &Local, tensors: &[(Tensor, bool)]) -> Result<COptimizer, TchError> {
    let rate = config.schedule.learning_rate;
    let mut optimizer = match config.inner {
        Inner::AdamW {
            beta1,
            beta2,
            epsilon,
            weight_decay,
        } => nn::AdamW {
            beta1,
            beta2,
            wd: weight_decay,
            eps: epsilon,
            amsgrad: false,
        }
        .build_copt(rate)?,
        Inner::Sgd {
            momentum,
            nesterov,
            weight_decay,
        } => nn::Sgd {
            momentum,
            dampening: 0.0,
            wd: weight_decay,
            nesterov,
        }
        .build_copt(rate)?,
    };
    for (tensor, decays) in tensors {
        let group = usize::from(!decays);
        optimizer.add_parameters(tensor, group)?;
        if !decays {
            optimizer.set_weight_decay_group(group, 0.0)?;
        }
    }
    Ok(optimizer)
}
