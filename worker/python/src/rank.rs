//! One rank of a run, as Python sees it.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use std::{fs, io};

use anyhow::Context;
use pyo3::prelude::*;
use tradewind_client::alike::Misused;
use tradewind_client::feed::check_batch;
use tradewind_client::membership::End;
use tradewind_client::saving::Notes;
use tradewind_client::step::Copied;
use tradewind_client::verdict::Verdict;
use tradewind_common::data::{CHUNKS_HELD_MAX, Chunking};
use tradewind_common::layout::{TensorKind, TensorSpec};
use tradewind_common::spec::{Frozen, RunSpec};
use tradewind_common::{BlockId, GroupId, Layout, run_files};
use tradewind_config::{Config, Damaged, Reduce};
use tradewind_data::Staging;

use crate::alone;
use crate::driver::Driver;
use crate::entry::Entry;
use crate::errors::{Failure, ended, given_up, wrong};
use crate::evaluation::{Evaluator, Found, Measured};
use crate::memory::Memory;
use crate::process_log;
use crate::samples::{self, Samples};
use crate::saving::Tensor;
use crate::training::{self, JoinedGroup, Model, Outcome, Said, Trainer};

/// Where a tensor lies in the flat vector.
#[pyclass(frozen, get_all)]
pub struct Placed {
    /// Its number among those that were described.
    tensor: usize,
    /// The first of its values.
    begin: usize,
    /// How many values it has.
    elements: usize,
}

/// What of the flat vector is averaged together.
#[pyclass(frozen, get_all)]
pub struct Buckets {
    /// Ranges (begin, end) whose gradients are averaged in one piece, in the order in which backward finishes
    /// them.
    parameters: Vec<(usize, usize)>,
    /// The range of the buffers.
    buffers: (usize, usize),
}

/// What entering the group has brought.
#[pyclass(frozen, get_all)]
pub struct Joined {
    /// The incarnation of the group.
    incarnation: u64,
    /// The number of this rank in it.
    group_rank: u32,
    /// Ranks of it, which may be fewer than are configured.
    group_size: u32,
    /// host:port of the store at which the group meets.
    store_address: String,
    /// What the group's keys in the store begin with.
    prefix: String,
    /// By which values in the store are sealed.
    store_key: Vec<u8>,
    /// Of each rank in turn: the ranges (begin, end) of the flat vector that it exchanges.
    slices: Vec<Vec<(usize, usize)>>,
}

/// What a step has come to.
#[pyclass(frozen, get_all)]
pub struct Stepped {
    /// The group took no part in the exchange: somebody's gradient was not finite.
    skipped: bool,
    /// No further step is wanted: `applied`, because the budget is, or `left`, because the group was asked to.
    end: Option<&'static str>,
    /// The learning rate of the next update.
    rate: f64,
    /// Samples applied to the model, as far as this rank knows.
    samples_applied: u64,
    /// So many batches that were asked for and not handed out are left out.
    left_out: u64,
    /// What local steps came to was not finite: the script's optimizer begins anew.
    lost: bool,
}

/// What the script's own optimizer does with a step.
#[pyclass(frozen, get_all)]
pub struct InnerStep {
    /// Nothing: somebody's gradient was not finite.
    skipped: bool,
    /// After it the steps are exchanged.
    exchange: bool,
}

impl From<Outcome> for Stepped {
    fn from(outcome: Outcome) -> Self {
        let Outcome {
            skipped,
            end,
            rate,
            samples_applied,
            left_out,
            lost,
        } = outcome;
        Self {
            skipped,
            end: end.map(|end| match end {
                End::Applied => "applied",
                End::Left => "left",
            }),
            rate,
            samples_applied,
            left_out,
            lost,
        }
    }
}

/// One rank of a run.
#[pyclass(frozen)]
pub struct Rank {
    config: Config,
    group: u32,
    rank: u32,
    local_rank: u32,
    threads: i32,
    folder: Option<PathBuf>,
    /// How many ranks evaluate together, if this one evaluates.
    evaluators: Option<u32>,
    alone: bool,
    /// Of the files of the training data, if they are copied ahead of their use.
    staging: Mutex<Option<Staging>>,
    /// What was copied for batches since the last step.
    copied: Mutex<Copied>,
    /// Number of the process that has joined; children that it forks have another.
    process: u32,
    entry: Mutex<Option<Entry>>,
    described: Mutex<Option<(Arc<RunSpec>, Arc<Layout>)>>,
    /// Once the model is known.
    driver: OnceLock<Driver<Trainer>>,
    /// The same, of a rank that evaluates.
    evaluator: OnceLock<Driver<Evaluator>>,
}

#[pymethods]
impl Rank {
    /// As the launcher says in the environment; `None` without one.
    #[staticmethod]
    fn from_environment() -> PyResult<Option<Self>> {
        let entry = Entry::from_environment();
        if let Ok(None) = entry {
            return Ok(None);
        }
        process_log::begin();
        let entry = entry.map_err(|error| {
            let error = given_up(error);
            // No rank is there that would do so at the end.
            tradewind_process::flush();
            error
        })?;
        Ok(entry.map(|entry| Self::of(entry, false)))
    }

    /// With its servers in this process, by a run's file; `command` is what has started the script, `secret` what
    /// calls to these servers show.
    #[staticmethod]
    fn begin_alone(file: PathBuf, command: Vec<String>, secret: &str) -> PyResult<Self> {
        let entry =
            alone::begin(&file, &command, secret).map_err(|error| wrong(format!("{error:#}")))?;
        process_log::begin();
        Ok(Self::of(entry, true))
    }

    /// The run's folder; `None` if the rank is alone.
    #[getter]
    fn folder(&self) -> Option<PathBuf> {
        self.folder.clone()
    }

    /// Whether it evaluates the servers' parameters instead of training.
    #[getter]
    fn evaluating(&self) -> bool {
        self.evaluators.is_some()
    }

    /// Whether it has its servers in its own process.
    #[getter]
    fn alone(&self) -> bool {
        self.alone
    }

    /// Name of the run.
    #[getter]
    fn run(&self) -> String {
        self.config.name.to_string()
    }

    /// Number of the group.
    #[getter]
    fn group(&self) -> u32 {
        self.group
    }

    /// Number of the rank in its group, as configured.
    #[getter]
    fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of the rank among those of its machine.
    #[getter]
    fn local_rank(&self) -> u32 {
        self.local_rank
    }

    /// Ranks of the group, as configured.
    #[getter]
    fn group_size(&self) -> PyResult<u32> {
        let size = self.config.cluster.groups.get(self.group as usize);
        let why = || wrong(format!("the configuration has no group {}", self.group));
        size.copied().ok_or_else(why)
    }

    /// Threads that the rank computes with.
    #[getter]
    fn threads(&self) -> i32 {
        self.threads
    }

    /// Host name or address under which the group's ranks reach this one.
    #[getter]
    fn host(&self) -> &str {
        &self.config.cluster.host
    }

    /// Samples per rank and step, at first.
    #[getter]
    fn batch(&self) -> u32 {
        self.config.train.batch
    }

    /// Samples per rank and step once `train.batch_ramp` has ended.
    #[getter]
    fn largest_batch(&self) -> u32 {
        self.config.train.largest_batch()
    }

    /// Whether the script's own optimizer takes steps between exchanges.
    #[getter]
    fn is_local(&self) -> bool {
        self.config.local.is_some()
    }

    /// How many batches of a rank may be asked for and not be used in a step yet, besides one, with so many samples
    /// in the training data; `None` where they follow from the step alone.
    fn batches_ahead(&self, epoch_samples: u64) -> PyResult<Option<u64>> {
        let train = &self.config.train;
        if train.consistency.waits_for_all() {
            return Ok(None);
        }
        let chunking = Chunking {
            epoch_samples,
            chunk_samples: train.chunk_samples,
            sets: train.sets.count,
        };
        let of_group = u64::from(train.largest_batch()) * u64::from(self.group_size()?);
        // One of the chunks may have been begun.
        let steps = chunking.fewest_steps(CHUNKS_HELD_MAX as u64 - 1, of_group);
        Ok(Some(steps.saturating_sub(1)))
    }

    /// The run's seed.
    #[getter]
    fn seed(&self) -> u64 {
        self.config.seed
    }

    /// Where files of samples are copied to, and most bytes of them there.
    #[getter]
    fn cache(&self) -> Option<(String, u64)> {
        let cache = self.config.cache.as_ref();
        cache.map(|cache| (cache.folder.clone(), cache.bytes))
    }

    /// Whether another sample is read in the place of a damaged one.
    #[getter]
    fn replaces_damaged(&self) -> bool {
        self.config.loader.damaged == Damaged::Replace
    }

    /// From now on files of the sets that batches come from are copied ahead of their use: the training data are
    /// these samples.
    fn stage(&self, samples: &Samples) {
        let mut staging = locked(&self.staging);
        // A run has one set of training data, and what it wants of them is told once.
        if staging.is_none() {
            *staging = samples.staging();
        }
    }

    /// A process that reads batches has copied so much for one to the disk of this machine.
    fn copied(&self, bytes: u64, seconds: f64) {
        let mut copied = locked(&self.copied);
        *copied = *copied + Copied { bytes, seconds };
    }

    /// Section `script` of the run's file, as JSON.
    #[getter]
    fn settings(&self) -> String {
        serde_json::Value::Object(self.config.script.clone()).to_string()
    }

    /// Whether exchanges run during backward, bucket by bucket.
    #[getter]
    fn per_bucket(&self) -> bool {
        self.config.exchange.per_bucket
    }

    /// Whether a rank needs the group's mean only of what it exchanges.
    #[getter]
    fn scatter(&self) -> bool {
        self.config.exchange.reduce == Reduce::Scatter
    }

    /// Whether values are needed where an exchange has brought them once the model has them: they may be those of
    /// the next step as well, or the next answer a difference to them.
    #[getter]
    fn keeps_values(&self) -> bool {
        self.config.train.overlap || self.config.down.lossy()
    }

    /// The largest norm of the group's mean gradient, if there is one.
    #[getter]
    fn clip_norm(&self) -> Option<f64> {
        self.config.optimizer.clip_norm
    }

    /// What ranks compute on: `auto`, `cpu`, `cuda` or `cuda:N`.
    #[getter]
    fn device(&self) -> String {
        self.config.compute.device.to_string()
    }

    /// Whether f32 products may round their factors to TF32.
    #[getter]
    fn tf32(&self) -> bool {
        self.config.compute.tf32
    }

    /// Whether only algorithms are used whose bits repeat.
    #[getter]
    fn deterministic(&self) -> bool {
        self.config.compute.deterministic
    }

    /// Length of a rank's lease, in seconds: what ranks wait for each other is bounded by it.
    #[getter]
    fn lease_seconds(&self) -> f64 {
        self.config.liveness.lease_ms as f64 / 1e3
    }

    /// What is trained: of each tensor its name, shape, and whether it is a buffer; in the order in which the
    /// model creates them. `epoch_samples` is the length of the training data; `frozen` are the names and
    /// digests of what is not trained. Returns where tensors lie in the flat vector, and how long that is.
    fn describe(
        &self,
        tensors: Vec<(String, Vec<u64>, bool)>,
        epoch_samples: u64,
        frozen: Vec<(String, u64)>,
    ) -> PyResult<(usize, Vec<Placed>)> {
        let spec = |(name, shape, buffer)| TensorSpec {
            name,
            shape,
            kind: match buffer {
                true => TensorKind::Buffer,
                false => TensorKind::Parameter,
            },
        };
        let tensors = tensors.into_iter().map(spec).collect();
        let mut spec = self.config.spec(tensors, epoch_samples);
        let frozen = frozen.into_iter();
        spec.frozen = frozen
            .map(|(name, digest)| Frozen { name, digest })
            .collect();
        let layout = spec.check().map_err(|error| wrong(error.to_string()))?;
        for group in 0..spec.group_sizes.len() {
            let group = GroupId(group as u32);
            check_batch(&spec, group).map_err(|error| wrong(error.to_string()))?;
        }
        let placed = layout.tensors.iter().map(|tensor| Placed {
            tensor: tensor.created,
            begin: tensor.elements.start,
            elements: tensor.elements.len(),
        });
        let placed = (layout.elements(), placed.collect());
        *locked(&self.described) = Some((Arc::new(spec), Arc::new(layout)));
        Ok(placed)
    }

    /// Ranks of the group that are there, as configured: 1 of a rank that is alone, and where one process evaluates.
    #[getter]
    fn ranks(&self) -> PyResult<u32> {
        match self.evaluators {
            Some(ranks) => Ok(ranks),
            None if self.alone => Ok(1),
            None => self.group_size(),
        }
    }

    /// What of the flat vector is averaged together.
    fn buckets(&self) -> PyResult<Buckets> {
        let described = locked(&self.described);
        let (_, layout) = described.as_ref().ok_or_else(undescribed)?;
        let buckets = layout.buckets(self.config.exchange.bucket_bytes);
        let ranges = buckets.iter().map(|b| (b.elements.start, b.elements.end));
        let buffers = layout.of_kind(TensorKind::Buffer);
        Ok(Buckets {
            parameters: ranges.collect(),
            buffers: (buffers.start, buffers.end),
        })
    }

    /// The memory of the flat vector's values and of its gradient, which the rank keeps.
    /// `on_gpu` is whether the ranks reduce on one. Where the model is sharded, so that of both a rank has its own slice
    /// alone, `spent` is called with ranges (begin, end) of the gradient that nobody reads any more.
    #[pyo3(signature = (values, gradient, on_gpu=false, spent=None))]
    fn bind(
        &self,
        values: &Bound<'_, PyAny>,
        gradient: &Bound<'_, PyAny>,
        on_gpu: bool,
        spent: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let (spec, layout) = locked(&self.described).clone().ok_or_else(undescribed)?;
        let values = Memory::new(values, layout.elements(), "the flat vector")?;
        let gradient = Memory::new(gradient, layout.elements(), "the gradient")?;
        if spent.is_some() && spec.optimizer.capabilities().layerwise() {
            return Err(wrong(
                "the steps of this optimizer follow from the lengths of whole tensors, of which a rank has only its \
                 rows where the model is sharded: take another optimizer.name, such as \"adamw\"",
            ));
        }
        let entry = locked(&self.entry).take();
        let entry = entry.ok_or_else(bound)?;
        note_island(&entry, spent.is_some()).map_err(given_up)?;
        if entry.evaluates.is_some() {
            let evaluator = Evaluator::new(entry, spec, layout, values);
            let driver = Driver::start(evaluator.map_err(given_up)?)?;
            return self.evaluator.set(driver).map_err(|_| bound());
        }
        let trainer = Trainer::new(
            entry,
            &spec,
            &layout,
            values,
            gradient,
            Model { on_gpu, spent },
        );
        let driver = Driver::start(trainer.map_err(given_up)?)?;
        self.driver.set(driver).map_err(|_| bound())
    }

    /// Enters the group, in a later incarnation than before. `store_address` (host:port) is where the group
    /// may meet, if this rank serves such a place; empty without.
    fn join(&self, py: Python<'_>, store_address: String) -> PyResult<Joined> {
        let JoinedGroup {
            joined,
            layout,
            store_key,
            prefix,
        } = self.call(py, move |trainer| trainer.join(&store_address))?;
        let range = |id: &BlockId| {
            let block = layout.block(*id).expect("a block of the layout");
            (block.elements.start, block.elements.end)
        };
        let slices = layout.slices(joined.group_size);
        let slices = slices.iter().map(|slice| slice.iter().map(range).collect());
        Ok(Joined {
            incarnation: joined.incarnation.0,
            group_rank: joined.group_rank.0,
            group_size: joined.group_size,
            store_address: joined.store_address,
            prefix,
            store_key: store_key.as_bytes().to_vec(),
            slices: slices.collect(),
        })
    }

    /// The ranks begin to meet. `break_group` is called, from another thread, when the group is over while
    /// the meeting or a collective may hang.
    fn breaks(&self, py: Python<'_>, break_group: Py<PyAny>) -> PyResult<()> {
        self.call(py, move |trainer| trainer.breaks(break_group))
    }

    /// The ranks have met: `collectives` is what [`PythonRanks`] says, none for a group of one. Creates initial
    /// values from the flat vector if the rank is told to, and brings the servers' values into it.
    fn enter(&self, py: Python<'_>, collectives: Option<Py<PyAny>>) -> PyResult<Stepped> {
        self.call(py, move |trainer| trainer.enter(collectives))
            .map(Stepped::from)
    }

    /// The samples of the next batch to be prepared, by number in the training data, and their epoch.
    fn next_batch(&self, py: Python<'_>) -> PyResult<(u64, Vec<usize>)> {
        let asked = self.call(py, Trainer::next_batch)?;
        if let Some(staging) = &*locked(&self.staging) {
            for samples in asked.wanted {
                staging.want(samples, asked.rank.0, asked.ranks);
            }
        }
        Ok((asked.epoch, asked.samples))
    }

    /// Of the batches that were asked for and not handed out, the first is now; the script has waited so many
    /// seconds for it.
    fn handed_out(&self, py: Python<'_>, waited: f64) -> PyResult<()> {
        let waited = Duration::try_from_secs_f64(waited).unwrap_or_default();
        self.call(py, move |trainer| trainer.handed_out(waited))
    }

    /// Backward has begun: where exchanges run meanwhile, the one of this gradient, the group's mean over
    /// `samples`, begins.
    fn begin_backward(&self, py: Python<'_>, samples: u32) -> PyResult<()> {
        self.call(py, move |trainer| trainer.begin_backward(samples))
    }

    /// In the gradient's memory this bucket is the group's mean, and final.
    fn give(&self, py: Python<'_>, bucket: usize) -> PyResult<()> {
        self.call(py, move |trainer| trainer.give(bucket))
    }

    /// The gradient of `samples` samples, in so many batches, is in its memory, averaged over the group: agrees
    /// with the group that it is finite, exchanges it, and brings fresh values. `overflowed` says that it is
    /// known not to be finite, and `loss_scale` what the loss was multiplied by, if it was. `loss_before` is
    /// the loss of the step before; NaN if nobody says.
    #[pyo3(signature = (samples, batches, overflowed=false, loss_scale=None, loss_before=f64::NAN))]
    fn step(
        &self,
        py: Python<'_>,
        samples: usize,
        batches: u32,
        overflowed: bool,
        loss_scale: Option<f64>,
        loss_before: f64,
    ) -> PyResult<Stepped> {
        let said = Said {
            samples,
            batches,
            overflowed,
            loss_scale,
            loss_before,
            options: 0,
            copied: self.take_copied(),
        };
        let stepped = self.call(py, move |trainer| trainer.step(said))?;
        stepped.map(Stepped::from).map_err(misused)
    }

    /// The same for a step of the script's own optimizer, which is not exchanged by itself. `options` is a
    /// number below 2^18 that follows from the options of the optimizer: all ranks have the same.
    #[pyo3(signature = (samples, batches, overflowed=false, loss_scale=None, loss_before=f64::NAN, options=0))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn inner_step(
        &self,
        py: Python<'_>,
        samples: usize,
        batches: u32,
        overflowed: bool,
        loss_scale: Option<f64>,
        loss_before: f64,
        options: u32,
    ) -> PyResult<InnerStep> {
        let said = Said {
            samples,
            batches,
            overflowed,
            loss_scale,
            loss_before,
            options,
            copied: self.take_copied(),
        };
        let stepped = self.call(py, move |trainer| trainer.inner_step(said))?;
        let training::InnerStep { skipped, exchange } = stepped.map_err(misused)?;
        Ok(InnerStep { skipped, exchange })
    }

    /// Exchanges what the script's own steps have come to, with the buffers that lie beside the gradient.
    fn exchange_steps(&self, py: Python<'_>) -> PyResult<Stepped> {
        let exchanged = self.call(py, Trainer::exchange_steps);
        exchanged.map(Stepped::from)
    }

    /// Before a backward that averages and is not the first since the last step, with so many batches: an
    /// error where the ranks of the group are not at the same place.
    fn meet(&self, py: Python<'_>, batches: u32) -> PyResult<()> {
        let met = self.call(py, move |trainer| trainer.meet(batches))?;
        met.map_err(misused)
    }

    /// The group is done with the run; `loss_before` as for [`step`](Self::step).
    #[pyo3(signature = (loss_before=f64::NAN))]
    fn leave(&self, py: Python<'_>, loss_before: f64) -> PyResult<()> {
        self.call(py, move |trainer| trainer.leave(loss_before))
    }

    /// This incarnation of the group is over, because of `reason`. Waits a moment if several were in vain.
    /// Whether the rank is to enter again; if not, it has left.
    fn again(&self, py: Python<'_>, reason: String) -> PyResult<bool> {
        let pause = self.call(py, move |trainer| trainer.again(reason))?;
        let Some(pause) = pause else {
            return Ok(false);
        };
        py.detach(|| std::thread::sleep(pause));
        Ok(true)
    }

    /// Brings the servers' values into the flat vector, of a rank that evaluates: those of its slice. Returns the ranges
    /// (begin, end) of the slice of each rank that does.
    fn pull(&self, py: Python<'_>) -> PyResult<Vec<Vec<(usize, usize)>>> {
        let slices = self.evaluate(py, Evaluator::pull)?;
        let pairs = |slice: Vec<Range<usize>>| slice.iter().map(|r| (r.start, r.end)).collect();
        Ok(slices.into_iter().map(pairs).collect())
    }

    /// The key of the store in which ranks meet that evaluate.
    fn evaluation_key(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        let key = self.evaluate(py, |evaluator| Ok(evaluator.store_key()))?;
        Ok(key.as_bytes().to_vec())
    }

    /// Where a rank that evaluates writes the model.
    fn model_file(&self, py: Python<'_>) -> PyResult<PathBuf> {
        self.evaluate(py, |evaluator| Ok(evaluator.model_file()))
    }

    /// What the evaluation has found, if there was one, with the version of torch: writes it and the model, tensors
    /// and notes, into the run's folder. Without a model, that is in its file already.
    #[pyo3(signature = (found, torch, model=None))]
    fn evaluated(
        &self,
        py: Python<'_>,
        found: Option<Found>,
        torch: String,
        model: Option<(Vec<Tensor>, Notes)>,
    ) -> PyResult<()> {
        self.evaluate(py, move |evaluator| evaluator.write(found, torch, model))
    }

    /// Measures the parameters that servers have saved on the way: each rank has its slice of them in the flat vector.
    /// The first one writes down what it finds, and deletes them. `measure` is called without arguments, in this thread.
    fn milestones(&self, py: Python<'_>, measure: Py<PyAny>) -> PyResult<()> {
        let told = self.evaluate(py, |evaluator| Ok(evaluator.recording()))?;
        let Some(recording) = told else {
            return Ok(());
        };
        let mut raised = None;
        let recorded = recording.record(&mut |parts| {
            let set = move |evaluator: &mut Evaluator| {
                evaluator.set(parts);
                Ok(())
            };
            let measured = self.evaluate(py, set).and_then(|()| {
                let measured = measure.call0(py)?;
                Measured::extract(measured.bind(py).as_borrowed())
            });
            measured.map(Measured::into).map_err(|error| {
                let text = anyhow::anyhow!("{error}");
                raised = Some(error);
                text
            })
        });
        match raised {
            Some(error) => Err(error),
            None => recorded.map_err(given_up),
        }
    }

    /// Waits for the last lines of the log, and for traces to be sent.
    #[staticmethod]
    fn flush() {
        tradewind_client::traces::flush();
        tradewind_process::flush();
    }
}

impl Rank {
    fn of(entry: Entry, alone: bool) -> Self {
        Self {
            config: entry.config.clone(),
            group: entry.group.0,
            rank: entry.rank.0,
            local_rank: entry.local_rank,
            threads: entry.threads,
            folder: entry.folder.clone(),
            evaluators: entry.evaluates.as_ref().map(|evaluates| evaluates.ranks),
            alone,
            staging: Mutex::new(None),
            copied: Mutex::default(),
            process: std::process::id(),
            entry: Mutex::new(Some(entry)),
            described: Mutex::new(None),
            driver: OnceLock::new(),
            evaluator: OnceLock::new(),
        }
    }

    /// What this process and those that read batches for it have copied since the last step.
    fn take_copied(&self) -> Copied {
        std::mem::take(&mut *locked(&self.copied)) + samples::copied()
    }

    fn evaluate<T: Send + 'static>(
        &self,
        py: Python<'_>,
        what: impl FnOnce(&mut Evaluator) -> anyhow::Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let driver = self.evaluator.get().ok_or_else(undescribed)?;
        let answer = driver.call(py, what)?;
        answer.map_err(|error| {
            ended(Failure {
                verdict: Verdict::of(&error),
                text: format!("{error:#}"),
            })
        })
    }

    fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        what: impl FnOnce(&mut Trainer) -> anyhow::Result<T> + Send + 'static,
    ) -> PyResult<T> {
        if std::process::id() != self.process {
            return Err(wrong(
                "this process was forked from a rank, and its methods are the rank's alone: a worker of a loader \
                 prepares samples, the script's own process does the rest",
            ));
        }
        let driver = self.driver.get().ok_or_else(undescribed)?;
        let answer = driver.call(py, |trainer| trainer.try_to(what))?;
        answer.map_err(ended)
    }
}

/// Says in the run's folder whether the group's model is sharded over its ranks.
fn note_island(entry: &Entry, sharded: bool) -> anyhow::Result<()> {
    let (group, rank) = (entry.group.0, entry.rank.0);
    let sizes = &entry.config.cluster.groups;
    let Some(folder) = &entry.folder else {
        return Ok(());
    };
    if rank > 0 || entry.evaluates.is_some() {
        return Ok(());
    }
    let file = folder.join(run_files::island(group));
    let several = sizes.get(group as usize).is_some_and(|size| *size > 1);
    let noted = if sharded && several {
        let made = file.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| fs::write(&file, ""))
    } else {
        // A former part of the run may have been.
        absent(fs::remove_file(&file))
    };
    noted.with_context(|| format!("cannot write {}", file.display()))
}

fn absent(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn misused(Misused(text): Misused) -> PyErr {
    wrong(text)
}

fn undescribed() -> PyErr {
    wrong("the rank has no model yet: call rank.optimizer(model) first")
}

fn bound() -> PyErr {
    wrong("this rank has its model already")
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
