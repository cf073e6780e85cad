//! What a rank's process keeps through all incarnations of its group: made once, used again in each.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tch::{Device, Tensor};
use tokio::runtime::Handle;
use tradewind_client::coordinator::{Coordinator, CoordinatorAt, RankId};
use tradewind_client::fence;
use tradewind_client::network::Reach;
use tradewind_client::rank_process::RankProcess;
use tradewind_client::rank_settings::RankSettings;
use tradewind_client::recorder::Recorder;
use tradewind_client::traces;
use tradewind_client::verdict::GivenUp;
use tradewind_common::layout::Bucket;
use tradewind_common::spec::RunSpec;
use tradewind_common::{GroupId, Rank, TensorKind, TensorSpec};
use tradewind_config::Config;
use tradewind_proto::auth::Credentials;

use crate::c10d::Store;
use crate::data::Copied;
use crate::flat::Flat;
use crate::gpu_stats::GpuStats;
use crate::model::{Registry, Task, TaskError};

/// What a rank is told at its start.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The run's configuration.
    pub config: Config,
    /// Its group.
    pub group: GroupId,
    /// Its number there.
    pub rank: Rank,
    /// Names this process among the lives of the rank; not 0.
    pub life: u64,
    /// What it computes on.
    pub device: Device,
    /// Where the coordinator is.
    pub coordinator: CoordinatorAt,
    /// What it shows, and asks of servers.
    pub credentials: Credentials,
}

/// A rank's process.
pub struct Member {
    /// The run's configuration.
    pub config: Config,
    /// What it computes on.
    pub device: Device,
    /// In which the group averages gradients.
    pub buckets: Arc<[Bucket]>,
    /// Model, loss, data.
    pub task: Box<dyn Task>,
    /// What was copied to the node's own disk and is counted in a step.
    pub copied: Copied,
    /// The model's tensors, named, in order of creation.
    pub tensors: Vec<(String, Tensor)>,
    /// Their values as one vector.
    pub flat: Flat,
    /// Whether exchanges go by way of memory for them: needed where the model is on a device, tried
    /// in tests where it is not.
    pub staged: bool,
    /// Where the group may meet, if it can have more ranks than this: it does so at the store of
    /// the first rank that is there.
    pub store: Option<Store>,
    /// Where the group's first rank writes its steps down.
    pub recorder: Recorder,
    /// Looks at the GPU, if it computes on one.
    pub gpu_stats: Option<GpuStats>,
    /// The same without its model: it joins, again and again.
    pub process: RankProcess,
}

impl Member {
    /// With the task of the configuration, built; serves a store.
    pub fn with_task(
        entry: Entry,
        task: Box<dyn Task>,
        recorder: Recorder,
        runtime: &Handle,
    ) -> anyhow::Result<Self> {
        let Entry {
            config,
            group,
            rank,
            life,
            device,
            coordinator,
            credentials,
        } = entry;
        let given_up = |error: anyhow::Error| anyhow::Error::from(GivenUp(error));
        let size = group_size(&config, group).map_err(given_up)?;
        let spec = run_spec(&config, &*task);
        let checked = spec.check().map_err(|error| given_up(error.into()));
        let layout = Arc::new(checked?);
        let tensors = named(&*task);
        let buckets = layout.buckets(config.exchange.bucket_bytes).into();
        let flat = Flat::new(&layout, &tensors, device).map_err(|error| given_up(error.into()))?;
        let host = &config.cluster.host;
        let lease = Duration::from_millis(config.liveness.lease_ms);
        let serve = || Store::serve(host, lease).context("serving the group's store");
        let store = (size > 1).then(serve).transpose()?;
        let reach = reach(&config, credentials);
        let settings = RankSettings {
            id: RankId {
                run: config.name.clone(),
                group,
                rank,
            },
            life,
            spec: Arc::new(spec),
            layout,
            coordinator: Coordinator::new(coordinator, reach.clone()),
            reach,
            heartbeat: Duration::from_millis(config.liveness.heartbeat_ms),
            patience: fence::patience(lease, device.is_cuda()),
            overlap: config.train.overlap,
            runtime: runtime.clone(),
        };
        let collector = config.telemetry.otlp.as_deref();
        traces::start(&settings, collector).map_err(|error| given_up(error.into()))?;
        Ok(Self {
            device,
            buckets,
            task,
            copied: Copied::default(),
            tensors,
            staged: flat.device() != Device::Cpu,
            flat,
            store,
            recorder,
            gpu_stats: GpuStats::of(device),
            process: RankProcess::new(settings),
            config,
        })
    }

    /// host:port of the own store; empty without one.
    pub fn store_address(&self) -> String {
        let host = &self.config.cluster.host;
        let store = self.store.as_ref();
        store.map_or(String::new(), |store| format!("{host}:{}", store.port()))
    }
}

/// A model's [tensors](Task::tensors) as its servers need to know them, in order of creation.
pub fn tensor_specs(tensors: Vec<(String, Tensor, TensorKind)>) -> Vec<TensorSpec> {
    let spec = |(name, tensor, kind): (String, Tensor, TensorKind)| TensorSpec {
        name,
        shape: tensor.size().iter().map(|extent| *extent as u64).collect(),
        kind,
    };
    tensors.into_iter().map(spec).collect()
}

/// The model's tensors, named, in order of creation.
pub fn named(task: &dyn Task) -> Vec<(String, Tensor)> {
    let all = task.tensors().into_iter();
    all.map(|(name, tensor, _)| (name, tensor)).collect()
}

/// What the servers need to know of a configuration with its task.
pub fn run_spec(config: &Config, task: &dyn Task) -> RunSpec {
    config.spec(tensor_specs(task.tensors()), task.samples() as u64)
}

/// The built-in task of a configuration, with initial values from its seed.
pub fn build_task(config: &Config) -> Result<Box<dyn Task>, TaskError> {
    Registry::built_in().build(config)
}

/// How the servers of a run are reached.
pub fn reach(config: &Config, credentials: Credentials) -> Reach {
    Reach {
        credentials,
        retry: Duration::from_millis(config.liveness.retry_ms),
        connections: config.exchange.connections,
    }
}

/// How many ranks a group has when all are there.
fn group_size(config: &Config, group: GroupId) -> anyhow::Result<u32> {
    let groups = &config.cluster.groups;
    let size = groups.get(group.0 as usize).copied();
    size.with_context(|| {
        let groups = groups.len();
        format!("the configuration has {groups} groups, not a group {group}")
    })
}
