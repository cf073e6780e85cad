//! A rank from the moment on when its model is known, on the thread that does what the script waits for.

mod local;
mod losses;

use std::collections::VecDeque;
use std::iter;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::Runtime;
use tradewind_client::alike::{Agreed, Misused, Place};
use tradewind_client::coordinator::{Coordinator, Joined, RankId};
use tradewind_client::exchanges::Exchanges;
use tradewind_client::feed::Feed;
use tradewind_client::fence::{self, Break};
use tradewind_client::group_key::GroupKey;
use tradewind_client::leaving::{Training, leave_when_told};
use tradewind_client::main_memory::{Gather, MainMemory};
use tradewind_client::membership::{End, Membership};
use tradewind_client::network::Reach;
use tradewind_client::pace::Pace;
use tradewind_client::rank_process::RankProcess;
use tradewind_client::rank_settings::RankSettings;
use tradewind_client::ranks::{Alone, Broken};
use tradewind_client::recorder::Recorder;
use tradewind_client::step::{Ahead, Computed, Copied, Step};
use tradewind_client::stopwatch::Stopwatch;
use tradewind_client::traces;
use tradewind_client::verdict::{GivenUp, Verdict};
use tradewind_common::finite::all_finite;
use tradewind_common::schedule::Seen;
use tradewind_common::shares::first_step;
use tradewind_common::spec::RunSpec;
use tradewind_common::{BlockId, Clock, Layout, Rank, TensorKind};
use tradewind_config::Config;

use crate::entry::Entry;
use crate::errors::Failure;
use crate::group::PythonRanks;
use crate::memory::Memory;
pub use local::InnerStep;
use local::LocalSteps;
use losses::Losses;

/// What a rank's thread has.
pub struct Trainer {
    config: Config,
    recorder: Recorder,
    // Its process's calls run there.
    _runtime: Runtime,
    process: RankProcess,
    values: Memory,
    gradient: Memory,
    /// Where the model is sharded over the ranks of the group, so that of the flat vector each has its own slice
    /// alone: lets go of a range (begin, end) of the gradient.
    spent: Option<Py<PyAny>>,
    stage: Stage,
    /// Where the script's optimizer takes steps between exchanges.
    local: Option<LocalSteps>,
    /// Why the incarnation at hand is over, if it is.
    failure: Option<anyhow::Error>,
}

/// What is known of the script's model.
#[derive(Debug)]
pub struct Model {
    /// The ranks reduce on GPUs.
    pub on_gpu: bool,
    /// Where it is sharded over the ranks of the group: lets go of a range (begin, end) of the gradient.
    pub spent: Option<Py<PyAny>>,
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
    losses: Losses,
    /// Batches of the steps whose exchanges have not ended.
    undone: VecDeque<u32>,
    /// Since when the script computes.
    since: Stopwatch,
    /// For how much of it the script has waited for batches.
    waited: Duration,
    _training: Training,
    /// Dropped last: whoever drops the group may get stuck.
    membership: Membership,
}

/// What a script says of a step.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    /// Samples of its gradient on this rank.
    pub samples: usize,
    /// The batches that they came in.
    pub batches: u32,
    /// Whether somebody has found the gradient not finite.
    pub overflowed: bool,
    /// What the loss was multiplied by, if it was.
    pub loss_scale: Option<f64>,
    /// The mean loss of the step before; NaN if nobody says.
    pub loss_before: f64,
    /// A number that is the same on all ranks whose optimizers have the same options; below 2^18.
    pub options: u32,
    /// What this rank has copied to its node's own disk since the step before.
    pub copied: Copied,
}

/// A batch that is to be prepared.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The pass over the data.
    pub epoch: u64,
    /// Its samples, by number in the training data.
    pub samples: Vec<usize>,
    /// Samples that the group takes from now on: see [`Feed::take_wanted`].
    pub wanted: Vec<Range<usize>>,
    /// Which rank of the group this is.
    pub rank: Rank,
    /// How many ranks there are.
    pub ranks: u32,
}

/// A group that was joined, and how its ranks meet.
pub struct JoinedGroup {
    /// What the coordinator says of it.
    pub joined: Joined,
    /// The flat vector's blocks, as the run has them.
    pub layout: Arc<Layout>,
    /// By which values in the store are sealed.
    pub store_key: GroupKey,
    /// With what the group's names there begin.
    pub prefix: String,
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
    /// What local steps came to was not finite: the script's optimizer begins anew.
    pub lost: bool,
}

impl Trainer {
    /// Nothing is sent yet.
    pub fn new(
        entry: Entry,
        spec: &Arc<RunSpec>,
        layout: &Arc<Layout>,
        values: Memory,
        gradient: Memory,
        Model { on_gpu, spent }: Model,
    ) -> anyhow::Result<Self> {
        let Entry {
            config,
            group,
            rank,
            life,
            coordinator,
            credentials,
            recorder,
            ..
        } = entry;
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build()?;
        let reach = Reach {
            credentials,
            retry: Duration::from_millis(config.liveness.retry_ms),
            connections: config.exchange.connections,
        };
        let settings = RankSettings {
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
            patience: fence::patience(Duration::from_millis(config.liveness.lease_ms), on_gpu),
            overlap: config.train.overlap,
            runtime: runtime.handle().clone(),
        };
        traces::start(&settings, config.telemetry.otlp.as_deref())?;
        let process = RankProcess::new(settings);
        leave_when_told(process.leaving.clone(), runtime.handle())?;
        Ok(Self {
            config,
            recorder,
            _runtime: runtime,
            process,
            values,
            gradient,
            spent,
            stage: Stage::Apart,
            local: None,
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
    /// And what [`RankSettings::meeting`](tradewind_client::rank_settings::RankSettings::meeting) says.
    pub fn join(&mut self, store_address: &str) -> anyhow::Result<JoinedGroup> {
        let membership = self.process.join(store_address)?;
        let joined = membership.joined().clone();
        self.stage = Stage::Joined(Box::new(membership));
        let settings = &self.process.settings;
        let (store_key, prefix) = settings.meeting(joined.incarnation);
        Ok(JoinedGroup {
            joined,
            layout: settings.layout.clone(),
            store_key,
            prefix,
        })
    }

    /// The ranks begin to meet, and this breaks the group.
    pub fn breaks(&mut self, break_group: Py<PyAny>) -> anyhow::Result<()> {
        let Stage::Joined(membership) = &self.stage else {
            return Err(unready("meet a group that it has not joined"));
        };
        membership.formed(Some(breaking(break_group)));
        Ok(())
    }

    /// The ranks have met: creates initial values if it is told to, and pulls.
    pub fn enter(&mut self, collectives: Option<Py<PyAny>>) -> anyhow::Result<Outcome> {
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
        let Self {
            config,
            values,
            gradient,
            process,
            ..
        } = self;
        // SAFETY: the script waits for this call.
        let start = membership.await_start(|| unsafe { values.values() })?;
        let layout = &process.settings.layout;
        let slice = membership.slice();
        let buckets = layout.buckets(config.exchange.bucket_bytes);
        let buckets = config.exchange.per_bucket.then_some(&buckets[..]);
        let mut exchanges = Exchanges::new(&membership, start, buckets)?;
        let mut replica = MainMemory {
            layout,
            slice: &slice,
            // SAFETY: as above.
            gradient: unsafe { gradient.values() },
            // SAFETY: as above.
            values: unsafe { values.values_mut() },
            spent: &|_| {},
            group: &*group,
            leave: &|| false,
        };
        // One rate holds for all blocks of the first exchange, too.
        let pulled = exchanges.pull(&mut replica)?;
        tracing::info!(%start, "ready");
        let parts = match self.spent.is_some() {
            true => layout.runs(&slice),
            false => iter::once(0..layout.elements()).collect(),
        };
        self.local = LocalSteps::new(&self.config, layout, &parts, replica.values);
        let entered = Entered {
            feed: membership.feed(start)?,
            exchanges,
            group,
            slice,
            seen: pulled.seen(),
            losses: Losses::default(),
            undone: VecDeque::new(),
            since: Stopwatch::start(),
            waited: Duration::ZERO,
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
            lost: false,
        })
    }

    /// The next batch to be prepared.
    pub fn next_batch(&mut self) -> anyhow::Result<Asked> {
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
        Ok(Asked {
            epoch,
            samples,
            wanted: feed.take_wanted(),
            rank: group.rank(),
            ranks: group.size(),
        })
    }

    /// Of the batches that were asked for and not handed out, the first is now; the script has waited so long
    /// for it.
    pub fn handed_out(&mut self, waited: Duration) -> anyhow::Result<()> {
        let entered = self.entered()?;
        entered.feed.handed_out();
        entered.waited += waited;
        Ok(())
    }

    /// With exchanges during backward: one begins, whose gradient is the mean over `samples`.
    pub fn begin_backward(&mut self, samples: u32) -> anyhow::Result<()> {
        let Entered {
            exchanges,
            membership,
            seen,
            ..
        } = self.entered()?;
        membership.check()?;
        let begin = exchanges
            .during()
            .map(|during| during.begin(samples, *seen));
        Ok(begin
            .unwrap_or(Ok(()))
            .map_err(|error| GivenUp(error.into()))?)
    }

    /// With exchanges during backward: in the gradient's memory a bucket is averaged.
    pub fn give(&mut self, bucket: usize) -> anyhow::Result<()> {
        let Self {
            gradient,
            stage: Stage::Entered(entered),
            ..
        } = self
        else {
            return Err(unready("take a step"));
        };
        // SAFETY: of the gradient this is final, and the script waits for this call.
        let gradient = unsafe { gradient.values() };
        let give = entered.exchanges.during();
        let give = give.map(|during| during.give(bucket, gradient));
        Ok(give
            .unwrap_or(Ok(()))
            .map_err(|error| GivenUp(error.into()))?)
    }

    /// Agrees with the group about the gradient in its memory, exchanges it, and brings fresh values.
    pub fn step(&mut self, said: Said) -> anyhow::Result<Result<Outcome, Misused>> {
        Ok(match self.agree(said)? {
            Ok(step) => Ok(self.exchange(step, said.batches)?),
            Err(misused) => Err(misused),
        })
    }

    /// A step, as all ranks know it.
    fn agree(&mut self, said: Said) -> anyhow::Result<Result<Step, Misused>> {
        let Self {
            config,
            recorder,
            process,
            gradient,
            local,
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

        let data = std::mem::take(&mut entered.waited);
        let mut compute = entered.since.elapsed().saturating_sub(data);
        let slowness = {
            let nth = local.as_ref().map_or(0, LocalSteps::taken);
            let step = first_step(clock, spec.local_steps).0 + u64::from(nth);
            config.stragglers.factor(id.group, id.rank, step)
        };
        let pace = Pace::new(Duration::from_secs_f64(config.step_seconds)).times(slowness);
        let missed = pace.missed(compute);
        pace.keep(compute);
        compute = entered.since.elapsed().saturating_sub(data);

        let watch = Stopwatch::start();
        // SAFETY: the script waits for this call.
        let gradient = unsafe { gradient.values() };
        let part = match local {
            // Between exchanges buffers are left alone.
            Some(_) => layout.of_kind(TensorKind::Parameter),
            None => 0..layout.elements(),
        };
        // The other ranks look at the rest.
        let finite = || {
            entered.slice.iter().all(|id| {
                let own = &layout.block(*id).expect("a block of the slice").elements;
                let (begin, end) = (own.start.max(part.start), own.end.min(part.end));
                begin >= end || all_finite(&gradient[begin..end])
            })
        };
        let (skips, buckets) = match entered.exchanges.during() {
            // All of it or nothing.
            None => (usize::from(said.overflowed || !finite()), 1),
            Some(during) => (during.skipped(gradient)?, during.parts()),
        };
        let computed = Computed {
            // Known with the next step.
            loss: f64::NAN,
            finite: skips == 0,
            skips: skips.max(1),
            buckets,
        };
        let ahead = Ahead {
            clock,
            loss_scale: said.loss_scale,
        };
        let place = Place::Step(said.batches);
        let loss = said.samples as f64 * said.loss_before;
        let mut agreed = Agreed::new(place, said.options, loss, said.copied);
        let group = &*entered.group;
        let mut step = computed.agree_beside(said.samples, missed, ahead, &mut agreed.0, group)?;
        if let Some(misused) = agreed.misused(place, group.size()) {
            return Ok(Err(misused));
        }
        let train = &config.train;
        if train.consistency.waits_for_all() && said.batches != train.batches_per_step {
            let Said { batches, .. } = said;
            return Ok(Err(Misused(format!(
                "{batches} batches were taken for this step, and under train.consistency = \"sync\" \
                 a step has {}: the samples of a step follow from its number. Take so many, or set \
                 train.batches_per_step in the run's file",
                train.batches_per_step
            ))));
        }
        entered.losses.hear(agreed.loss_sum() / step.samples as f64);
        entered.losses.stepped(&step);
        entered.record(recorder, clock);
        step.data = data;
        step.copied = agreed.copied_sum();
        step.compute = compute;
        step.reduce = watch.elapsed();
        entered.since = Stopwatch::start();
        Ok(Ok(step))
    }

    /// Before a backward that averages, with others since the last step: an error if the ranks are not at the
    /// same place, whose collectives would not fit together.
    pub fn meet(&mut self, batches: u32) -> anyhow::Result<Result<(), Misused>> {
        let entered = self.entered()?;
        entered.membership.check()?;
        let computed = Computed {
            loss: 0.0,
            finite: true,
            skips: 0,
            buckets: 1,
        };
        let ahead = Ahead {
            clock: entered.exchanges.clock(),
            loss_scale: None,
        };
        let place = Place::Backward(batches);
        let mut agreed = Agreed::new(place, 0, 0.0, Copied::default());
        let group = &*entered.group;
        computed.agree_beside(0, false, ahead, &mut agreed.0, group)?;
        Ok(match agreed.misused(place, group.size()) {
            Some(misused) => Err(misused),
            None => Ok(()),
        })
    }

    /// Exchanges what steps came to; when that has ended, so many batches are done.
    fn exchange(&mut self, step: Step, batches: u32) -> anyhow::Result<Outcome> {
        let Self {
            recorder,
            process,
            values,
            gradient,
            spent,
            stage: Stage::Entered(entered),
            ..
        } = self
        else {
            return Err(unready("exchange"));
        };
        let layout = &process.settings.layout;
        entered.undone.push_back(batches);
        let Entered {
            exchanges,
            group,
            slice,
            membership,
            seen,
            ..
        } = &mut **entered;
        let spent = spent.as_ref();
        let release = |elements: &Range<usize>| {
            let Some(spent) = spent else {
                return;
            };
            let range = (elements.start, elements.end);
            if let Err(error) = Python::attach(|py| spent.call1(py, range)) {
                tracing::warn!("memory of the gradient is kept until the step ends: {error}");
            }
        };
        let mut replica = MainMemory {
            layout,
            slice,
            // SAFETY: the script waits for this call.
            gradient: unsafe { gradient.values() },
            // SAFETY: as above.
            values: unsafe { values.values_mut() },
            spent: &release,
            group: &**group,
            leave: &|| membership.is_asked_to_leave(),
        };
        let ended = exchanges.exchange(step, *seen, &mut replica)?;
        let mut end = None;
        let mut left_out = 0;
        if let Some(ended) = ended {
            for _ in 0..entered.undone.pop_front().unwrap_or(0) {
                entered.feed.done();
            }
            process.exchanged();
            entered.seen = ended.summary.seen();
            end = entered.membership.ended(&ended)?;
            let next = entered.exchanges.go_on_at(ended.summary.next);
            left_out = entered.feed.go_on_at(next);
            entered.losses.ended(ended);
            // With overlap that was the exchange of the step before.
            entered.record(recorder, step.clock);
        }
        // What the script does between steps is known when it has done it.
        let before = step.data + step.compute + step.reduce;
        traces::step_was(step.clock, before + entered.since.elapsed());
        entered.since = Stopwatch::start();
        let seen = entered.seen;
        Ok(Outcome {
            skipped: step.is_skipped(),
            end,
            rate: self.rate(seen, step.samples),
            samples_applied: seen.samples,
            left_out,
            lost: false,
        })
    }

    /// The group is done with the run.
    pub fn leave(&mut self, loss_before: f64) -> anyhow::Result<()> {
        let mut entered = match std::mem::replace(&mut self.stage, Stage::Apart) {
            Stage::Entered(entered) => entered,
            Stage::Joined(_) | Stage::Apart => return Err(unready("leave")),
        };
        entered.losses.hear(loss_before);
        entered.record(&mut self.recorder, Clock(u64::MAX));
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
    /// Writes down the exchanges before that of `clock` that have ended.
    fn record(&mut self, recorder: &mut Recorder, clock: Clock) {
        let group = self.membership.group();
        for ended in self.losses.known(clock) {
            if self.group.rank() == Rank(0) {
                recorder.write(&ended.record(group, None));
            }
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
