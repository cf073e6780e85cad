//! Strict types, and what has to fit together.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};

use super::choice;
use super::cluster::Cluster;
use super::compute::{self, Compute};
use super::exchange::{Exchange, Reduce};
use super::keys;
use super::liveness::Liveness;
use super::loader::{CacheAt, Loader};
use super::local::{self, Local};
use super::optimizer::{self, Optimizer};
use super::policy;
use super::resolved;
use super::script;
use super::slurm::Slurm;
use super::stragglers;
use super::task::{SCRIPT, Task};
use super::tasks::Tasks;
use super::{Problem, Values};
use tradewind_common::batch::{BatchStep, Batches};
use tradewind_common::choice::Unfit;
use tradewind_common::compress::Compression;
use tradewind_common::data::{Chunking, DataSets};
use tradewind_common::exclusions::{Chosen, OfRanks};
use tradewind_common::ids::RunId;
use tradewind_common::layout::TensorSpec;
use tradewind_common::policy::Policies;
use tradewind_common::spec::{ConsistencySpec, FaultSpec, RunSpec};
use tradewind_common::straggler::Stragglers;

/// A configuration in which everything fits together.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Name of the run.
    pub name: RunId,
    /// All randomness follows from it.
    pub seed: u64,
    /// Who takes part.
    pub cluster: Cluster,
    /// What is trained, and on what.
    pub task: Task,
    /// The worker program, if it is not the one beside `tradewind`.
    pub program: Option<PathBuf>,
    /// What starts a rank that is a script; empty if ranks are worker programs.
    pub command: Vec<String>,
    /// The settings that such a script reads.
    pub script: Map<String, Json>,
    /// For how long, and how synchronously.
    pub train: Train,
    /// Where and how precisely ranks compute.
    pub compute: Compute,
    /// What else there is between a gradient's arrival and its application.
    pub policies: Policies,
    /// How gradients are applied.
    pub optimizer: Optimizer,
    /// What a group does between two exchanges, if it takes steps of its own.
    pub local: Option<Local>,
    /// How blocks travel.
    pub exchange: Exchange,
    /// The form in which gradients travel to the servers.
    pub up: Compression,
    /// The form in which fresh parameters travel to the groups.
    pub down: Compression,
    /// How samples are read ahead.
    pub loader: Loader,
    /// Where the ranks of a node keep files of samples.
    pub cache: Option<CacheAt>,
    /// Leases and waiting times.
    pub liveness: Liveness,
    /// What keeps the run going when something fails.
    pub faults: FaultSpec,
    /// How long the computation of a step lasts at least, in seconds.
    pub step_seconds: f64,
    /// Who is slow on purpose.
    pub stragglers: Stragglers,
    /// Applied samples between two savings of the parameters; 0 for none.
    pub evaluation_samples: u64,
    /// What is published.
    pub telemetry: Telemetry,
    /// How it becomes jobs of Slurm.
    pub slurm: Slurm,
    resolved: String,
    identity: String,
    idle: Vec<String>,
    tasks: Tasks,
}

/// For how long, and how synchronously.
#[derive(Clone, Debug, PartialEq)]
pub struct Train {
    /// The budget.
    pub samples: u64,
    /// Samples per rank and step, at first.
    pub batch: u32,
    /// How that grows.
    pub batch_ramp: Vec<BatchStep>,
    /// Batches of a rank that make one step of a script, where the data of a step follow from its clock.
    pub batches_per_step: u32,
    /// When a gradient is applied.
    pub consistency: ConsistencySpec,
    /// Samples in a leased chunk.
    pub chunk_samples: u64,
    /// Sets that the training data are cut into.
    pub sets: DataSets,
    /// Whether the exchange of a step runs behind the computation of the next.
    pub overlap: bool,
}

impl Train {
    /// Samples per rank and step, at the end of the ramp.
    pub fn largest_batch(&self) -> u32 {
        self.batch_ramp.last().map_or(self.batch, |step| step.batch)
    }
}

/// What is published.
#[derive(Clone, Debug, PartialEq)]
pub struct Telemetry {
    /// Where the first server serves Prometheus metrics.
    pub prometheus: Option<SocketAddr>,
    /// Write event files for TensorBoard.
    pub tensorboard: bool,
    /// Where traces of steps are sent.
    pub otlp: Option<String>,
}

impl Config {
    /// The whole configuration as TOML, with every key and absolute data paths.
    pub fn resolved(&self) -> &str {
        &self.resolved
    }

    /// A line `section.name = value` for each key that is not at its default, but for where data lie:
    /// the same on two machines, and with a later version that knows more keys.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// A line for each setting that has no effect beside the others.
    pub fn idle(&self) -> &[String] {
        &self.idle
    }

    /// The tasks that it could have chosen from.
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Whether ranks are processes of a person's script.
    pub fn is_script(&self) -> bool {
        !self.command.is_empty()
    }

    /// Groups in one job of Slurm with the servers, the first so many; the others are jobs of their own.
    pub fn groups_together(&self) -> usize {
        self.slurm.groups_together(self.cluster.groups.len())
    }

    /// Ranks of all groups together.
    pub fn world_size(&self) -> u32 {
        self.cluster.groups.iter().sum()
    }

    /// What the servers need to know, for a model of these `tensors` and a training split of
    /// `epoch_samples`.
    pub fn spec(&self, tensors: Vec<TensorSpec>, epoch_samples: u64) -> RunSpec {
        RunSpec {
            seed: self.seed,
            group_sizes: self.cluster.groups.clone(),
            tensors,
            bucket_bytes: None,
            block_bytes: self.exchange.block_bytes,
            consistency: self.train.consistency,
            policies: self.policies,
            optimizer: self.optimizer.spec,
            decay_exempt: self.optimizer.decay_exempt,
            schedule: self.optimizer.schedule_of(epoch_samples),
            samples: self.train.samples,
            epoch_samples,
            batch: self.train.batch,
            batch_ramp: self.train.batch_ramp.clone(),
            local: self.local.is_some(),
            // The data of a clock are those of all its batches.
            local_steps: self.local.as_ref().map_or(1, |local| local.steps)
                * self.train.batches_per_step,
            chunk_samples: self.train.chunk_samples,
            sets: self.train.sets,
            lease_ms: self.liveness.lease_ms,
            start_grace_ms: self.liveness.start_grace_ms,
            milestone_samples: self.evaluation_samples,
            up: self.up,
            down: self.down,
            frozen: Vec::new(),
            faults: self.faults,
        }
    }
}

/// Turns values of the right types into a configuration, or says what does not fit together.
pub(super) fn check(values: &Values<'_>, folder: &Path) -> Result<Config, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut wrong = |key: &str, what: String| problems.push(values.problem(key, what));

    let name = RunId::new(values.text("run.name"));
    if let Err(bad) = &name {
        wrong("run.name", format!("cannot name a run: {bad}"));
    }
    let cluster = Cluster::of(values);
    let groups = &cluster.groups;
    let batch = values.int("train.batch") as u32;
    let step = |[samples, batch]: &[i64; 2]| BatchStep {
        samples: *samples as u64,
        batch: *batch as u32,
    };
    let batch_ramp: Vec<_> = values.pairs("train.batch_ramp").iter().map(step).collect();
    let batches = Batches {
        first: batch,
        ramp: &batch_ramp,
    };
    if let Err(error) = batches.check() {
        wrong("train.batch_ramp", error.to_string());
    }
    let ranks = groups.iter().copied().max().unwrap_or(1);
    let largest = u64::from(ranks) * u64::from(batches.largest());
    let loader: Loader = choice::together(values);
    let chunk_samples = match values.int("train.chunk_samples") as u64 {
        0 => Chunking::fitting(groups, batches.largest(), loader.batches_ahead),
        given => given,
    };
    if chunk_samples < largest {
        wrong(
            "train.chunk_samples",
            format!("is less than one step of the largest group, {largest} samples"),
        );
    }
    let task = Task::read(values, folder, &mut wrong);
    let sets: DataSets = choice::together(values);
    let cache = match CacheAt::read(values) {
        Ok(cache) => cache,
        Err((key, why)) => {
            wrong(key, why.into());
            None
        }
    };
    let liveness: Liveness = choice::together(values);
    let faults: FaultSpec = choice::together(values);
    if faults.replication > cluster.servers {
        wrong(
            "servers.replication",
            "is more than cluster.servers: copies of a shard are on different servers".into(),
        );
    }
    let mut optimizer = optimizer::read(values, &mut wrong);
    let local = local::read(values, &mut optimizer, &mut wrong);
    let compute = compute::read(values, &mut wrong);
    let stragglers = stragglers::read(values, groups, &mut wrong);
    let consistency = choice::read(values, "train.consistency");
    let slurm = Slurm::read(values, groups.len(), &mut wrong);
    let policies = policy::read(values);
    let overlap = values.int("train.overlap") == 1;
    let exchange = Exchange::of(values);
    let (up, down) = (
        choice::read(values, "exchange.up"),
        choice::read(values, "exchange.down"),
    );
    let scatters = exchange.reduce == Reduce::Scatter;
    let step_seconds = values.float("pace.step_seconds");
    let chosen = Chosen {
        consistency,
        groups: groups.len(),
        sets: sets.count,
        policies: &policies,
        optimizer: optimizer.spec,
        up,
        down,
        ranks: Some(OfRanks {
            overlap,
            per_bucket: exchange.per_bucket,
            scatters,
            paced: step_seconds > 0.0,
            scales_loss: compute.precision.scales_loss(),
            local: local.is_some(),
            pushes_values: local
                .as_ref()
                .is_some_and(|own| own.algorithm.pushes_values()),
            fitted: values.flag("local.fitted"),
            decays: values.float("optimizer.weight_decay") > 0.0,
            clips: optimizer.clip_norm.is_some(),
        }),
    };
    let is_script = task.name() == SCRIPT.name;
    if is_script && local.is_some() {
        for key in keys::all().filter(|key| is_of_inner(key.name)) {
            if values.departure(key).is_some() {
                let what = "is the script's to decide, whose own optimizer and scheduler take the steps between exchanges: leave it out";
                wrong(key.name, what.into());
            }
        }
    }
    if scatters && !is_script {
        let what = "is for scripts: a built-in model averages by all-reduce".into();
        wrong("exchange.reduce", what);
    }
    let batches_per_step = values.int(keys::BATCHES_PER_STEP) as u32;
    if batches_per_step > 1 && !is_script {
        wrong(
            keys::BATCHES_PER_STEP,
            "needs a script of your own: a built-in model takes one batch a step, which train.batch makes larger".into(),
        );
    }
    let milestones = values.int("evaluation.every_samples");
    let schedule = local
        .as_ref()
        .map_or(&optimizer.schedule, |own| &own.schedule);
    let mut unfit = schedule.problems();
    unfit.extend(optimizer.unfit(values));
    unfit.extend(chosen.problems());
    unfit.extend(loader.problems());
    unfit.extend(liveness.problems(faults.patience_ms));
    for Unfit { key, problem } in unfit {
        wrong(key, problem);
    }
    let prometheus = match values.text("telemetry.prometheus") {
        "" => None,
        address => match address.parse() {
            Ok(address) => {
                let address: SocketAddr = address;
                if u32::from(address.port()) + cluster.servers > 65_536 {
                    wrong(
                        "telemetry.prometheus",
                        "leaves no port for every server".into(),
                    );
                }
                Some(address)
            }
            Err(_) => {
                wrong(
                    "telemetry.prometheus",
                    "is no address:port, such as \"127.0.0.1:9100\"".into(),
                );
                None
            }
        },
    };
    let otlp = match values.text("telemetry.otlp") {
        "" => None,
        address => {
            if let Err(problem) = check_collector(address) {
                wrong("telemetry.otlp", problem.into());
            }
            Some(address.to_owned())
        }
    };
    let Ok(name) = name else { return Err(problems) };
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(Config {
        name,
        seed: values.int("run.seed") as u64,
        cluster,
        resolved: resolved::resolved(values, &task, folder),
        identity: resolved::identity(values),
        idle: super::idle::idle(values),
        task,
        program: program(values, folder),
        command: values.texts(script::COMMAND).to_vec(),
        script: values.script.settings.clone(),
        tasks: values.tasks.clone(),
        train: Train {
            samples: values.int("train.samples") as u64,
            batch,
            batch_ramp,
            batches_per_step: match consistency.waits_for_all() {
                true => batches_per_step,
                false => 1,
            },
            consistency,
            chunk_samples,
            sets,
            overlap,
        },
        policies,
        optimizer,
        local,
        compute,
        exchange,
        up,
        down,
        loader,
        cache,
        liveness,
        faults,
        step_seconds,
        stragglers,
        evaluation_samples: milestones as u64,
        telemetry: Telemetry {
            prometheus,
            tensorboard: values.flag("telemetry.tensorboard"),
            otlp,
        },
        slurm,
    })
}

/// What is wrong with the address of a collector.
fn check_collector(address: &str) -> Result<(), &'static str> {
    const NONE: &str = "is no http://host:port, such as \"http://127.0.0.1:4317\"";
    if address.starts_with("https://") {
        return Err(
            "asks for TLS, which traces are not sent with: take http:// and a collector on this machine, which passes them on",
        );
    }
    let place = address.strip_prefix("http://").ok_or(NONE)?;
    let place = place.strip_suffix('/').unwrap_or(place);
    let (host, port) = place.rsplit_once(':').ok_or(NONE)?;
    let is_host = !host.is_empty() && !host.contains(['/', '@', '?', '#', ' ']);
    match port.parse::<u16>() {
        Ok(1..) if is_host => Ok(()),
        _ => Err(NONE),
    }
}

/// Whether a key is about the optimizer of the steps between exchanges.
fn is_of_inner(key: &str) -> bool {
    match key.split_once('.') {
        Some(("local", name)) => !["algorithm", "steps", "fitted"].contains(&name),
        Some((section, _)) => section == "schedule",
        None => false,
    }
}

/// `model.program`, unless it is none.
fn program(values: &Values<'_>, folder: &Path) -> Option<PathBuf> {
    let given = values.text("model.program");
    (!given.is_empty()).then(|| folder.join(given))
}
