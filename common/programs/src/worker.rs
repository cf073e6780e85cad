//! The arguments of `tradewind-worker`: of each of its verbs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{ArgMatches, Args, FromArgMatches, Parser, Subcommand};
use tradewind_common::environment;

use crate::WORKER;
use crate::render::{Render, render};

/// Threads that libtorch computes with if a worker is not told.
pub const THREADS: i32 = 1;

/// A rank of a training group, on libtorch.
#[derive(Clone, Debug, PartialEq, Eq, Parser)]
#[command(name = WORKER, version)]
pub struct WorkerArguments {
    /// What it is to do.
    #[command(subcommand)]
    pub verb: WorkerVerb,
}

/// What a worker does.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum WorkerVerb {
    /// Open the data, build the model, and choose what ranks compute on; print what was found as JSON.
    Check(CheckArguments),
    /// Train as one rank until the run's budget is applied.
    Train(TrainArguments),
    /// Pull the servers' parameters, evaluate them and save them.
    Evaluate(EvaluateArguments),
    /// Print the keys of the tasks that this program has besides the built-in ones, as a page in Markdown.
    #[command(hide = true)]
    Tasks(TasksArguments),
}

/// Open the data, build the model, and choose what ranks compute on; print what was found as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct CheckArguments {
    /// The configuration.
    #[arg(long)]
    pub config: PathBuf,
    /// Ranks that are to run on this machine, seeing the same GPUs.
    #[arg(long, default_value_t = 1)]
    pub local_ranks: u32,
    /// Measure the untrained model on the validation split, too: what cannot be read there would be
    /// found when training is over.
    #[arg(long)]
    pub measure: bool,
}

/// Train as one rank until the run's budget is applied.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct TrainArguments {
    /// The configuration.
    #[arg(long)]
    pub config: PathBuf,
    /// Where the coordinator is.
    #[command(flatten)]
    pub coordinator: CoordinatorArgument,
    /// Number of the group.
    #[arg(long)]
    pub group: u32,
    /// Number of this rank in its group.
    #[arg(long)]
    pub rank: u32,
    /// Number of this rank among all on this machine, of whatever group: the number of its GPU.
    #[arg(long, env = environment::SLURM_LOCALID, default_value_t = 0)]
    pub local_rank: u32,
    /// The run's check has found GPUs: with compute.device = "auto", too, to see none is an error.
    #[arg(long)]
    pub gpu: bool,
    /// Host name or address under which the other ranks of the group reach this one; cluster.host
    /// if not given.
    #[arg(long)]
    pub host: Option<String>,
    /// Threads that libtorch computes with.
    #[arg(long, default_value_t = THREADS, value_parser = clap::value_parser!(i32).range(1..))]
    pub threads: i32,
    /// Append a line for each exchange to this file (the group's first rank only, whichever that
    /// is at the time).
    #[arg(long)]
    pub metrics: Option<PathBuf>,
}

/// Pull the servers' parameters, evaluate them and save them.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct EvaluateArguments {
    /// The configuration.
    #[arg(long)]
    pub config: PathBuf,
    /// Where the coordinator is.
    #[command(flatten)]
    pub coordinator: CoordinatorArgument,
    /// Folder to write evaluation.json, model.safetensors and forecast.safetensors into.
    #[arg(long)]
    pub out: PathBuf,
    /// The fleet's folder: evaluate the parameters that its servers have saved on the way, too,
    /// write validation.jsonl, and delete them.
    #[arg(long, value_name = "FOLDER")]
    pub milestones: Option<PathBuf>,
    /// All ranks of this group evaluate together, each a process; one process does if it is not given. Of scripts.
    #[arg(long)]
    pub group: Option<u32>,
    /// Number of this rank in the group.
    #[arg(long, default_value_t = 0)]
    pub rank: u32,
    /// Number of this rank among those that evaluate on this machine: the number of its GPU.
    #[arg(long, default_value_t = 0)]
    pub local_rank: u32,
    /// Host name or address under which the other ranks reach this one; cluster.host if not given.
    #[arg(long)]
    pub host: Option<String>,
    /// Threads that libtorch computes with.
    #[arg(long, default_value_t = THREADS, value_parser = clap::value_parser!(i32).range(1..))]
    pub threads: i32,
}

/// Print the keys of the tasks that this program has besides the built-in ones, as a page in Markdown.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct TasksArguments {
    /// As JSON, for `tradewind`.
    #[arg(long)]
    pub json: bool,
    /// Check the settings of this task instead, whose keys and values come as TOML, and print what
    /// does not fit together as JSON.
    #[arg(long, value_name = "NAME", conflicts_with = "json")]
    pub check: Option<String>,
}

impl WorkerArguments {
    /// The words behind the program's name, which parse to this value again.
    pub fn words(&self) -> Vec<OsString> {
        let (verb, words) = match &self.verb {
            WorkerVerb::Check(check) => ("check", check.words()),
            WorkerVerb::Train(train) => ("train", train.words()),
            WorkerVerb::Evaluate(evaluate) => ("evaluate", evaluate.words()),
            WorkerVerb::Tasks(tasks) => ("tasks", tasks.words()),
        };
        [verb.into()].into_iter().chain(words).collect()
    }

    /// What starts `program`, which is `tradewind-worker`.
    pub fn to_command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.args(self.words());
        command
    }
}

impl From<CheckArguments> for WorkerArguments {
    fn from(check: CheckArguments) -> Self {
        let verb = WorkerVerb::Check(check);
        Self { verb }
    }
}

impl From<TrainArguments> for WorkerArguments {
    fn from(train: TrainArguments) -> Self {
        let verb = WorkerVerb::Train(train);
        Self { verb }
    }
}

impl From<EvaluateArguments> for WorkerArguments {
    fn from(evaluate: EvaluateArguments) -> Self {
        let verb = WorkerVerb::Evaluate(evaluate);
        Self { verb }
    }
}

impl From<TasksArguments> for WorkerArguments {
    fn from(tasks: TasksArguments) -> Self {
        let verb = WorkerVerb::Tasks(tasks);
        Self { verb }
    }
}

impl TasksArguments {
    /// The words behind the verb.
    pub fn words(&self) -> Vec<OsString> {
        let Self { json, check } = self;
        render![json, check]
    }
}

impl CheckArguments {
    /// The words behind the verb.
    pub fn words(&self) -> Vec<OsString> {
        let Self {
            config,
            local_ranks,
            measure,
        } = self;
        render![config, local_ranks, measure]
    }
}

impl TrainArguments {
    /// The words behind the verb.
    pub fn words(&self) -> Vec<OsString> {
        let Self {
            config,
            coordinator,
            group,
            rank,
            local_rank,
            gpu,
            host,
            threads,
            metrics,
        } = self;
        render![
            config,
            coordinator,
            group,
            rank,
            local_rank,
            host,
            threads,
            metrics,
            gpu,
        ]
    }
}

impl EvaluateArguments {
    /// The words behind the verb.
    pub fn words(&self) -> Vec<OsString> {
        let Self {
            config,
            coordinator,
            out,
            milestones,
            group,
            rank,
            local_rank,
            host,
            threads,
        } = self;
        render![
            config,
            coordinator,
            out,
            milestones,
            group,
            rank,
            local_rank,
            host,
            threads,
        ]
    }
}

/// Where a worker finds the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinatorArgument {
    /// At host:port.
    Address(String),
    /// Where this file of the fleet's folder says
    /// ([`COORDINATOR_ADDRESS`](tradewind_common::run_files::COORDINATOR_ADDRESS)).
    File(PathBuf),
}

/// Where the coordinator is.
#[derive(Args)]
#[group(id = "At", required = true, multiple = false)]
struct At {
    /// Address (host:port) of the coordinator.
    #[arg(long)]
    coordinator: Option<String>,
    /// File of the fleet's folder that tells where the coordinator is (coordinator/address.json).
    #[arg(long)]
    coordinator_file: Option<PathBuf>,
}

impl FromArgMatches for CoordinatorArgument {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let At {
            coordinator,
            coordinator_file,
        } = At::from_arg_matches(matches)?;
        let file = coordinator_file.map(Self::File);
        let found = file.or(coordinator.map(Self::Address));
        Ok(found.expect("one of them is required"))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for CoordinatorArgument {
    fn augment_args(command: clap::Command) -> clap::Command {
        At::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        At::augment_args_for_update(command)
    }
}

impl Render for CoordinatorArgument {
    fn render(&self, _: &str, words: &mut Vec<OsString>) {
        match self {
            Self::Address(address) => address.render("coordinator", words),
            Self::File(file) => file.render("coordinator_file", words),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[OsString]) -> Result<WorkerArguments, clap::Error> {
        let program = OsString::from(WORKER);
        WorkerArguments::try_parse_from([&program].into_iter().chain(words))
    }

    fn check(arguments: impl Into<WorkerArguments>) {
        let arguments = arguments.into();
        let words = arguments.words();
        assert_eq!(parsed(&words).unwrap(), arguments, "{words:?}");
    }

    #[test]
    fn a_check_is_parsed_as_it_was_rendered() {
        for (local_ranks, measure) in [(1, false), (8, true)] {
            check(CheckArguments {
                config: "/runs/a run/config.toml".into(),
                local_ranks,
                measure,
            });
        }
    }

    #[test]
    fn a_training_is_parsed_as_it_was_rendered() {
        let full = TrainArguments {
            config: "/runs/a run/config.toml".into(),
            coordinator: CoordinatorArgument::File("/fleet/coordinator/address.json".into()),
            group: 2,
            rank: 3,
            local_rank: 5,
            gpu: true,
            host: Some("-node".into()),
            threads: 7,
            metrics: Some("metrics.jsonl".into()),
        };
        check(full.clone());
        check(TrainArguments {
            coordinator: CoordinatorArgument::Address("node:1".into()),
            local_rank: 0,
            gpu: false,
            host: None,
            threads: THREADS,
            metrics: None,
            ..full
        });
    }

    #[test]
    fn an_evaluation_is_parsed_as_it_was_rendered() {
        let full = EvaluateArguments {
            config: "/runs/a run/config.toml".into(),
            coordinator: CoordinatorArgument::File("/fleet/coordinator/address.json".into()),
            out: "/runs/a run".into(),
            milestones: Some("/fleet".into()),
            group: Some(2),
            rank: 3,
            local_rank: 1,
            host: Some("-node".into()),
            threads: 7,
        };
        check(full.clone());
        check(EvaluateArguments {
            coordinator: CoordinatorArgument::Address("node:1".into()),
            milestones: None,
            group: None,
            rank: 0,
            local_rank: 0,
            host: None,
            threads: THREADS,
            ..full
        });
    }

    #[test]
    fn a_worker_is_told_once_where_the_coordinator_is() {
        let check = |more: &[&str], refusal: &str| {
            let words = ["train", "--config=c", "--group=0", "--rank=0"];
            let words = words.iter().chain(more).map(OsString::from);
            let words: Vec<OsString> = words.collect();
            let error = parsed(&words).unwrap_err().to_string();
            assert!(error.contains(refusal), "{error}");
        };
        check(&[], "--coordinator-file <COORDINATOR_FILE>");
        check(
            &["--coordinator=a:1", "--coordinator-file=a"],
            "cannot be used with",
        );
    }
}
