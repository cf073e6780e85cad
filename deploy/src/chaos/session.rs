//! Faults and watching while a run goes on, on a thread of their own: what stands in front of the
//! servers must not wait for the launcher.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tradewind_common::RunId;
use tradewind_common::holders::Holders;
use tradewind_proto::v1::StatusReply;
use tradewind_server::events::EventLog;

use super::ask::Ask;
use super::inject::Injector;
use super::proxy::{Front, Net};
use super::schedule::Fault;
use super::shared::Shared;
use super::watch::{Looked, Watch, differs, unhealthy};
use crate::clock::{Clock, wall};
use crate::cluster::{Access, holding};
use crate::launch::Roster;
use crate::lines::Metrics;

/// Pause between two rounds of questions.
const ROUND: Duration = Duration::from_millis(200);

/// How long a run may take to recover from the last fault, and copies to become equal, seconds.
const RECOVERS: f64 = 90.0;
const SETTLES: f64 = 30.0;

/// How long no group at all may finish a clock, seconds.
const STALLS: f64 = 60.0;

/// What happens in a run, and for how long.
pub(crate) struct Plan {
    pub(crate) faults: Box<dyn Iterator<Item = Fault> + Send>,
    /// Seconds; `None` until the budget is applied.
    pub(crate) lasts: Option<f64>,
    pub(crate) may_restore: bool,
}

/// What the thread is told when the run has begun.
pub(super) struct Begun {
    pub(super) access: Access,
    pub(super) folder: PathBuf,
    pub(super) run: RunId,
    pub(super) replication: u32,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) violations: Vec<String>,
    pub(crate) looked: Looked,
    /// From when to when faults could happen, seconds since the Unix epoch.
    pub(crate) from: f64,
    pub(crate) to: f64,
}

/// Serves the fronts; when the run has begun, goes along with it.
pub(super) async fn session(
    plan: Plan,
    (roster, net, shared): (Roster, Net, Shared),
    fronts: Vec<Front>,
    begun: oneshot::Receiver<Begun>,
) -> Outcome {
    for front in fronts {
        tokio::spawn(net.clone().serve(front));
    }
    let Ok(begun) = begun.await else {
        return Outcome::default();
    };
    let access = &begun.access;
    let ask = || Ask::new(access.clone(), roster.clone(), begun.run.clone());
    let log = match EventLog::open(&begun.folder) {
        Ok(log) => log,
        Err(error) => {
            return Outcome {
                violations: vec![format!("events cannot be written: {error}")],
                ..Outcome::default()
            };
        }
    };
    let injector = Injector {
        roster: roster.clone(),
        net: net.clone(),
        ask: ask(),
        log,
        shared: shared.clone(),
        may_restore: plan.may_restore,
        suffering: BTreeMap::new(),
        active: JoinSet::new(),
    };
    let mut watching = Watching {
        watch: Watch::new(begun.replication),
        ask: ask(),
        metrics: Metrics::new(begun.folder.join("metrics.jsonl")),
        heard: Clock::start(),
        replication: begun.replication,
    };
    let mut outcome = Outcome::default();
    let mut asking = ask();
    let faults = faults(
        injector,
        &mut asking,
        plan,
        &shared,
        &mut outcome,
        begun.replication,
    );
    let in_order = {
        let mut over = std::pin::pin!(shared.over());
        let watched = async {
            loop {
                watching.round().await;
                sleep(ROUND).await;
            }
        };
        tokio::select! {
            in_order = &mut over => in_order,
            never = async { tokio::join!(faults, watched).1 } => never,
        }
    };
    if outcome.to == 0.0 {
        outcome.to = wall();
    }
    if in_order {
        watching.last().await;
    }
    outcome
        .violations
        .extend_from_slice(watching.watch.violations());
    outcome.looked = watching.watch.looked();
    outcome
}

/// All faults of a plan, from when every group trains; then, if the plan says how long it lasts,
/// the run recovers, and training ends.
async fn faults(
    mut injector: Injector,
    ask: &mut Ask,
    plan: Plan,
    shared: &Shared,
    outcome: &mut Outcome,
    replication: u32,
) {
    while recovered(ask, replication).await.is_err() {
        sleep(ROUND).await;
    }
    let clock = Clock::start();
    outcome.from = wall();
    injector.run(clock, plan.faults, plan.lasts).await;
    let Some(lasts) = plan.lasts else { return };
    let left = lasts - clock.elapsed().as_secs_f64();
    sleep(Duration::from_secs_f64(left.max(0.0))).await;
    outcome.to = wall();
    let clock = Clock::start();
    loop {
        match recovered(ask, replication).await {
            Ok(()) => break,
            Err(why) if clock.elapsed().as_secs_f64() > RECOVERS => {
                outcome.violations.push(format!(
                    "{RECOVERS} s after the last fault the run has not recovered: {why}"
                ));
                break;
            }
            Err(_) => sleep(ROUND).await,
        }
    }
    shared.set_enough();
}

/// Whether all is as it was before the faults; if not, why.
async fn recovered(ask: &mut Ask, replication: u32) -> Result<(), String> {
    let Some((_, told)) = ask.coordinator().await else {
        return Err("the coordinator does not answer".into());
    };
    if told.phase != "ready" || told.groups.is_empty() {
        return Err(format!("the run is {}", told.phase));
    }
    match unhealthy(&told, &holders(&told), replication) {
        Some(why) => Err(why),
        None => Ok(()),
    }
}

fn holders(told: &StatusReply) -> Vec<Holders> {
    holding(told).map_or_else(|_| Vec::new(), |holding| holding.holders)
}

/// Asks, and hands the answers to the watch.
struct Watching {
    watch: Watch,
    ask: Ask,
    metrics: Metrics,
    /// When a group has last finished a clock.
    heard: Clock,
    replication: u32,
}

impl Watching {
    async fn round(&mut self) {
        self.read();
        if self.heard.elapsed().as_secs_f64() > STALLS {
            self.watch
                .violated(format!("no group has finished a clock for {STALLS} s"));
        }
        let Some(before) = self.told().await else {
            return;
        };
        let seen = self.ask.shards(before.len() as u32).await;
        if let Some(after) = self.told().await {
            self.watch.handle_round(&before, &seen, &after);
        }
    }

    fn read(&mut self) {
        match self.metrics.fresh() {
            Ok(records) => {
                if !records.is_empty() {
                    self.heard = Clock::start();
                }
                records.iter().for_each(|r| self.watch.handle_clock(r));
            }
            Err(error) => self
                .watch
                .violated(format!("metrics cannot be read: {error}")),
        }
    }

    /// Who holds what, as the present coordinator says.
    async fn told(&mut self) -> Option<Vec<Holders>> {
        let told = self.ask.coordinators().await;
        for (_, status) in &told {
            self.watch.handle_status(status);
        }
        let present = told
            .into_iter()
            .max_by_key(|(_, status)| status.coordinator);
        let (_, status) = present?;
        (status.phase == "ready").then(|| holders(&status))
    }

    /// Nobody pushes any more: all holders of a shard come to have the same.
    async fn last(&mut self) {
        let clock = Clock::start();
        loop {
            self.round().await;
            let why = match self.told().await {
                None => Some("the coordinator does not answer".into()),
                Some(holders) => {
                    let seen = self.ask.shards(holders.len() as u32).await;
                    let full = |h: &Holders| h.copies.iter().filter(|copy| copy.full).count();
                    let lacks = holders
                        .iter()
                        .any(|h| full(h) + 1 < self.replication as usize);
                    let lacks = lacks.then(|| "a shard lacks a full copy".to_owned());
                    lacks.or_else(|| differs(&holders, &seen))
                }
            };
            match why {
                None => return,
                Some(why) if clock.elapsed().as_secs_f64() > SETTLES => {
                    let what = format!("{SETTLES} s after the end of training: {why}");
                    return self.watch.violated(what);
                }
                Some(_) => sleep(ROUND).await,
            }
        }
    }
}
