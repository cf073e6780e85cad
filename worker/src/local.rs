//! Steps that a group takes between two exchanges, with an inner optimizer of libtorch's, and what it
//! exchanges after them.
//!
//! | | DiLoCo | elastic averaging |
//! |---|---|---|
//! | steps begin with | the servers' values | the group's own; in a new life the servers' |
//! | pushed as a gradient | pulled minus trained values | trained values |
//! | with the answer | the group takes the servers' values | is drawn towards them |
//!
//! DiLoCo is algorithm 1 of Douillard et al. 2023, "DiLoCo: Distributed Low-Communication Training of
//! Language Models", on the group's side; elastic averaging algorithm 1 of Zhang, Choromanska and LeCun 2015,
//! "Deep learning with Elastic Averaging SGD", and algorithm 2 with an inner momentum; fitted step counts are
//! section 5 of Liu et al. 2024, "Asynchronous Local-SGD Training for Language Modeling".
//!
//! The ranks of a group average the gradient of every step, so all have the same values and the
//! same state of the inner optimizer, which lives as long as this life of the group.

use tch::nn::{self, OptimizerConfig};
use tch::{COptimizer, TchError, Tensor};
use tradewind_client::pulse::Pulse;
use tradewind_common::layout::Bucket;
use tradewind_common::schedule::Seen;
use tradewind_common::{Layout, TensorKind};
use tradewind_config::{self, Algorithm, Inner};

use crate::flat::{Flat, FlatError, in_layout_order};
use crate::group::{Group, GroupError};
use crate::host::HostError;
use crate::stream::torch;

/// What a group has for its steps between exchanges.
pub struct Local {
    config: tradewind_config::Local,
    /// α, of elastic averaging.
    alpha: f64,
    /// The run's samples, the schedule's end.
    budget: u64,
    /// The model's parameters, and whether weight decay applies to each.
    tensors: Vec<(Tensor, bool)>,
    optimizer: COptimizer,
    /// Views of all parameters in the flat vector, bucket by bucket; none for buffers.
    buckets: Vec<Option<Tensor>>,
    /// As long as the buckets. DiLoCo: as pulled; elastic averaging: during an exchange, the group's
    /// own values.
    kept: Vec<Option<Tensor>>,
    /// The steps have come to values that are not finite.
    lost: bool,
}

impl Local {
    /// For a group that has just pulled `flat`. `tensors` are the model's own, in its order of
    /// creation; `alpha` is the rate of the servers' updates, and `budget` their samples.
    pub fn new(
        config: &tradewind_config::Local,
        (alpha, budget): (f64, u64),
        layout: &Layout,
        flat: &Flat,
        tensors: &[(String, Tensor)],
    ) -> Result<Self, HostError> {
        let tensors = layout.tensors.iter().zip(in_layout_order(layout, tensors)?);
        let trained = tensors.filter(|(placed, _)| placed.spec.kind == TensorKind::Parameter);
        let exempt = config.decay_exempt;
        let tensors: Vec<_> = trained
            .map(|(placed, tensor)| (tensor, exempt.decays(&placed.spec)))
            .collect();
        let view = |bucket: &Bucket| {
            let trained = bucket.kind == TensorKind::Parameter;
            let range = std::slice::from_ref(&bucket.elements);
            let view = || flat.ranges(range).map(|mut views| views.remove(0));
            trained.then(view).transpose()
        };
        let buckets = layout.buckets.iter().map(view);
        let buckets = buckets.collect::<Result<Vec<_>, FlatError>>()?;
        let kept = buckets.iter().map(|view| view.as_ref().map(Tensor::copy));
        Ok(Self {
            config: config.clone(),
            alpha,
            budget,
            optimizer: optimizer(config, &tensors).map_err(torch("an inner optimizer"))?,
            tensors,
            kept: kept.collect(),
            buckets,
            lost: false,
        })
    }

    /// How many there are until the next exchange: the ranks of a group take as many as its first
    /// rank finds, from the group's speed and that of the fastest.
    pub fn steps(&self, group: &dyn Group, pulse: &Pulse) -> Result<u32, GroupError> {
        if !self.config.fitted {
            return Ok(self.config.steps);
        }
        let fitted = self.config.fitted_steps(pulse.speed(), pulse.fastest());
        let mut steps = [i64::from(fitted)];
        group.broadcast(&mut steps)?;
        Ok(steps[0] as u32)
    }

    /// One step with the gradients that the model's tensors have. `seen` is what was applied when the
    /// last exchange ended and what the group has done since, `samples` what this step adds.
    pub fn step(&mut self, seen: Seen, samples: u64) -> Result<(), HostError> {
        let rate = self.config.schedule.rate(seen, samples, self.budget);
        let stepped = self.optimizer.set_learning_rate(rate);
        let stepped = stepped.and_then(|()| self.optimizer.step());
        Ok(stepped.map_err(torch("an inner step"))?)
    }

    /// After the steps: what the group exchanges takes the place of its gradient, and the model has
    /// what its exchange has pulled last.
    pub fn push(&mut self, group: &dyn Group) -> Result<(), HostError> {
        let pushed = tch::no_grad(|| {
            for (at, (values, kept)) in self.buckets.iter().zip(&mut self.kept).enumerate() {
                let (Some(values), Some(kept), Some(gradient)) = (values, kept, group.gradient(at))
                else {
                    continue;
                };
                match self.config.algorithm {
                    Algorithm::DiLoCo => {
                        let _ = kept.f_sub_out(gradient, values)?;
                        values.shallow_clone().f_copy_(kept)?;
                    }
                    Algorithm::Elastic => {
                        gradient.shallow_clone().f_copy_(values)?;
                        kept.f_copy_(values)?;
                    }
                }
            }
            Ok::<_, TchError>(())
        });
        Ok(pushed.map_err(torch("what steps came to"))?)
    }

    /// What the steps came to is not finite: nothing of it is kept, nor the state of the inner
    /// optimizer.
    pub fn give_up(&mut self) -> Result<(), HostError> {
        self.lost = true;
        let anew = optimizer(&self.config, &self.tensors);
        self.optimizer = anew.map_err(torch("an inner optimizer"))?;
        Ok(())
    }

    /// The model has what an exchange has brought; `applied` says whether the group's contribution
    /// is in it.
    pub fn pulled(&mut self, applied: bool) -> Result<(), HostError> {
        let lost = std::mem::take(&mut self.lost);
        // With x̃ the centre before the update and c = x̃ + α(x − x̃) after it, x − α(x − x̃) is
        // x − α(x − c)/(1 − α).
        let part = match applied {
            true => self.alpha / (1.0 - self.alpha),
            false => self.alpha,
        };
        let moved = tch::no_grad(|| {
            for (values, kept) in self
                .buckets
                .iter()
                .flatten()
                .zip(self.kept.iter_mut().flatten())
            {
                if self.config.algorithm == Algorithm::Elastic && !lost {
                    let _ = kept.f_lerp_(values, part)?;
                    values.shallow_clone().f_copy_(kept)?;
                } else {
                    kept.f_copy_(values)?;
                }
            }
            Ok::<_, TchError>(())
        });
        Ok(moved.map_err(torch("taking values from an exchange"))?)
    }
}

/// libtorch's, at the beginning.
fn optimizer(
    config: &tradewind_config::Local,
    tensors: &[(Tensor, bool)],
) -> Result<COptimizer, TchError> {
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
