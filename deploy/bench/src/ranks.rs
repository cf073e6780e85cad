//! A client process of `bench scale --connected` and `--failover`: many groups of one rank. Each joins, holds its lease and
//! exchanges as the rank of a worker does, so that to a server it looks like as many processes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tradewind_client::coordinator::{Coordinator, CoordinatorAt, RankId};
use tradewind_client::core::session::Purpose;
use tradewind_client::heartbeat::HeartbeatState;
use tradewind_client::membership::Membership;
use tradewind_client::network::{Reach, connects};
use tradewind_client::rank_process::RankProcess;
use tradewind_client::rank_settings::RankSettings;
use tradewind_client::stopwatch::Stopwatch;
use tradewind_client::streams::Streams;
use tradewind_common::schedule::Seen;
use tradewind_common::{GroupId, Layout, Rank, RunId};
use tradewind_proto::auth::Credentials;

use super::model::{gradient, values};
use super::orders::{Beats, Ready, Work, Worked, answer, obey};
use super::scale::connected::{RUN, spec};

/// How long an unreachable server is tried again.
const RETRY: Duration = Duration::from_secs(60);

/// How long ranks may be without a coordinator, beyond which none comes any more, and how often it is looked whether one has come.
const AWAY_MAX: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(5);

/// The stack of a rank's thread: of so many only what is used takes memory.
const STACK_BYTES: usize = 1 << 20;

/// The only process of its rank in its run.
const LIFE: u64 = 1;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Groups of the run.
    #[arg(long)]
    groups: u32,
    /// The first of those that are in this process.
    #[arg(long)]
    first: u32,
    /// How many are.
    #[arg(long)]
    count: u32,
    /// Servers of the fleet.
    #[arg(long, default_value_t = 1)]
    servers: u32,
    /// All work at the same time, each on a thread of its own.
    #[arg(long)]
    together: bool,
    /// Address (host:port) of the coordinator.
    #[arg(long, required_unless_present = "coordinator_file")]
    coordinator: Option<String>,
    /// File that says where it is at the moment.
    #[arg(long, conflicts_with = "coordinator")]
    coordinator_file: Option<PathBuf>,
}

/// A rank that has joined.
struct Connected {
    membership: Membership,
    streams: Streams,
    seen: Seen,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    // Of all ranks: each has one thread of its own only while it exchanges.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let spec = Arc::new(spec(arguments.servers, arguments.groups));
    let layout = Arc::new(spec.check()?);
    let lease = Duration::from_millis(spec.lease_ms);
    let reach = Reach {
        credentials: Credentials::from_env()?,
        retry: RETRY,
        connections: 1,
    };
    let at = match (&arguments.coordinator_file, &arguments.coordinator) {
        (Some(file), _) => CoordinatorAt::File(file.clone()),
        (None, address) => CoordinatorAt::Address(address.clone().unwrap_or_default()),
    };
    let mut values = values(layout.elements());
    let gradient = gradient(layout.elements());
    let mut ranks = Vec::new();
    for group in arguments.first..arguments.first + arguments.count {
        let mut process = RankProcess::new(RankSettings {
            id: RankId {
                run: RunId::new(RUN)?,
                group: GroupId(group),
                rank: Rank(0),
            },
            life: LIFE,
            spec: spec.clone(),
            layout: layout.clone(),
            coordinator: Coordinator::new(at.clone(), reach.clone()),
            reach: reach.clone(),
            heartbeat: lease / 6,
            patience: lease,
            overlap: false,
            runtime: runtime.handle().clone(),
        });
        let named = || format!("group {group}");
        let mut membership = process.join("").with_context(named)?;
        let start = membership.await_start(|| &values).with_context(named)?;
        let mut streams = membership.streams(start)?;
        let pulled = streams
            .pull(&mut values.as_mut_slice())
            .with_context(named)?;
        ranks.push(Connected {
            membership,
            streams,
            seen: pulled.seen(),
        });
    }
    let ready = Ready {
        servers: arguments.servers as usize,
        bytes: 4 * layout.elements(),
    };
    if arguments.together {
        answer(&ready, |order| {
            together(&mut ranks, order.work, &layout, &gradient)
        })?;
    } else {
        obey(&ready, |work| {
            let mut ranks = ranks.iter_mut();
            ranks.try_for_each(|rank| rank.work(work, &layout, &gradient, &mut values))
        })?;
    }
    for rank in &mut ranks {
        rank.membership.leave(Vec::new())?;
    }
    Ok(())
}

/// Has all ranks work at once; how long each took, seconds.
fn together(
    ranks: &mut [Connected],
    work: Work,
    layout: &Layout,
    gradient: &[f32],
) -> anyhow::Result<Worked> {
    let beating: Vec<_> = (ranks.iter())
        .map(|rank| rank.membership.heartbeat().clone())
        .collect();
    std::thread::scope(|scope| {
        let returning = (work == Work::Return).then(|| Returning::begin(beating));
        let started: std::io::Result<Vec<_>> = (ranks.iter_mut())
            .map(|rank| {
                let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
                builder.spawn_scoped(scope, move || {
                    let watch = Stopwatch::start();
                    let mut values = vec![0.0; gradient.len()];
                    rank.work(work, layout, gradient, &mut values)?;
                    Ok(watch.elapsed().as_secs_f64())
                })
            })
            .collect();
        let started = started.context("a rank has no thread of its own")?;
        let beats = returning.map(Returning::wait).transpose()?;
        let ended = started.into_iter().map(|rank| rank.join());
        let seconds: anyhow::Result<Vec<f64>> = ended
            .map(|rank| rank.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        let seconds = seconds?;
        Ok(Worked { seconds, beats })
    })
}

/// Ranks that look for another coordinator.
struct Returning {
    beating: Vec<Arc<HeartbeatState>>,
    /// Streams of beats that were answered until now, of each.
    before: Vec<u64>,
    connects: u64,
    watch: Stopwatch,
}

impl Returning {
    fn begin(beating: Vec<Arc<HeartbeatState>>) -> Self {
        Self {
            before: beating.iter().map(|rank| rank.streams_answered()).collect(),
            beating,
            connects: connects(),
            watch: Stopwatch::start(),
        }
    }

    /// Until all have found it.
    fn wait(self) -> anyhow::Result<Beats> {
        let mut seconds = vec![None; self.beating.len()];
        while seconds.contains(&None) {
            let now = self.watch.elapsed();
            let ranks = self.beating.iter().zip(&self.before);
            for ((rank, before), seconds) in ranks.zip(&mut seconds) {
                if rank.streams_answered() > *before {
                    seconds.get_or_insert(now.as_secs_f64());
                }
            }
            if now > AWAY_MAX {
                let missing = seconds.iter().filter(|seconds| seconds.is_none()).count();
                bail!("after {AWAY_MAX:?} {missing} ranks have found no other coordinator");
            }
            std::thread::sleep(LOOK);
        }
        let silent = self.beating.iter().map(|rank| rank.silent_longest());
        Ok(Beats {
            seconds: seconds.into_iter().flatten().collect(),
            silent_seconds: silent.max().unwrap_or_default().as_secs_f64(),
            connects: connects() - self.connects,
        })
    }
}

impl Connected {
    /// Moves the vector once.
    fn work(
        &mut self,
        work: Work,
        layout: &Layout,
        gradient: &[f32],
        mut values: &mut [f32],
    ) -> anyhow::Result<()> {
        let Streams { exchange, wire } = &mut self.streams;
        let purpose = Purpose::Gradient { samples: 1 };
        let source = |block| {
            let block = layout.block(block).expect("one of its slice");
            gradient[block.elements.clone()].into()
        };
        let seen = self.seen;
        let moved = wire.block_on(async {
            match work {
                Work::Exchange | Work::Return => {
                    exchange.run(purpose, seen, &source, &mut values).await
                }
                Work::Push => exchange.push(purpose, seen, &source).await,
                Work::Pull => exchange.pull(&mut values).await,
            }
        })?;
        self.seen = moved.seen();
        self.membership
            .heartbeat()
            .set_clock(self.streams.exchange.clock());
        Ok(())
    }
}
