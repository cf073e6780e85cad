//! Faults and watching while a run goes on, on a thread of their own: what stands in front of the
//! servers must not wait for the launcher.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tradewind_common::RunId;
use tradewind_common::holders::Holders;
use tradewind_proto::v1::StatusReply;
use tradewind_server::events::EventLog;

use super::ask::{Ask, Seen};
use super::inject::Injector;
use super::proxy::{Front, Net};
use super::schedule::Fault;
use super::shared::Shared;
use super::soak::{self, Soak, Soaked};
use super::victim::Known;
use super::watch::{HolderEvent, Looked, Restored, Round, Rules, Watch, differs, unhealthy};
use tradewind_folder::clock::{Clock, wall};
use tradewind_folder::cluster::{Access, holding};
use tradewind_folder::lines::{Lines, Metrics};
use tradewind_launch::{Member, Roster};

/// From one round of questions to the next.
const ROUND: Duration = Duration::from_millis(200);

/// How long a run may take to recover from the last fault, and copies to become equal, seconds.
const RECOVERS: f64 = 90.0;
const SETTLES: f64 = 30.0;

/// How long no group at all may finish a clock, seconds.
const STALLS: f64 = 60.0;

/// What happens in a run, and for how long.
pub struct FaultPlan {
    pub faults: Box<dyn Iterator<Item = Fault> + Send>,
    /// Seconds; `None` until the budget is applied.
    pub lasts: Option<f64>,
    /// Each fault waits until what the one before has done is mended; nothing may be lost then.
    pub one_at_a_time: bool,
}

/// What the thread is told when the run has begun.
pub(super) struct Begun {
    pub(super) access: Access,
    pub(super) folder: PathBuf,
    pub(super) run: RunId,
    pub(super) replication: u32,
    /// How long a silent holder of a shard is waited for, seconds.
    pub(super) patience: f64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct SessionOutcome {
    pub violations: Vec<String>,
    pub looked: Looked,
    pub restored: Vec<Restored>,
    pub soaked: Soaked,
    /// From when to when faults could happen, seconds since the Unix epoch.
    pub from: f64,
    pub to: f64,
}

/// Serves the fronts; when the run has begun, goes along with it.
pub(super) async fn session(
    plan: FaultPlan,
    (roster, net, shared): (Roster, Net, Shared),
    fronts: Vec<Front>,
    begun: oneshot::Receiver<Begun>,
) -> SessionOutcome {
    for front in fronts {
        tokio::spawn(net.clone().serve(front));
    }
    let Ok(begun) = begun.await else {
        return SessionOutcome::default();
    };
    let access = &begun.access;
    let ask = || Ask::new(access.clone(), roster.clone(), begun.run.clone());
    let log = match EventLog::open(&begun.folder) {
        Ok(log) => log,
        Err(error) => {
            return SessionOutcome {
                violations: vec![format!("events cannot be written: {error}")],
                ..SessionOutcome::default()
            };
        }
    };
    let injector = Injector {
        roster: roster.clone(),
        net: net.clone(),
        log,
        shared: shared.clone(),
        one_at_a_time: plan.one_at_a_time,
        active: JoinSet::new(),
        going_on: BTreeMap::new(),
        kills: BTreeMap::new(),
        well_since: None,
    };
    let rules = Rules {
        replication: begun.replication,
        one_at_a_time: plan.one_at_a_time,
        patience: begun.patience,
    };
    let mut watching = Watching {
        watch: Watch::new(rules),
        ask: ask(),
        roster: roster.clone(),
        shared: shared.clone(),
        run: begun.run.clone(),
        metrics: Metrics::new(begun.folder.join("metrics.jsonl")),
        events: Lines::new(begun.folder.join("events.jsonl")),
        heard: Clock::start(),
        replication: begun.replication,
    };
    let mut soak = Soak::default();
    let minutes = plan.lasts.map(|lasts| lasts / 60.0);
    let mut outcome = SessionOutcome::default();
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
                let clock = Clock::start();
                watching.round().await;
                sleep(ROUND.saturating_sub(clock.elapsed())).await;
            }
        };
        let soaked = soaks(&mut soak, &roster, &begun.folder, &shared, minutes);
        tokio::select! {
            in_order = &mut over => in_order,
            never = async { tokio::join!(faults, watched, soaked).1 } => never,
        }
    };
    if outcome.to == 0.0 {
        outcome.to = wall();
    }
    if in_order {
        watching.last().await;
    }
    watching.read();
    watching.watch.finish();
    outcome.soaked = soak.report();
    outcome
        .violations
        .extend_from_slice(watching.watch.violations());
    outcome.violations.extend(outcome.soaked.violations());
    outcome.looked = watching.watch.looked();
    outcome.restored = watching.watch.restored().to_vec();
    outcome
}

/// Looks at what processes use, again and again, and says a word every minute.
async fn soaks(
    soak: &mut Soak,
    roster: &Roster,
    folder: &std::path::Path,
    shared: &Shared,
    minutes: Option<f64>,
) {
    let clock = Clock::start();
    let mut told = 0;
    loop {
        let at = clock.elapsed().as_secs_f64();
        soak.look(at, roster, folder);
        let minute = (at / 60.0) as u64;
        if minute > told {
            told = minute;
            let of = minutes.map_or(String::new(), |minutes| format!(" of {minutes:.0}"));
            let (faults, _) = shared.faults();
            let faults = faults.len();
            let line = soak.line();
            shared.say(format!("minute {minute}{of}: {faults} faults; {line}"));
        }
        sleep(Duration::from_secs_f64(soak::EVERY)).await;
    }
}

/// All faults of a plan, from when every group trains; then, if the plan says how long it lasts,
/// the run recovers, and training ends.
async fn faults(
    mut injector: Injector,
    ask: &mut Ask,
    plan: FaultPlan,
    shared: &Shared,
    outcome: &mut SessionOutcome,
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
    roster: Roster,
    shared: Shared,
    run: RunId,
    metrics: Metrics,
    events: Lines<HolderEvent>,
    /// When a group has last finished a clock.
    heard: Clock,
    replication: u32,
}

/// What the present coordinator says.
struct Says {
    /// The server that hosts it.
    host: u32,
    holders: Vec<Holders>,
}

impl Watching {
    async fn round(&mut self) {
        self.read();
        if self.heard.elapsed().as_secs_f64() > STALLS {
            self.watch
                .violated(format!("no group has finished a clock for {STALLS} s"));
        }
        self.ask.spare(self.watch.stopped());
        let lives = self.lives();
        let began = wall();
        let before = self.told().await;
        let Some(before) = before else {
            return self.know(None, &[]);
        };
        let mut seen = self.ask.shards(before.holders.len() as u32).await;
        let after = self.told().await;
        // Whoever has died meanwhile may have answered before.
        let now = self.lives();
        seen.retain(|seen| {
            let server = seen.reply.server;
            now.contains_key(&server) && now.get(&server) == lives.get(&server)
        });
        self.watch.handle_processes(now, self.shared.silences());
        if let Some(after) = &after {
            self.watch.handle_round(Round {
                began,
                ended: wall(),
                before: &before.holders,
                after: &after.holders,
                host: after.host,
                seen: &seen,
            });
        }
        self.know(Some(after.map_or(before.host, |after| after.host)), &seen);
    }

    /// Which life of each server is there.
    fn lives(&self) -> BTreeMap<u32, u64> {
        let members = self.roster.members().into_iter();
        let server = |member| match member {
            Member::Server(server) => Some((server, self.roster.get(member)?.life)),
            Member::Rank { .. } => None,
        };
        members.filter_map(server).collect()
    }

    /// Whoever hurts others by what they are has to know who that is.
    fn know(&self, host: Option<u32>, seen: &[Seen]) {
        let before = self.shared.known();
        let mut primaries = before.primaries;
        let shards: BTreeSet<u32> = seen.iter().map(|seen| seen.shard).collect();
        for shard in shards {
            let of = |seen: &&Seen| seen.shard == shard && seen.reply.primary;
            let answering = seen.iter().filter(of);
            let newest = answering.max_by_key(|seen| seen.reply.generation);
            if primaries.len() <= shard as usize {
                primaries.resize(shard as usize + 1, None);
            }
            if let Some(newest) = newest {
                primaries[shard as usize] = Some(newest.reply.server);
            }
        }
        self.shared.set_known(Known {
            host: host.or(before.host),
            primaries,
            whole: host.is_some() && self.watch.is_whole(),
        });
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
        match self.events.fresh() {
            Ok(events) => {
                let run = self.run.as_str();
                let ours = |told: &&HolderEvent| told.run.as_deref().is_none_or(|of| of == run);
                let ours = events.iter().filter(ours);
                ours.for_each(|told| self.watch.handle_event(told));
            }
            Err(error) => self
                .watch
                .violated(format!("events cannot be read: {error}")),
        }
    }

    /// Who holds what, as the present coordinator says.
    async fn told(&mut self) -> Option<Says> {
        let told = self.ask.coordinators().await;
        for (_, status) in &told {
            self.watch.handle_status(status);
        }
        let present = told
            .into_iter()
            .max_by_key(|(_, status)| status.coordinator);
        let (host, status) = present?;
        (status.phase == "ready").then(|| Says {
            host,
            holders: holders(&status),
        })
    }

    /// Nobody pushes any more: all holders of a shard come to have the same.
    async fn last(&mut self) {
        let clock = Clock::start();
        loop {
            self.round().await;
            let why = match self.told().await {
                None => Some("the coordinator does not answer".into()),
                Some(Says { holders, .. }) => {
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
