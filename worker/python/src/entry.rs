//! What a rank is told at its start: by its launcher, in the environment.

use std::path::{Path, PathBuf};

use anyhow::Context;
use tradewind_client::coordinator::CoordinatorAt;
use tradewind_client::recorder::Recorder;
use tradewind_client::stopwatch::wall;
use tradewind_common::{GroupId, Rank};
use tradewind_config::{Config, Precision, Tasks};
use tradewind_programs::worker::{
    CoordinatorArgument, EvaluateArguments, THREADS, TrainArguments, WorkerArguments, WorkerVerb,
};
use tradewind_proto::auth::Credentials;

/// A rank's start.
pub struct Entry {
    /// The run's configuration.
    pub config: Config,
    /// Its group.
    pub group: GroupId,
    /// Its number there.
    pub rank: Rank,
    /// Its number among those of its machine.
    pub local_rank: u32,
    /// Names this process among the lives of the rank; not 0.
    pub life: u64,
    /// Threads that it computes with.
    pub threads: i32,
    /// Where the coordinator is.
    pub coordinator: CoordinatorAt,
    /// What it shows, and asks of servers.
    pub credentials: Credentials,
    /// Where the group's first rank writes its steps down.
    pub recorder: Recorder,
    /// The run's folder; a rank that is alone has none.
    pub folder: Option<PathBuf>,
    /// Evaluates the servers' parameters instead of training.
    pub evaluates: Option<Evaluates>,
}

/// Where an evaluation reads and writes files.
pub struct Evaluates {
    /// Ranks of the group that does it; 1 where it is one process, whatever the group has.
    pub ranks: u32,
    /// Results go here.
    pub out: PathBuf,
    /// The fleet's folder, if there are parameters that servers have saved on the way.
    pub milestones: Option<PathBuf>,
}

impl Entry {
    /// As the launcher says; `None` without one.
    pub fn from_environment() -> anyhow::Result<Option<Self>> {
        let Some(arguments) = WorkerArguments::from_environment()? else {
            return Ok(None);
        };
        match arguments.verb {
            WorkerVerb::Train(train) => Self::train(train).map(Some),
            WorkerVerb::Evaluate(evaluate) => Self::evaluate(evaluate).map(Some),
            WorkerVerb::Check(_) | WorkerVerb::Tasks(_) => {
                anyhow::bail!("a script can train and evaluate, and nothing else")
            }
        }
    }

    fn train(arguments: TrainArguments) -> anyhow::Result<Self> {
        let TrainArguments {
            config,
            coordinator,
            group,
            rank,
            local_rank,
            gpu: _,
            host,
            threads,
            metrics,
        } = arguments;
        let credentials = Credentials::from_env()?;
        let folder = config.parent().map(Path::to_owned);
        let mut config = read(&config, &[])?;
        if let Some(host) = host {
            config.cluster.host = host;
        }
        Ok(Self {
            config,
            group: GroupId(group),
            rank: Rank(rank),
            local_rank,
            life: (wall() * 1e9) as u64,
            threads,
            coordinator: found_at(coordinator),
            credentials,
            recorder: Recorder::open(metrics.as_deref()).context("cannot open the metrics")?,
            folder,
            evaluates: None,
        })
    }

    fn evaluate(arguments: EvaluateArguments) -> anyhow::Result<Self> {
        let EvaluateArguments {
            config,
            coordinator,
            out,
            milestones,
            group,
            rank,
            local_rank,
            host,
            threads,
        } = arguments;
        let credentials = Credentials::from_env()?;
        let folder = config.parent().map(Path::to_owned);
        let mut config = read(&config, &[])?;
        if let Some(host) = host {
            config.cluster.host = host;
        }
        let ranks = match group {
            None => 1,
            Some(group) => *(config.cluster.groups.get(group as usize))
                .with_context(|| format!("the configuration has no group {group}"))?,
        };
        Ok(Self {
            group: GroupId(group.unwrap_or(0)),
            rank: Rank(rank),
            local_rank,
            threads,
            folder,
            evaluates: Some(Evaluates {
                ranks,
                out,
                milestones,
            }),
            ..Self::first(config, found_at(coordinator), credentials)?
        })
    }

    /// The first rank of the first group, without files.
    pub fn first(
        config: Config,
        coordinator: CoordinatorAt,
        credentials: Credentials,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            config,
            group: GroupId(0),
            rank: Rank(0),
            local_rank: 0,
            life: (wall() * 1e9) as u64,
            threads: THREADS,
            coordinator,
            credentials,
            recorder: Recorder::open(None)?,
            folder: None,
            evaluates: None,
        })
    }
}

fn found_at(coordinator: CoordinatorArgument) -> CoordinatorAt {
    match coordinator {
        CoordinatorArgument::Address(address) => CoordinatorAt::Address(address),
        CoordinatorArgument::File(file) => CoordinatorAt::File(file),
    }
}

/// Refuses what a script cannot have, by its key.
fn refuse(config: &Config) -> anyhow::Result<()> {
    anyhow::ensure!(
        config.compute.precision == Precision::F32,
        "scripts cannot have compute.precision: leave it out of the run's file, and compute in torch.autocast, or \
         give the model parameters in bf16"
    );
    let compute = &config.compute;
    let of_tensors = [
        (
            "compute.autotune",
            compute.autotune,
            "torch.backends.cudnn.benchmark",
        ),
        (
            "compute.channels_last",
            compute.channels_last,
            "memory_format",
        ),
    ];
    for (key, is_set, instead) in of_tensors {
        anyhow::ensure!(
            !is_set,
            "scripts cannot have {key}: leave it out of the run's file, and set {instead} in the script"
        );
    }
    Ok(())
}

/// Reads a script's configuration; what a script cannot have is refused.
pub fn read(path: &Path, overrides: &[String]) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = path.display().to_string();
    let tasks = Tasks::built_in();
    let config = Config::parse_with(tasks, &text, &name, folder, overrides)?;
    refuse(&config)?;
    Ok(config)
}
