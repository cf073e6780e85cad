//! A rank from the moment on when its model is known, on the thread that does what the script waits for.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::Runtime;
use tradewind_client::coordinator::{Coordinator, Joined, RankId};
use tradewind_client::feed::Feed;
use tradewind_client::fence::Break;
use tradewind_client::leaving::{Training, leave_when_told};
use tradewind_client::main_memory::{Exchanges, Gather, MainMemory};
use tradewind_client::membership::{End, Membership};
use tradewind_client::network::Reach;
use tradewind_client::pace::Pace;
use tradewind_client::rank_process::RankProcess;
use tradewind_client::rank_settings::RankSettings;
use tradewind_client::ranks::{Alone, Broken};
use tradewind_client::recorder::Recorder;
use tradewind_client::step::{Ahead, Computed, Ended, Step};
use tradewind_client::stopwatch::Stopwatch;
use tradewind_client::verdict::{GivenUp, Verdict};
use tradewind_common::finite::all_finite;
use tradewind_common::schedule::Seen;
use tradewind_common::shares::first_step;
use tradewind_common::spec::RunSpec;
use tradewind_common::{BlockId, Layout, Rank};
use tradewind_config::Config;

use crate::entry::Entry;
use crate::errors::Failure;
use crate::group::PythonRanks;
use crate::memory::Memory;

/// What a rank's thread has.
pub struct Trainer {
    config: Config,
    recorder: Recorder,
    // Its process's calls run there.
    _runtime: Runtime,
    process: RankProcess,
    values: Memory,
    gradient: Memory,
    stage: Stage,
    /// Why the incarnation at hand is over, if it is.
    failure: Option<anyhow::Error>,
}

/// How far it has come in an incarnation of its group.
enum Stage {
    Apart,
    Joined(Box<Membership>),
    Entered(Box<Entered>),
}

/// A rank in one incarnation of its group.
struct Entered {
    exchanges: Exchanges,
    feed: Feed,
    group: Box<dyn Gather + Send>,
    slice: Vec<BlockId>,
    seen: Seen,
    /// The exchange that ended last, until its loss is known.
    unrecorded: Option<Ended>,
    /// Since when the script computes.
    since: Stopwatch,
    _training: Training,
    /// Dropped last: whoever drops the group may get stuck.
    membership: Membership,
}

/// What a script says of a step.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    /// Samples of its gradient on this rank.
    pub samples: usize,
    /// Whether the gradient is finite; `None` if nobody has looked.
    pub finite: Option<bool>,
    /// The mean loss of its samples, if it is known yet.
    pub loss: Option<f64>,
    /// That of the step before, if it was not known then.
    pub loss_before: Option<f64>,
}

/// What a step has come to.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Somebody's gradient was not finite.
    pub skipped: bool,
    /// No further step is wanted.
    pub end: Option<End>,
    /// The learning rate of the next update of as many samples.
    pub rate: f64,
    /// Samples applied to the model.
    pub samples_applied: u64,
    /// So many batches that were asked for and not handed out are left out.
    pub left_out: u64,
}

impl Trainer {
    /// Nothing is sent yet.
    pub fn new(
        entry: Entry,
        spec: &Arc<RunSpec>,
        layout: &Arc<Layout>,
        values: Memory,
        gradient: Memory,
    ) -> anyhow::Result<Self> {
        let Entry {
            config,
            group,
            rank,
            life,
            coordinator,
            token,
            recorder,
            ..
        } = entry;
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build()?;
        let reach = Reach {
            token,
            retry: Duration::from_millis(config.liveness.retry_ms),
            connections: config.exchange.connections,
        };
        let process = RankProcess::new(RankSettings {
            id: RankId {
                run: config.name.clone(),
                group,
                rank,
            },
            life,
            spec: spec.clone(),
            layout: layout.clone(),
            coordinator: Coordinator::new(coordinator, reach.clone()),
            reach,
            heartbeat: Duration::from_millis(config.liveness.heartbeat_ms),
            patience: Duration::from_millis(config.liveness.lease_ms),
            overlap: config.train.overlap,
            runtime: runtime.handle().clone(),
        });
        leave_when_told(process.leaving.clone(), runtime.handle())?;
        Ok(Self {
            config,
            recorder,
            _runtime: runtime,
            process,
            values,
            gradient,
            stage: Stage::Apart,
            failure: None,
        })
    }

    /// Does something that may fail. An error after which the rank joins again is kept for
    /// [`again`](Self::again).
    pub fn try_to<T>(
        &mut self,
        what: impl FnOnce(&mut Self) -> anyhow::Result<T>,
    ) -> Result<T, Failure> {
        what(self).map_err(|error| {
            let failure = Failure {
                verdict: Verdict::of(&error),
                text: format!("{error:#}"),
            };
            self.failure = Some(error);
            failure
        })
    }

    /// Joins the group: see [`RankProcess::join`]. Returns the flat vector's blocks as well, as the run has them.
    pub fn join(&mut self, store_address: &str) -> anyhow::Result<(Joined, Arc<Layout>)> {
        let membership = self.process.join(store_address)?;
        let joined = membership.joined().clone();
        self.stage = Stage::Joined(Box::new(membership));
        Ok((joined, self.process.settings.layout.clone()))
    }

    /// The ranks have met: creates initial values if it is told to, and pulls.
    pub fn enter(
        &mut self,
        collectives: Option<Py<PyAny>>,
        break_group: Option<Py<PyAny>>,
    ) -> anyhow::Result<Outcome> {
        let Stage::Joined(membership) = std::mem::replace(&mut self.stage, Stage::Apart) else {
            return Err(unready("enter a group that it has not joined"));
        };
        let mut membership = *membership;
        let Joined {
            group_rank,
            group_size,
            ..
        } = *membership.joined();
        let group: Box<dyn Gather + Send> = match collectives {
            Some(collectives) => Box::new(PythonRanks::new(group_rank, group_size, collectives)),
            None => Box::new(Alone),
        };
        membership.formed(break_group.map(breaking));
        let Self {
            values,
            gradient,
            process,
            ..
        } = self;
        // SAFETY: the script waits for this call.
        let start = membership.await_start(|| unsafe { values.values() })?;
        let layout = &process.settings.layout;
        let slice = membership.slice();
        let mut exchanges = Exchanges::new(&membership, start)?;
        let mut replica = MainMemory {
            layout,
            slice: &slice,
            // SAFETY: as above.
            gradient: unsafe { gradient.values() },
            // SAFETY: as above.
            values: unsafe { values.values_mut() },
            group: &*group,
            leave: &|| false,
        };
        // One rate holds for all blocks of the first exchange, too.
        let pulled = exchanges.pull(&mut replica)?;
        tracing::info!(%start, "ready");
        let entered = Entered {
            feed: membership.feed(start)?,
            exchanges,
            group,
            slice,
            seen: pulled.seen(),
            unrecorded: None,
            since: Stopwatch::start(),
            _training: process.leaving.train(),
            membership,
        };
        let seen = entered.seen;
        self.stage = Stage::Entered(Box::new(entered));
        Ok(Outcome {
            skipped: false,
            end: pulled.stop.then_some(End::Applied),
            rate: self.rate(seen, 1),
            samples_applied: pulled.samples_applied,
            left_out: 0,
        })
    }

    /// The samples of the next batch to be prepared, by number, and their epoch.
    pub fn next_batch(&mut self) -> anyhow::Result<(u64, Vec<usize>)> {
        let Entered {
            feed,
            group,
            membership,
            ..
        } = self.entered()?;
        membership.check()?;
        let samples = feed.next_apart(&**group, &mut |finished, held| {
            membership.lease_chunk(finished, held)
        })?;
        let epoch = feed.epoch().expect("a batch has been asked for");
        Ok((epoch, samples))
    }

    /// Of the batches that were asked for and not handed out, the first is now.
    pub fn handed_out(&mut self) -> anyhow::Result<()> {
        self.entered()?.feed.handed_out();
        Ok(())
    }

    /// Agrees with the group about the gradient in its memory, exchanges it, and brings fresh values.
    pub fn step(&mut self, said: Said) -> anyhow::Result<Outcome> {
        let Self {
            config,
            recorder,
            process,
            values,
            gradient,
            stage: Stage::Entered(entered),
            ..
        } = self
        else {
            return Err(unready("take a step"));
        };
        let RankSettings {
            id, spec, layout, ..
        } = &process.settings;
        entered.membership.check()?;
        let clock = entered.exchanges.clock();

        let mut compute = entered.since.elapsed();
        let slowness = {
            let step = first_step(clock, spec.local_steps).0;
            config.stragglers.factor(id.group, id.rank, step)
        };
        let pace = Pace::new(Duration::from_secs_f64(config.step_seconds)).times(slowness);
        let missed = pace.missed(compute);
        pace.keep(compute);
        compute = entered.since.elapsed();

        let mut watch = Stopwatch::start();
        // SAFETY: the script waits for this call.
        let gradient = unsafe { gradient.values() };
        let computed = Computed {
            loss: said.loss.or(said.loss_before).unwrap_or(f64::NAN),
            finite: said.finite.unwrap_or_else(|| all_finite(gradient)),
            // All of it or nothing.
            skips: 1,
            buckets: 1,
        };
        let ahead = Ahead {
            clock,
            loss_scale: None,
        };
        let mut step = computed.agree(said.samples, missed, ahead, &*entered.group)?;
        let first = entered.group.rank() == Rank(0);
        if said.loss.is_none() {
            let loss = std::mem::replace(&mut step.loss, f64::NAN);
            entered.record(recorder, loss);
        }
        step.compute = compute;
        step.reduce = watch.lap();

        let Entered {
            exchanges,
            group,
            slice,
            membership,
            seen,
            ..
        } = &mut **entered;
        let mut replica = MainMemory {
            layout,
            slice,
            gradient,
            // SAFETY: as above.
            values: unsafe { values.values_mut() },
            group: &**group,
            leave: &|| membership.is_asked_to_leave(),
        };
        let ended = exchanges.exchange(step, *seen, &mut replica)?;
        let mut end = None;
        let mut left_out = 0;
        if let Some(ended) = ended {
            entered.feed.done();
            process.exchanged();
            entered.seen = ended.summary.seen();
            end = entered.membership.ended(&ended)?;
            let next = entered.exchanges.go_on_at(ended.summary.next);
            left_out = entered.feed.go_on_at(next);
            entered.unrecorded = Some(ended).filter(|_| first);
            if said.loss.is_some() {
                entered.record(recorder, ended.step.loss);
            }
        }
        entered.since = Stopwatch::start();
        let seen = entered.seen;
        Ok(Outcome {
            skipped: step.is_skipped(),
            end,
            rate: self.rate(seen, step.samples),
            samples_applied: seen.samples,
            left_out,
        })
    }

    /// The group is done with the run.
    pub fn leave(&mut self, loss_before: Option<f64>) -> anyhow::Result<()> {
        let mut entered = match std::mem::replace(&mut self.stage, Stage::Apart) {
            Stage::Entered(entered) => entered,
            Stage::Joined(_) | Stage::Apart => return Err(unready("leave")),
        };
        entered.record(&mut self.recorder, loss_before.unwrap_or(f64::NAN));
        let finished = entered.feed.take_finished();
        Ok(entered.membership.leave(finished)?)
    }

    /// This incarnation of the group is over: after which pause the rank joins again; `None` if it has left.
    /// `reason` is what the script has seen, if nothing was refused to the rank itself.
    pub fn again(&mut self, reason: String) -> anyhow::Result<Option<Duration>> {
        match std::mem::replace(&mut self.stage, Stage::Apart) {
            Stage::Apart => {}
            Stage::Joined(mut membership) => membership.break_off(),
            Stage::Entered(mut entered) => entered.membership.break_off(),
        }
        let broken = || Broken { message: reason }.into();
        let failure = self.failure.take().unwrap_or_else(broken);
        self.process.again(failure, Verdict::Again)
    }

    fn entered(&mut self) -> anyhow::Result<&mut Entered> {
        match &mut self.stage {
            Stage::Entered(entered) => Ok(entered),
            Stage::Joined(_) | Stage::Apart => Err(unready("train")),
        }
    }

    fn rate(&self, seen: Seen, samples: u64) -> f64 {
        let spec = &self.process.settings.spec;
        spec.schedule.rate(seen, samples, spec.samples)
    }
}

impl Entered {
    /// Writes down the exchange that ended last, whose loss is known now.
    fn record(&mut self, recorder: &mut Recorder, loss: f64) {
        if let Some(ended) = self.unrecorded.take() {
            let step = Step { loss, ..ended.step };
            let group = self.membership.group();
            recorder.write(&Ended { step, ..ended }.record(group, None));
        }
    }
}

fn breaking(break_group: Py<PyAny>) -> Break {
    Box::new(move || {
        let broken = Python::attach(|py| break_group.call0(py).map(drop));
        if let Err(error) = broken {
            tracing::warn!("the group's collectives cannot be broken: {error}");
        }
    })
}

fn unready(what: &str) -> anyhow::Error {
    GivenUp(anyhow::anyhow!(
        "this rank is not in its group and cannot {what}"
    ))
    .into()
}
