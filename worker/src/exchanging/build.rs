//! Which way of exchanging a run's configuration asks for.

use std::sync::Arc;

use tch::Tensor;
use tradewind_client::heartbeat::HeartbeatState;
use tradewind_client::streams::Streams;
use tradewind_common::pieces::Cut;
use tradewind_common::spec::RunSpec;
use tradewind_config::{Config, Local, Precision};

use super::Exchanging;
use super::behind::BehindStep;
use super::between::BetweenSteps;
use super::during::DuringBackward;
use super::local::{InnerSteps, LocalSteps, Outer};
use super::whole::WholeGradient;
use crate::clip::Clip;
use crate::flat::Flat;
use crate::group::Group;
use crate::host::{HostError, HostSide, Leaves};
use crate::norms::TensorNorms;
use crate::precision::LossScaler;

/// What a way of exchanging is made from.
pub struct Setup<'a> {
    /// The run's configuration.
    pub config: &'a Config,
    /// What all processes of the run agree on.
    pub spec: &'a RunSpec,
    /// The host's side of the model.
    pub host: &'a HostSide,
    /// The model's tensors, named, in order of creation.
    pub tensors: &'a [(String, Tensor)],
    /// Their values as one vector.
    pub flat: &'a Flat,
    /// The ranks that step together. It tells the host's side of its buckets from here on.
    pub group: &'a mut dyn Group,
    /// What heartbeats tell and bring.
    pub heartbeat: &'a Arc<HeartbeatState>,
}

/// The way of exchanging that the configuration asks for, on the rank's streams.
///
/// The configuration refuses keys of two ways at once, so the order of the branches decides nothing.
pub fn build(setup: Setup<'_>, streams: Streams) -> Result<Box<dyn Exchanging>, HostError> {
    let config = setup.config;
    Ok(if let Some(local) = &config.local {
        Box::new(setup.local_steps(local, streams)?)
    } else if config.exchange.per_bucket {
        Box::new(setup.during_backward(streams)?)
    } else if config.train.overlap {
        Box::new(setup.behind_step(streams)?)
    } else {
        Box::new(setup.between_steps(streams)?)
    })
}

impl Setup<'_> {
    fn between_steps(self, streams: Streams) -> Result<BetweenSteps, HostError> {
        let (norms, fresh) = (self.norms(), self.host.fresh(self.flat)?);
        let gradient = self.whole_gradient(Leaves::REDUCED)?;
        Ok(BetweenSteps::new(gradient, streams, fresh).with_norms(norms))
    }

    fn behind_step(self, streams: Streams) -> Result<BehindStep, HostError> {
        let (host, norms, fresh) = (self.host, self.norms(), self.host.fresh(self.flat)?);
        let gradient = self.whole_gradient(Leaves::IN_TURNS)?;
        Ok(BehindStep::new(host, gradient, norms, streams, fresh))
    }

    /// The configuration refuses a scale of the loss and optimizers that ask for norms: there is no place
    /// for them.
    fn during_backward(self, streams: Streams) -> Result<DuringBackward, HostError> {
        let Self {
            host, flat, group, ..
        } = self;
        let (path, buffers) = (host.bucket_path(group)?, host.buffers(flat)?);
        let fresh = host.fresh(flat)?;
        Ok(DuringBackward::new(host, path, buffers, streams, fresh))
    }

    /// The configuration refuses optimizers that ask for norms: what is pushed is no gradient.
    fn local_steps(self, local: &Local, streams: Streams) -> Result<LocalSteps, HostError> {
        let outer = Outer {
            rate: self.config.optimizer.schedule.learning_rate,
            budget: self.config.train.samples,
        };
        let (host, heartbeat) = (self.host, self.heartbeat);
        let inner = InnerSteps::new(local, outer, host, self.flat, self.tensors)?;
        let fresh = host.fresh(self.flat)?;
        let gradient = self.whole_gradient(Leaves::LATER)?;
        let between = BetweenSteps::new(gradient, streams, fresh);
        Ok(LocalSteps::new(between, inner, heartbeat))
    }

    fn norms(&self) -> Option<TensorNorms> {
        let host = self.host;
        TensorNorms::new(
            Cut::of(self.spec),
            host.layout(),
            host.buckets(),
            host.slice(),
        )
    }

    fn whole_gradient(self, leaves: Leaves) -> Result<WholeGradient, HostError> {
        let (host, buffers) = (self.host, self.host.buffers(self.flat)?);
        let clip = self.config.optimizer.clip_norm;
        let clip = clip.map(|most| Clip::new(most, host.buckets().len()));
        let later = leaves.later || clip.is_some();
        let path = host.gradient_path(self.group, Leaves { later, ..leaves })?;
        let scaler = scaler(self.config.compute.precision);
        let gradient = WholeGradient::new(host.plan().parts(), path, buffers, scaler);
        Ok(gradient.with_clip(clip))
    }
}

/// The scale of the loss, where it is scaled.
fn scaler(precision: Precision) -> Option<LossScaler> {
    match precision {
        Precision::Fp16 {
            initial,
            growth_steps,
        } => Some(LossScaler::new(initial, growth_steps)),
        Precision::F32 | Precision::Bf16 => None,
    }
}
