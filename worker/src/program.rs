//! A worker program: one rank of a group; also checks a configuration's data and model before a run,
//! evaluates the servers' parameters after it, and tells the keys of its tasks.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use tch::Device;
use tokio::runtime::Runtime;
use tradewind_client::coordinator::CoordinatorAt;
use tradewind_client::feed::check_batch;
use tradewind_client::leaving::leave_when_told;
use tradewind_client::membership::End;
use tradewind_client::recorder::Recorder;
use tradewind_client::stopwatch::wall;
use tradewind_client::traces;
use tradewind_client::verdict::GivenUp;
use tradewind_common::exit::Exit;
use tradewind_common::{GroupId, Rank};
use tradewind_config::{Config, DeviceChoice, Task as Chosen, Tasks, description, page};
use tradewind_process::log;
use tradewind_programs::worker::{
    CheckArguments, CoordinatorArgument, EvaluateArguments, TasksArguments, TrainArguments,
    WorkerArguments, WorkerVerb,
};
use tradewind_proto::auth::Credentials;

use crate::data::Split;
use crate::device::{self, Devices};
use crate::evaluate::{Folders, evaluate};
use crate::lives::live;
use crate::member::{Entry, Member, run_spec};
use crate::model::{Registry, TaskEntry};
use crate::precision;
use crate::verdict::{verdict, without_task};

/// Every worker program has it: memory of finished transfers is used again, as fresh pages cost more than
/// the copies into them. Tests of this package take the system's, which sanitizers and Miri know.
#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn coordinator_at(argument: CoordinatorArgument) -> CoordinatorAt {
    match argument {
        CoordinatorArgument::Address(address) => CoordinatorAt::Address(address),
        CoordinatorArgument::File(file) => CoordinatorAt::File(file),
    }
}

/// What a worker program does: the built-in tasks and its `own` are there to be trained. It ends the process.
pub fn main(own: impl IntoIterator<Item = TaskEntry>) -> ExitCode {
    let own: Vec<TaskEntry> = own.into_iter().collect();
    tradewind_process::run(|| {
        log::start(|_| ());
        let exit = begin(own);
        // What was written is with the system by now. To return would have libtorch destroy its tables, a quarter
        // of what the start and the end of a process take.
        tradewind_process::exit(exit.number().into())
    })
}

fn begin(own: Vec<TaskEntry>) -> Exit {
    // Several ranks share a machine's cores; PyTorch would take all of them for each.
    tch::set_num_threads(1);
    tch::set_num_interop_threads(1);
    let verb = WorkerArguments::parse().verb;
    let registry = Registry::with(own).map_err(|why| GivenUp(anyhow::Error::msg(why)).into());
    match registry.and_then(|registry| run(verb, &registry)) {
        Ok(End::Applied) => Exit::Done,
        Ok(End::Left) => Exit::Left,
        Err(error) => {
            tracing::error!("{error:#}");
            verdict(&error).exit()
        }
    }
}

/// The device comes first: it is loaded before libtorch is asked for anything, and while there is no
/// other thread.
fn run(verb: WorkerVerb, registry: &Registry) -> anyhow::Result<End> {
    let credentials = Credentials::from_env();
    match verb {
        WorkerVerb::Tasks(TasksArguments { json, check }) => {
            tell(registry, json, check.as_deref())?;
            Ok(End::Applied)
        }
        WorkerVerb::Check(CheckArguments {
            config,
            local_ranks,
            measure,
        }) => {
            credentials?;
            let config = read(&config, registry.tasks())?;
            check(&config, registry, local_ranks, measure)?;
            Ok(End::Applied)
        }
        WorkerVerb::Train(TrainArguments {
            config,
            coordinator,
            group,
            rank,
            local_rank,
            gpu,
            host,
            threads,
            metrics,
        }) => {
            tch::set_num_threads(threads);
            let credentials = credentials?;
            let mut config = read(&config, registry.tasks()).map_err(GivenUp)?;
            if let Some(host) = host {
                config.cluster.host = host;
            }
            if gpu && config.compute.device == DeviceChoice::Auto {
                config.compute.device = DeviceChoice::Cuda;
            }
            // The run's check has opened one: it may be back for the next process.
            let device = open(&config, local_rank)?;
            let recorder = Recorder::open(metrics.as_deref()).context("cannot open the metrics")?;
            let entry = Entry {
                config,
                group: GroupId(group),
                rank: Rank(rank),
                life: (wall() * 1e9) as u64,
                device,
                coordinator: coordinator_at(coordinator),
                credentials,
            };
            let runtime = runtime()?;
            let task = registry.build(&entry.config).map_err(without_task)?;
            let mut member = Member::with_task(entry, task, recorder, runtime.handle())?;
            leave_when_told(member.process.leaving.clone(), runtime.handle())?;
            let end = live(&mut member);
            traces::flush();
            let end = end?;
            tracing::info!(
                "{}",
                match end {
                    End::Applied => "the budget is applied: done",
                    End::Left => "the group has left, as it was asked to",
                }
            );
            Ok(end)
        }
        WorkerVerb::Evaluate(EvaluateArguments {
            config,
            coordinator,
            out,
            milestones,
            group,
            rank: _,
            local_rank: _,
            host: _,
            threads,
        }) => {
            anyhow::ensure!(group.is_none(), "this model is evaluated by one process");
            tch::set_num_threads(threads);
            let credentials = credentials?;
            let mut config = read(&config, registry.tasks())?;
            // What is read once needs no copy.
            config.cache = None;
            let at = coordinator_at(coordinator);
            let device = open(&config, 0)?;
            let folders = Folders {
                out: &out,
                milestones: milestones.as_deref(),
            };
            let task = registry.build(&config)?;
            evaluate(
                &config,
                &*task,
                device,
                &at,
                credentials,
                folders,
                runtime()?.handle(),
            )?;
            Ok(End::Applied)
        }
    }
}

/// The program's own tasks, or what does not fit together in the settings of one of them.
fn tell(registry: &Registry, json: bool, check: Option<&str>) -> anyhow::Result<()> {
    let tasks = registry.tasks();
    let text = match check {
        Some(name) => {
            let mut values = String::new();
            std::io::stdin().read_to_string(&mut values)?;
            let known = tasks
                .named(name)
                .with_context(|| format!("no task {name}"))?;
            let task = Chosen::from_toml(known.definition, &values).map_err(anyhow::Error::msg)?;
            let found = known.check(&task).into_iter();
            let found: Vec<_> = found.map(|unfit| (unfit.key, unfit.problem)).collect();
            serde_json::to_string(&found)? + "\n"
        }
        None if json => description(tasks.own().iter().map(|task| &task.definition)) + "\n",
        None => page::of_tasks(tasks),
    };
    log::print(&text).context("it cannot be printed")
}

fn check(
    config: &Config,
    registry: &Registry,
    local_ranks: u32,
    measure: bool,
) -> anyhow::Result<()> {
    let Devices { devices, gpus } = device::open_all(&config.compute, local_ranks)?;
    // Who checks may be on another machine than those who read.
    let mut uncached = config.clone();
    uncached.cache = None;
    let task = registry.build(&uncached)?;
    let spec = run_spec(config, &*task);
    let layout = spec.check()?;
    for group in 0..spec.group_sizes.len() {
        check_batch(&spec, GroupId(group as u32))?;
    }
    let word = |device: Device| match device {
        Device::Cuda(number) => format!("cuda:{number}"),
        _ => "cpu".to_owned(),
    };
    if measure {
        task.measure(Split::Validation)?;
    }
    let found = serde_json::json!({
        "parameters": layout.elements(),
        "blocks": layout.blocks.len(),
        "training_samples": task.samples(),
        "devices": devices.into_iter().map(word).collect::<Vec<_>>(),
        "gpus": gpus,
    });
    log::print(&format!("{found}\n")).context("cannot tell what was found")
}

/// The rank's device, with everything that it computes by set.
fn open(config: &Config, local_rank: u32) -> anyhow::Result<Device> {
    let device = device::open(&config.compute, local_rank)?;
    precision::set_up(&config.compute, device)?;
    Ok(device)
}

fn runtime() -> std::io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build()
}

fn read(path: &Path, tasks: &Tasks) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    Ok(Config::parse_with(
        tasks,
        &text,
        &path.display().to_string(),
        folder,
        &[],
    )?)
}
