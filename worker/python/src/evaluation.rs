//! A script that is started once more after its run, to evaluate the servers' parameters.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::Runtime;
use tradewind_client::coordinator::CoordinatorAt;
use tradewind_client::evaluation::{check_finite, digest, in_name_order, write};
use tradewind_client::milestones;
use tradewind_client::network::Reach;
use tradewind_client::reader::pull;
use tradewind_client::saving::{Notes, save};
use tradewind_common::record::{Better, Evaluation, Measure, Part};
use tradewind_common::spec::RunSpec;
use tradewind_common::{Layout, RunId};
use tradewind_config::Config;

use crate::entry::{Entry, Evaluates};
use crate::memory::Memory;
use crate::saving::Tensor;

/// What an evaluation has, on the thread that does what the script waits for.
pub struct Evaluator {
    config: Config,
    coordinator: CoordinatorAt,
    reach: Reach,
    folders: Evaluates,
    spec: Arc<RunSpec>,
    layout: Arc<Layout>,
    values: Memory,
    runtime: Runtime,
}

/// Something measured, as Python has it: `tradewind.Measure`.
#[derive(FromPyObject)]
pub struct Measured {
    name: String,
    value: f64,
    unit: String,
}

/// The metric on a part of the data: `tradewind.Part`.
#[derive(FromPyObject)]
pub struct OfPart {
    name: String,
    value: f64,
    baselines: Vec<f64>,
}

/// What an evaluation has found.
#[derive(FromPyObject)]
pub struct Found {
    metric: Measured,
    higher: bool,
    validation: Measured,
    baselines: Vec<Measured>,
    parts: Vec<OfPart>,
}

impl From<Measured> for Measure {
    fn from(Measured { name, value, unit }: Measured) -> Self {
        Self { name, unit, value }
    }
}

/// Where milestones are, and where what they come to is written.
pub struct Recording {
    fleet: PathBuf,
    out: PathBuf,
    run: RunId,
    layout: Arc<Layout>,
}

impl Recording {
    /// Writes down what `measure` finds of each, and deletes them.
    pub fn record(
        &self,
        measure: &mut dyn FnMut(&[f32]) -> anyhow::Result<Measure>,
    ) -> anyhow::Result<()> {
        milestones::record(&self.fleet, &self.run, &self.layout, &self.out, measure)
    }
}

impl Evaluator {
    /// Nothing is sent yet. `entry` is that of an evaluation.
    pub fn new(
        entry: Entry,
        spec: Arc<RunSpec>,
        layout: Arc<Layout>,
        values: Memory,
    ) -> anyhow::Result<Self> {
        let folders = entry.evaluates.expect("an evaluation's");
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        Ok(Self {
            reach: Reach {
                token: entry.token,
                retry: Duration::from_millis(entry.config.liveness.retry_ms),
                connections: entry.config.exchange.connections,
            },
            config: entry.config,
            coordinator: entry.coordinator,
            folders,
            spec,
            layout,
            values,
            runtime: builder.worker_threads(1).enable_all().build()?,
        })
    }

    /// Brings the servers' values.
    pub fn pull(&mut self) -> anyhow::Result<()> {
        let run = &self.config.name;
        let pulled = pull(run, &self.coordinator, &self.reach, &self.spec);
        let pulled = self.runtime.block_on(pulled)?;
        if pulled.layout.tensors != self.layout.tensors {
            anyhow::bail!("the servers' values do not lie as this script's model has them");
        }
        // Its blocks are the run's.
        self.layout = pulled.layout;
        self.set(&pulled.values);
        Ok(())
    }

    /// Puts other values in their place.
    pub fn set(&mut self, values: &[f32]) {
        // SAFETY: the script waits for this call.
        unsafe { self.values.values_mut() }.copy_from_slice(values);
    }

    /// Writes the model, and what was found, if there was anything to find it with.
    pub fn write(
        &mut self,
        found: Option<Found>,
        torch: String,
        tensors: &[Tensor],
        notes: Notes,
    ) -> anyhow::Result<()> {
        // SAFETY: the script waits for this call.
        let values = unsafe { self.values.values() };
        let evaluation = found.map(|found| Evaluation {
            metric: found.metric.into(),
            better: match found.higher {
                true => Better::Higher,
                false => Better::Lower,
            },
            validation: found.validation.into(),
            baselines: found.baselines.into_iter().map(Measured::into).collect(),
            parts: found.parts.into_iter().map(OfPart::into).collect(),
            params_digest: digest(&in_name_order(&self.layout, values)),
            parameters: values.len() as u64,
            libtorch: torch,
            curves: Vec::new(),
            scatters: Vec::new(),
            picture: String::new(),
        });
        if let Some(evaluation) = &evaluation {
            check_finite(&[&evaluation.metric, &evaluation.validation])?;
        }
        let out = &self.folders.out;
        let saved: Vec<_> = tensors.iter().map(Tensor::saved).collect();
        save(&out.join("model.safetensors"), &saved, notes)?;
        evaluation.map_or(Ok(()), |evaluation| write(out, &evaluation))
    }

    /// Where milestones are, if the run has saved any.
    pub fn recording(&self) -> Option<Recording> {
        Some(Recording {
            fleet: self.folders.milestones.clone()?,
            out: self.folders.out.clone(),
            run: self.config.name.clone(),
            layout: self.layout.clone(),
        })
    }
}

impl From<OfPart> for Part {
    fn from(part: OfPart) -> Self {
        let OfPart {
            name,
            value,
            baselines,
        } = part;
        Self {
            name,
            value,
            baselines,
        }
    }
}
