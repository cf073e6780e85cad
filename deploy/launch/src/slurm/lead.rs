//! `tradewind slurm lead`: what the batch script becomes when it has started the steps. It sees the run
//! to its end: the evaluation, or before the time limit a last snapshot and the next job. If its node is
//! lost, the run goes on without it.

mod begin;
mod finish;
mod joining;
mod steps;
mod stop;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{sleep, timeout};
use tradewind_common::run_files;
use tradewind_proto::v1::StatusReply;
use tradewind_server::store::read_address;

use super::identity::job_start;
use super::start::Start;
use super::{client, gave_up, job};
use crate::board::RunBoard;
use crate::progress::Progress;
use joining::Joining;
use steps::Steps;
use stop::Stopping;
use tradewind_folder::clock::Clock;
use tradewind_folder::cluster::Access;
use tradewind_folder::events::Events;
use tradewind_folder::failure::Failure;
use tradewind_folder::found::FoundRun;
use tradewind_folder::lines::Metrics;
use tradewind_folder::rotation::Rotation;
use tradewind_folder::run::RunFolder;
use tradewind_folder::runtime::one_thread;

/// Pause between two looks at the run.
const PAUSE: Duration = Duration::from_millis(500);

/// How long the coordinator may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// How long there may be no coordinator at first, and later in leases.
const COMING: Duration = Duration::from_secs(900);
const AWAY_LEASES: u32 = 12;

/// A coordinator that shall end and has been silent for so long has ended.
const SILENT: Duration = Duration::from_secs(2);

/// How long all groups must have left before the run has ended without its budget: what they wrote
/// last on other nodes may be seen later than that they have left.
const LEFT_FOR: Duration = Duration::from_secs(5);

/// For how many looks Slurm is asked for the job's components once a step has ended, and at which.
const ASKS: u32 = 16;
const ASK_EVERY: u32 = 4;

/// How long a run may go on without a live group when those of its job have all ended.
const STUCK: Duration = Duration::from_secs(60);

/// What the batch script says.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The run's folder.
    run: PathBuf,
    /// The processes of the steps, in the order of the components: children of the batch script.
    steps: Vec<i32>,
}

/// Sees a run to its end, and returns what the job ends with.
pub fn run(arguments: &Arguments) -> ExitCode {
    let led = one_thread().map_err(Into::into).and_then(|runtime| {
        runtime.block_on(async {
            let mut lead = Lead::new(arguments)?;
            let why = match lead.begin().await {
                Ok(None) => lead.follow().await,
                Ok(Some(why)) => why,
                Err(error) => Why::Failed(Failure::of_run(format!("{error:#}"))),
            };
            lead.finish(why).await
        })
    });
    match led {
        Ok(code) => code,
        Err(error) => {
            tradewind_process::complain!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Why following a run has come to its end.
#[derive(Debug)]
enum Why {
    /// The budget is applied.
    Completed,
    /// The time limit is near: groups have left, and a last snapshot is whole, if there was time.
    TimeIsUp,
    /// Slurm has taken a component away whose nodes are lost, and starts it again beside this one,
    /// which it then cannot: see `Lead::lost_component`.
    NodesLost,
    /// The job is being ended.
    Ended,
    /// Somebody has asked for the end.
    Cancelled,
    Failed(Failure),
}

struct Lead {
    place: FoundRun,
    folder: RunFolder,
    start: Start,
    steps: Steps,
    clock: Clock,
    metrics: Metrics,
    board: RunBoard,
    events: Events,
    rotation: Rotation,
    /// It was to stop, and what came after the newest snapshot could not be kept.
    unkept: bool,
    /// Samples applied, as groups of this start have told.
    applied: u64,
    /// The same, of starts before.
    applied_before: u64,
    status: Option<StatusReply>,
    joining: Joining,
    /// When the coordinator has answered last.
    heard: Duration,
    /// When it was last so that not all groups had left, and when one was live.
    some_stayed: Duration,
    some_lived: Duration,
    /// When the servers of this job were last there.
    served: Duration,
    /// Looks for which Slurm is still asked for the job's components.
    asks_left: u32,
    /// When groups whose own jobs ended with the start before are handed in again; `None` once they are.
    again: Option<Duration>,
    /// The newest snapshot at the beginning.
    resumed_from: Option<u64>,
    near_limit: Signal,
    /// Of `tradewind slurm cancel`.
    asked: Signal,
    terminate: Signal,
}

impl Lead {
    fn new(arguments: &Arguments) -> anyhow::Result<Self> {
        let place = FoundRun::find(Some(&arguments.run))?;
        let folder = RunFolder::reopen(&place.path)?;
        let mut lead = Self {
            start: job_start()?,
            steps: Steps::new(&arguments.steps, &job::of_lead(&place))?,
            clock: Clock::start(),
            metrics: Metrics::new(folder.file(run_files::METRICS)),
            board: RunBoard::new(&place.config, folder.path()),
            events: place.events(),
            rotation: Rotation::new(&place.path, &place.fleet),
            unkept: false,
            applied: 0,
            applied_before: 0,
            status: None,
            joining: Joining::default(),
            heard: Duration::ZERO,
            some_stayed: Duration::ZERO,
            some_lived: Duration::ZERO,
            served: Duration::ZERO,
            asks_left: 0,
            again: None,
            resumed_from: None,
            near_limit: signal(SignalKind::user_defined1())?,
            asked: signal(SignalKind::user_defined2())?,
            terminate: signal(SignalKind::terminate())?,
            folder,
            place,
        };
        // What previous starts have written is known.
        let before = lead.metrics.fresh()?;
        let before = before.iter().map(|record| record.samples_applied);
        lead.applied_before = before.max().unwrap_or_default();
        lead.events.fresh()?;
        lead.again = (lead.start.restarts > 0).then_some(Duration::ZERO);
        lead.resumed_from = lead.newest_snapshot();
        Ok(lead)
    }

    async fn follow(&mut self) -> Why {
        let config = &self.place.config;
        let groups = config.cluster.groups.len();
        let out = Box::new(std::io::stdout());
        let mut progress = Progress::new(groups, config.train.samples, false, out);
        let why = self.follow_with(&mut progress).await;
        progress.finish();
        why
    }

    async fn follow_with(&mut self, progress: &mut Progress) -> Why {
        let mut stopping: Option<Stopping> = None;
        loop {
            if let Some(why) = self.look(progress).await {
                return why;
            }
            if stopping.is_none() {
                self.hand_in_again(progress);
            }
            let ends = match stopping.take_if(|stopping| self.is_stopped(stopping, progress)) {
                Some(stopped) => return stopped.why,
                None if stopping.is_some() => None,
                None => self.has_no_one(progress),
            };
            let why = match ends {
                Some(Why::NodesLost) => Why::NodesLost,
                Some(why) => return why,
                None => tokio::select! {
                    _ = self.near_limit.recv() => Why::TimeIsUp,
                    _ = self.asked.recv() => Why::Cancelled,
                    _ = self.terminate.recv() => Why::Ended,
                    () = sleep(PAUSE) => continue,
                },
            };
            match &mut stopping {
                Some(stopping) => stopping.hear(why, self.clock.elapsed()),
                none => *none = Some(self.stop(why, progress).await),
            }
        }
    }

    /// What has happened; why the run is over, if it is.
    async fn look(&mut self, progress: &mut Progress) -> Option<Why> {
        // What cannot be read now is read with the next look.
        let records = self.metrics.fresh().unwrap_or_default();
        for record in &records {
            self.applied = self.applied.max(record.samples_applied);
            progress.record(record);
        }
        if let Some(text) = self.board.take(&records) {
            progress.message(&text);
        }
        for event in self.events.fresh().unwrap_or_default() {
            if event.is_shown() {
                progress.message(&event.text);
            }
        }
        if let Some(text) = self.rotation.look() {
            progress.message(&text);
        }
        if let Some(failure) = gave_up::read(&self.place.path, self.start) {
            return Some(Why::Failed(failure));
        }
        match self.ask().await {
            Some(status) => {
                self.heard = self.clock.elapsed();
                let sizes = &self.place.config.cluster.groups;
                if let Some(text) = self.joining.hear(&status, sizes, self.heard) {
                    progress.message(&text);
                }
                let failed = !status.failure.is_empty();
                let failed = failed.then(|| Failure::of_status(&status));
                self.status = Some(status);
                if let Some(failure) = failed {
                    return Some(Why::Failed(failure));
                }
            }
            None => {
                let lease = Duration::from_millis(self.place.config.liveness.lease_ms);
                let patience = match self.status {
                    Some(_) => (AWAY_LEASES * lease).max(PAUSE),
                    None => COMING,
                };
                if self.clock.elapsed() - self.heard >= patience {
                    let text = format!(
                        "no coordinator has answered for {patience:?}; the logs of the servers in {} say why",
                        self.folder.file("logs").display()
                    );
                    return Some(Why::Failed(Failure::of_run(text)));
                }
            }
        }
        let done = self.applied >= self.place.config.train.samples;
        (done && self.all_are_gone()).then_some(Why::Completed)
    }

    /// Why the run cannot go on: its servers have ended, or no group is left.
    fn has_no_one(&mut self, progress: &mut Progress) -> Option<Why> {
        let fails = |text: String| Some(Why::Failed(Failure::of_run(text)));
        let log = self.log();
        match self.ended_steps(|text| progress.message(text)) {
            // A step ends a moment before or after its component.
            Ok(ended) if ended > 0 => self.asks_left = ASKS,
            Ok(_) => {}
            Err(error) => return fails(format!("{error:#}")),
        }
        if self.asks_left > 0 {
            self.asks_left -= 1;
            if self.asks_left.is_multiple_of(ASK_EVERY) && self.lost_component(progress) {
                return Some(Why::NodesLost);
            }
        }
        let now = self.clock.elapsed();
        if !self.steps.servers_are_over() {
            self.served = now;
        }
        // They also end because the job does, of which the lead hears at about the same time.
        if now - self.served >= SILENT {
            return fails(format!(
                "the servers have ended; {} says why",
                log.display()
            ));
        }
        if !self.all_have_left() {
            self.some_stayed = now;
        }
        if !self.steps.groups_are_over() || self.has_live_group() {
            self.some_lived = now;
        }
        if now - self.some_stayed >= LEFT_FOR {
            // A run whose budget was applied before this start has only its end yet to come.
            if self.applied_before >= self.place.config.train.samples {
                return Some(Why::Completed);
            }
            return fails("every group has left before train.samples were applied; `tradewind slurm submit --resume` goes on from the last snapshot".into());
        }
        if now - self.some_lived >= STUCK {
            return fails(format!(
                "no group is left, since {STUCK:?}; {} says why; `tradewind slurm submit --resume` goes on from the last snapshot",
                log.display()
            ));
        }
        None
    }

    /// Where the tasks of the steps say what has become of them.
    fn log(&self) -> PathBuf {
        let log = format!("logs/slurm-{}.log", self.start.job);
        self.folder.file(&log)
    }

    /// How many steps have ended since the last look; what has failed is said.
    fn ended_steps(&mut self, mut say: impl FnMut(&str)) -> anyhow::Result<usize> {
        let log = self.log();
        let ended = self.steps.fresh().context("the steps of the job")?;
        let texts = ended.iter().filter_map(|end| end.text(&log));
        texts.for_each(|text| say(&text));
        Ok(ended.len())
    }

    /// Whether Slurm has put another component back into the queue while this one runs on, thanks to
    /// `--no-kill`. As soon as there are nodes it starts the whole job again; a batch node where it still
    /// runs is drained then ("Duplicate jobid"), and the job is held.
    fn lost_component(&self, progress: &mut Progress) -> bool {
        match client::queue(&[self.start.job]) {
            Ok(rows) => rows.iter().any(|row| row.state == "PENDING"),
            Err(error) => {
                progress.message(&format!(
                    "cannot ask for the components of the job: {error:#}"
                ));
                false
            }
        }
    }

    /// What it shows, as it is in the folder now: it is renewed there while the run goes on.
    fn access(&self) -> anyhow::Result<Access> {
        self.place.access()
    }

    async fn ask(&self) -> Option<StatusReply> {
        let there = read_address(&self.place.fleet).ok()??;
        let access = self.access().ok()?;
        let asked = access.status(&there.address, &self.place.config.name);
        timeout(ANSWER, asked).await.ok()?.ok()
    }

    /// Whether groups were there and are in one of these states now.
    fn all_are(&self, states: &[&str]) -> bool {
        let groups = self.status.iter().flat_map(|status| &status.groups);
        let mut groups = groups.peekable();
        groups.peek().is_some() && groups.all(|group| states.contains(&group.state.as_str()))
    }

    fn has_live_group(&self) -> bool {
        let mut groups = self.status.iter().flat_map(|status| &status.groups);
        groups.any(|group| group.state == "live")
    }

    fn all_have_left(&self) -> bool {
        self.all_are(&["left"])
    }

    /// Whether nobody is there any more; a group whose nodes are lost is dead and cannot leave.
    fn all_are_gone(&self) -> bool {
        self.all_are(&["left", "dead"])
    }
}
