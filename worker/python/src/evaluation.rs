//! A script that is started once more after its run, to evaluate the servers' parameters.

use std::collections::HashSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::Runtime;
use tradewind_client::coordinator::CoordinatorAt;
use tradewind_client::evaluation::{check_finite, digest, digest_of_file, in_name_order, write};
use tradewind_client::group_key::GroupKey;
use tradewind_client::milestones;
use tradewind_client::network::Reach;
use tradewind_client::reader::Reader;
use tradewind_client::saving::{Notes, save};
use tradewind_common::record::{self, Better, Evaluation, Measure};
use tradewind_common::spec::RunSpec;
use tradewind_common::{BlockId, Layout, Rank, RunId};
use tradewind_config::Config;

use crate::entry::{Entry, Evaluates};
use crate::memory::Memory;
use crate::saving::Tensor;

/// The file that has the model, in the run's folder.
const MODEL: &str = "model.safetensors";

/// What an evaluation has, on the thread that does what the script waits for.
pub struct Evaluator {
    config: Config,
    coordinator: CoordinatorAt,
    reach: Reach,
    folders: Evaluates,
    rank: Rank,
    spec: Arc<RunSpec>,
    layout: Arc<Layout>,
    /// Blocks that this rank reads.
    slice: Vec<BlockId>,
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
    slice: HashSet<BlockId>,
    is_first: bool,
}

impl Recording {
    /// Has `measure` called for each, with the ranges of the flat vector that this rank has and their values. The
    /// first rank writes down what it finds, and deletes them.
    pub fn record(
        &self,
        measure: &mut dyn FnMut(Vec<Part>) -> anyhow::Result<Measure>,
    ) -> anyhow::Result<()> {
        let Self {
            fleet,
            out,
            run,
            layout,
            slice,
            is_first,
        } = self;
        let wanted = |block: BlockId| slice.contains(&block);
        let own = layout.blocks.iter().filter(|block| wanted(block.id));
        let own: Vec<Range<usize>> = own.map(|block| block.elements.clone()).collect();
        let mut measure = |values: &[f32]| {
            let part = |range: &Range<usize>| (range.clone(), values[range.clone()].to_vec());
            measure(own.iter().map(part).collect())
        };
        match is_first {
            true => milestones::record(fleet, run, layout, out, &wanted, &mut measure),
            false => milestones::evaluate(fleet, run, layout, &wanted, &mut measure).map(drop),
        }
    }
}

/// A range of the flat vector, and its values.
pub type Part = (Range<usize>, Vec<f32>);

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
                credentials: entry.credentials,
                retry: Duration::from_millis(entry.config.liveness.retry_ms),
                connections: entry.config.exchange.connections,
            },
            config: entry.config,
            coordinator: entry.coordinator,
            folders,
            rank: entry.rank,
            spec,
            layout,
            slice: Vec::new(),
            values,
            runtime: builder.worker_threads(1).enable_all().build()?,
        })
    }

    /// Brings the servers' values: of the flat vector this rank's slice, which is all of it for a single one. Returns
    /// the slices of all ranks.
    pub fn pull(&mut self) -> anyhow::Result<Vec<Vec<Range<usize>>>> {
        let run = &self.config.name;
        let reader = Reader::find(run, &self.coordinator, &self.reach, &self.spec);
        let reader = self.runtime.block_on(reader)?;
        if reader.layout.tensors != self.layout.tensors {
            anyhow::bail!("the servers' values do not lie as this script's model has them");
        }
        // Its blocks are the run's.
        self.layout = reader.layout.clone();
        let slices = self.layout.slices(self.folders.ranks);
        self.slice = slices[self.rank.0 as usize].clone();
        // SAFETY: the script waits for this call.
        let values = unsafe { self.values.values_mut() };
        self.runtime.block_on(reader.pull(&self.slice, values))?;
        let ranges = |slice: &Vec<BlockId>| self.layout.runs(slice);
        Ok(slices.iter().map(ranges).collect())
    }

    /// By which the ranks that evaluate know what one of them has written in the store where they meet.
    pub fn store_key(&self) -> GroupKey {
        let name = format!("{}/evaluation", self.config.name);
        GroupKey::of(self.reach.credentials.token(), &name)
    }

    /// Puts other values in their place.
    pub fn set(&mut self, parts: Vec<Part>) {
        // SAFETY: the script waits for this call.
        let values = unsafe { self.values.values_mut() };
        for (range, part) in parts {
            values[range].copy_from_slice(&part);
        }
    }

    /// Where the model is written.
    pub fn model_file(&self) -> PathBuf {
        self.folders.out.join(MODEL)
    }

    /// Writes the model, unless it is in its file already, and what was found, if there was anything to find it with.
    pub fn write(
        &mut self,
        found: Option<Found>,
        torch: String,
        model: Option<(Vec<Tensor>, Notes)>,
    ) -> anyhow::Result<()> {
        let evaluation = found.map(|found| Evaluation {
            metric: found.metric.into(),
            better: match found.higher {
                true => Better::Higher,
                false => Better::Lower,
            },
            validation: found.validation.into(),
            baselines: found.baselines.into_iter().map(Measured::into).collect(),
            parts: found.parts.into_iter().map(OfPart::into).collect(),
            params_digest: String::new(),
            parameters: self.layout.elements() as u64,
            libtorch: torch,
            curves: Vec::new(),
            scatters: Vec::new(),
            picture: String::new(),
        });
        if let Some(evaluation) = &evaluation {
            check_finite(&[&evaluation.metric, &evaluation.validation])?;
        }
        let file = self.model_file();
        let params_digest = match model {
            None => digest_of_file(&file, &self.layout)?,
            Some((tensors, notes)) => {
                let saved: Vec<_> = tensors.iter().map(Tensor::saved).collect();
                save(&file, &saved, notes)?;
                // SAFETY: the script waits for this call.
                let values = unsafe { self.values.values() };
                digest(&in_name_order(&self.layout, values))
            }
        };
        let Some(evaluation) = evaluation else {
            return Ok(());
        };
        let evaluation = Evaluation {
            params_digest,
            ..evaluation
        };
        write(&self.folders.out, &evaluation)
    }

    /// Where milestones are, if the run has saved any.
    pub fn recording(&self) -> Option<Recording> {
        Some(Recording {
            fleet: self.folders.milestones.clone()?,
            out: self.folders.out.clone(),
            run: self.config.name.clone(),
            layout: self.layout.clone(),
            slice: self.slice.iter().copied().collect(),
            is_first: self.rank == Rank(0),
        })
    }
}

impl From<OfPart> for record::Part {
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
