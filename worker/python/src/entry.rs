//! What a rank is told at its start: by its launcher, in the environment.

use std::path::Path;

use anyhow::Context;
use tradewind_client::coordinator::CoordinatorAt;
use tradewind_client::recorder::Recorder;
use tradewind_client::stopwatch::wall;
use tradewind_common::{GroupId, Rank};
use tradewind_config::{Config, Precision, Tasks};
use tradewind_programs::worker::{
    CoordinatorArgument, TrainArguments, WorkerArguments, WorkerVerb,
};
use tradewind_proto::auth::Token;

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
    /// The fleet's token.
    pub token: Token,
    /// Where the group's first rank writes its steps down.
    pub recorder: Recorder,
}

impl Entry {
    /// As the launcher says; `None` without one.
    pub fn from_environment() -> anyhow::Result<Option<Self>> {
        let Some(arguments) = WorkerArguments::from_environment()? else {
            return Ok(None);
        };
        match arguments.verb {
            WorkerVerb::Train(train) => Self::train(train).map(Some),
            WorkerVerb::Check(_) | WorkerVerb::Evaluate(_) | WorkerVerb::Tasks(_) => {
                anyhow::bail!("a script can only train yet")
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
        let token = Token::from_env()?;
        let mut config = read(&config)?;
        refuse(&config)?;
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
            coordinator: match coordinator {
                CoordinatorArgument::Address(address) => CoordinatorAt::Address(address),
                CoordinatorArgument::File(file) => CoordinatorAt::File(file),
            },
            token,
            recorder: Recorder::open(metrics.as_deref()).context("cannot open the metrics")?,
        })
    }
}

/// Refuses what a script cannot have, by its key.
fn refuse(config: &Config) -> anyhow::Result<()> {
    let asked = [
        (
            config.local.is_some(),
            "local.algorithm yet: leave it out of the run's file",
        ),
        (
            config.compute.precision != Precision::F32,
            "compute.precision: leave it out of the run's file, and compute in torch.autocast, or give the model \
             parameters in bf16",
        ),
    ];
    match asked.iter().find(|(asked, _)| *asked) {
        Some((_, key)) => anyhow::bail!("scripts cannot have {key}"),
        None => Ok(()),
    }
}

fn read(path: &Path) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = path.display().to_string();
    Ok(Config::parse_with(
        Tasks::built_in(),
        &text,
        &name,
        folder,
        &[],
    )?)
}
