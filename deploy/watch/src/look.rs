//! What a run looks like at a moment: one value, which the page and the terminal show.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use tradewind_common::choice::Choices;
use tradewind_common::loss::Loss;
use tradewind_common::record::{Gpu, Measure};
use tradewind_common::staleness::StalenessBound;
use tradewind_config::Config;
use tradewind_launch::ProcessRow;

use crate::curve::{COMPUTING, Times};
use crate::history::{GroupHistory, Ledger};
use crate::reader::Records;
use crate::standing::{self, FleetRun, Snapshot, Standing};
use crate::traffic::{BytesPerSecond, Traffic};
use crate::words::percent;

/// Whoever has made no exchange for so many of its steps is silent.
const SILENT_STEPS: f64 = 5.0;

/// But for so many seconds at least.
const SILENT_SECONDS: f64 = 10.0;

/// How a run fares, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RunState {
    /// Processes start, and groups form.
    Starting,
    Training,
    /// It trains, or should, but no exchange has ended for long.
    Silent,
    /// The budget is applied, or somebody ends it.
    Ending,
    Completed,
    Failed,
    Interrupted,
    /// It has not ended, but nobody keeps it going.
    Abandoned,
    /// Servers of many runs.
    Fleet,
}

impl RunState {
    /// The word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Training => "training",
            Self::Silent => "silent",
            Self::Ending => "ending",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::Abandoned => "abandoned",
            Self::Fleet => "fleet",
        }
    }

    pub(crate) fn tone(self) -> Tone {
        match self {
            Self::Starting | Self::Training | Self::Ending | Self::Fleet => Tone::Busy,
            Self::Completed => Tone::Good,
            Self::Silent | Self::Interrupted => Tone::Warn,
            Self::Failed | Self::Abandoned => Tone::Bad,
        }
    }
}

/// Whether something is as it should be: colours follow from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tone {
    #[default]
    Plain,
    Good,
    Busy,
    Warn,
    Bad,
}

/// What a group does, in words, as far as it can be told.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Doing {
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

impl Doing {
    fn new(text: impl Into<String>, tone: Tone) -> Self {
        let text = text.into();
        Self { text, tone }
    }
}

/// What of a run does not change while it goes on.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Facts {
    pub(crate) name: String,
    pub(crate) folder: String,
    /// Ranks of each group, as configured.
    pub(crate) group_sizes: Vec<u32>,
    /// The budget, in samples.
    pub(crate) budget: u64,
    /// How far the fastest live group may be ahead of the slowest; `null` where that has no bound.
    pub(crate) staleness_bound: Option<u64>,
    /// `train.consistency` and the optimizer, in words.
    pub(crate) how: String,
    #[serde(skip)]
    pub(crate) is_fleet: bool,
}

impl Facts {
    pub(crate) fn new(config: &Config, folder: String, is_fleet: bool) -> Self {
        let consistency = config.train.consistency;
        let staleness_bound = match consistency.bound() {
            StalenessBound::Finite(bound) => Some(bound),
            StalenessBound::Unbounded => None,
        };
        let counted = |n: u32, thing: &str| format!("{n} {thing}{}", if n == 1 { "" } else { "s" });
        Self {
            name: config.name.to_string(),
            folder,
            group_sizes: config.cluster.groups.clone(),
            budget: config.train.samples,
            staleness_bound,
            how: format!(
                "{}, {}, {}, {}",
                consistency.definition().name,
                counted(config.cluster.groups.len() as u32, "group"),
                counted(config.world_size(), "rank"),
                counted(config.cluster.servers, "server"),
            ),
            is_fleet,
        }
    }
}

/// What a run looks like.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Look {
    #[serde(flatten)]
    pub(crate) facts: Facts,
    pub(crate) state: RunState,
    pub(crate) tone: Tone,
    /// The same in a sentence, with what to do about it.
    pub(crate) sentence: String,
    /// Nothing will change any more, unless it is resumed.
    pub(crate) over: bool,
    /// When this was so, and times below: seconds since the Unix epoch.
    pub(crate) now: f64,
    pub(crate) begun: Option<f64>,
    pub(crate) latest: Option<f64>,
    pub(crate) samples: u64,
    pub(crate) updates: u64,
    pub(crate) samples_per_second: Option<f64>,
    pub(crate) seconds_left: Option<f64>,
    /// Mean of the last 32 exchanges, of whatever groups.
    pub(crate) loss: Option<f64>,
    /// On the held-out split, once it is evaluated.
    pub(crate) metric: Option<Measure>,
    pub(crate) baselines: Vec<Measure>,
    /// On the validation split, the latest.
    pub(crate) validation: Option<Measure>,
    /// Part of all rank-seconds in which gradients were computed that were applied.
    pub(crate) goodput: Option<f64>,
    pub(crate) time: Vec<TimePart>,
    pub(crate) groups: Vec<GroupRow>,
    pub(crate) servers: Vec<ServerRow>,
    pub(crate) shards: Vec<ShardRow>,
    /// Exchanges by delay, from 0 on; the last of 256 has all longer ones.
    pub(crate) delays: Vec<u64>,
    pub(crate) coordinator: String,
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) lost: Option<Loss>,
    /// Of a fleet.
    pub(crate) runs: Vec<FleetRun>,
    /// Jobs of Slurm that wait.
    pub(crate) jobs: Vec<String>,
    pub(crate) events: u64,
    /// Rows of `metrics.jsonl` that were read.
    pub(crate) rows: u64,
}

/// A part of all rank-seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct TimePart {
    pub(crate) what: &'static str,
    pub(crate) rank_seconds: f64,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct GroupRow {
    pub(crate) group: u32,
    /// `live`, `gathering` or another word of the coordinator's; `null` if nobody can be asked.
    pub(crate) state: Option<String>,
    /// Ranks as configured.
    pub(crate) size: u32,
    pub(crate) ranks: Vec<RankRow>,
    pub(crate) clock: Option<u64>,
    pub(crate) lag: Option<u64>,
    pub(crate) delay: Option<u64>,
    pub(crate) loss: Option<f64>,
    pub(crate) samples_per_second: Option<f64>,
    /// From one exchange to the next, lately.
    pub(crate) step_seconds: Option<f64>,
    /// End of its last exchange.
    pub(crate) latest: Option<f64>,
    /// What it does now.
    pub(crate) does: Doing,
    /// Seconds of its last exchanges.
    pub(crate) times: Option<Times>,
    /// It should have made an exchange long ago.
    pub(crate) silent: bool,
    pub(crate) gpu: Option<Gpu>,
    pub(crate) incarnation: Option<u64>,
}

/// A rank of a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct RankRow {
    /// Its number in the group.
    pub(crate) rank: u32,
    pub(crate) clock: Option<u64>,
    pub(crate) lease_left_ms: Option<u64>,
    pub(crate) host: Option<String>,
    pub(crate) pid: Option<u32>,
    /// 1, and one more for each process that was started in its place.
    pub(crate) life: Option<u64>,
}

/// A server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ServerRow {
    pub(crate) server: u32,
    /// `up`, `gone` or `ended`.
    pub(crate) state: &'static str,
    pub(crate) life: Option<u64>,
    pub(crate) address: Option<String>,
    pub(crate) lease_left_ms: Option<u64>,
    /// Shards that it answers for, and those it keeps a copy of.
    pub(crate) primary_of: Vec<u32>,
    pub(crate) copy_of: Vec<u32>,
    /// To and from the shards that it answers for.
    pub(crate) traffic: Option<BytesPerSecond>,
    /// Main memory of its process, where that is on this machine.
    pub(crate) memory_bytes: Option<u64>,
}

/// A shard.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ShardRow {
    pub(crate) shard: u32,
    pub(crate) primary: Option<u32>,
    pub(crate) copies: Vec<u32>,
    /// Copies that are not whole yet.
    pub(crate) filling: Vec<u32>,
    /// Whom it waits for while it has no primary.
    pub(crate) waits_for: Vec<String>,
    pub(crate) bytes: Option<u64>,
    pub(crate) version_min: Option<u64>,
    pub(crate) version_max: Option<u64>,
    pub(crate) traffic: Option<BytesPerSecond>,
}

/// What a look is made from.
pub(crate) struct Seen<'a> {
    pub(crate) facts: &'a Facts,
    pub(crate) records: &'a Records,
    /// `None` until it has been asked for.
    pub(crate) standing: Option<&'a Standing>,
    pub(crate) traffic: &'a Traffic,
    pub(crate) processes: &'a [ProcessRow],
    /// Main memory of servers.
    pub(crate) memory: &'a BTreeMap<u32, u64>,
    /// Seconds since the Unix epoch.
    pub(crate) now: f64,
}

impl Seen<'_> {
    /// What the run looks like.
    pub(crate) fn look(&self) -> Look {
        let Records {
            history,
            timeline,
            validations,
            evaluation,
            end,
        } = self.records;
        let ledger = history.ledger(|group| self.size(group));
        let (state, sentence) = self.state();
        let over = end.is_some() || state == RunState::Abandoned;
        let rate = history.samples_per_second().filter(|_| !over);
        let left = self.facts.budget.saturating_sub(history.samples_applied);
        let groups = self.groups(over);
        let lost = self.standing.and_then(|standing| standing.lost);
        Look {
            facts: self.facts.clone(),
            state,
            tone: state.tone(),
            sentence,
            over,
            now: self.now,
            begun: history.begun(),
            latest: history.latest,
            samples: history.samples_applied,
            updates: history.updates,
            samples_per_second: rate,
            seconds_left: rate.map(|rate| left as f64 / rate),
            loss: history.loss(),
            metric: evaluation
                .as_ref()
                .map(|evaluation| evaluation.metric.clone()),
            baselines: evaluation
                .as_ref()
                .map_or(Vec::new(), |of| of.baselines.clone()),
            validation: match (validations.last(), evaluation) {
                (Some(validation), _) => Some(validation.measure.clone()),
                (None, evaluation) => evaluation.as_ref().map(|of| of.validation.clone()),
            },
            goodput: ledger.goodput(),
            time: parts(&ledger),
            servers: self.servers(),
            shards: self.shards(),
            groups,
            delays: history.delays().to_vec(),
            coordinator: self.coordinator(),
            snapshot: self.standing.and_then(|standing| standing.snapshot.clone()),
            lost: end.as_ref().map_or(lost, |end| end.faults.lost),
            runs: self
                .standing
                .map_or(Vec::new(), |standing| standing.runs.clone()),
            jobs: self.standing.map_or(Vec::new(), crate::table::jobs),
            events: timeline.count(),
            rows: history.rows,
        }
    }

    /// Ranks of a group.
    fn size(&self, group: u32) -> u32 {
        let standing = self
            .standing
            .into_iter()
            .flat_map(|standing| &standing.groups);
        let told = standing
            .filter(|row| row.group == group)
            .map(|row| row.size)
            .next();
        let configured = self.facts.group_sizes.get(group as usize).copied();
        told.or(configured).unwrap_or(1)
    }

    fn state(&self) -> (RunState, String) {
        let Records { history, end, .. } = self.records;
        if let Some(end) = end {
            return ended(end);
        }
        let Some(standing) = self.standing else {
            return match history.latest {
                None => (RunState::Starting, "its folder is read".into()),
                Some(_) => (RunState::Training, "its servers are asked".into()),
            };
        };
        if standing.abandoned {
            let text = match standing.is_slurm {
                false => {
                    "its launcher is gone; `tradewind run CONFIG --resume` goes on from a snapshot"
                        .into()
                }
                true => tradewind_launch::slurm::abandoned(standing.is_fleet).to_string(),
            };
            return (RunState::Abandoned, text);
        }
        if self.facts.is_fleet {
            return (
                RunState::Fleet,
                format!("{} runs are on it", standing.runs.len()),
            );
        }
        if let Some(failure) = &standing.failure {
            return (RunState::Failed, failure.clone());
        }
        let done = history.samples_applied >= self.facts.budget;
        if standing.ending.is_some() || done {
            let text = match done {
                true => "the budget is applied; what was trained is evaluated",
                false => "groups leave, a last snapshot is taken, and the summary is written",
            };
            return (RunState::Ending, text.into());
        }
        let Some(latest) = history.latest else {
            let text = match standing.phase.as_deref() {
                Some("ready") => "the first steps are under way",
                Some("restoring") => "servers read the newest snapshot",
                Some("creating") => "the first values are made",
                _ => "processes start, and groups form",
            };
            return (RunState::Starting, text.into());
        };
        let steps = history
            .groups()
            .values()
            .filter_map(GroupHistory::step_seconds);
        let step = steps.reduce(f64::min);
        let silent = self.now - latest;
        if silent > patience(step) {
            let usual = step.map(|step| format!("; one takes {} lately", seconds(step)));
            let text = format!(
                "no exchange has ended for {}{}",
                seconds(silent),
                usual.unwrap_or_default()
            );
            return (RunState::Silent, text);
        }
        let quiet = self
            .groups(false)
            .iter()
            .filter(|group| group.silent)
            .count();
        let text = match quiet {
            0 => String::new(),
            1 => "one group is silent".into(),
            n => format!("{n} groups are silent"),
        };
        (RunState::Training, text)
    }

    fn groups(&self, over: bool) -> Vec<GroupRow> {
        let standing: BTreeMap<u32, &standing::Group> = self
            .standing
            .into_iter()
            .flat_map(|standing| &standing.groups)
            .map(|group| (group.group, group))
            .collect();
        let histories = self.records.history.groups();
        let configured = 0..self.facts.group_sizes.len() as u32;
        let known: BTreeSet<u32> = configured
            .filter(|_| !self.facts.is_fleet)
            .chain(standing.keys().copied())
            .chain(histories.keys().copied())
            .collect();
        let row = |group: u32| {
            let told = standing.get(&group).copied();
            let history = histories.get(&group);
            let last = history.map(GroupHistory::last);
            let step_seconds = history.and_then(GroupHistory::step_seconds);
            let since = last.map(|last| self.now - last.wall);
            let silent = since.filter(|since| !over && *since > patience(step_seconds));
            let times = history.map(GroupHistory::recent_times);
            let state = told.map(|told| told.state.as_str());
            GroupRow {
                group,
                state: told.map(|told| told.state.clone()),
                size: self.size(group),
                ranks: self.ranks(group, told),
                clock: told
                    .map(|told| told.clock)
                    .or(last.map(|last| last.clock + 1)),
                lag: last.map(|last| last.lag),
                delay: last.and_then(|last| last.delay),
                loss: history.and_then(GroupHistory::loss),
                samples_per_second: history.and_then(GroupHistory::samples_per_second),
                step_seconds,
                latest: last.map(|last| last.wall),
                does: match over {
                    true => Doing::new("ended", Tone::Plain),
                    false => doing(state, silent, times.as_ref()),
                },
                times,
                silent: silent.is_some(),
                gpu: history.and_then(GroupHistory::gpu),
                incarnation: told.map(|told| told.incarnation),
            }
        };
        known.into_iter().map(row).collect()
    }

    fn ranks(&self, group: u32, told: Option<&standing::Group>) -> Vec<RankRow> {
        let mut rows: BTreeMap<u32, RankRow> = BTreeMap::new();
        let row = |rank: u32| RankRow {
            rank,
            clock: None,
            lease_left_ms: None,
            host: None,
            pid: None,
            life: None,
        };
        for process in self.processes {
            let (true, Some(rank)) = (process.group == Some(group), process.group_rank) else {
                continue;
            };
            let own = rows.entry(rank).or_insert_with(|| row(rank));
            own.host = Some(process.address.clone());
            own.pid = Some(process.pid);
            own.life = Some(process.life);
        }
        for rank in told.into_iter().flat_map(|told| &told.ranks) {
            let own = rows.entry(rank.rank).or_insert_with(|| row(rank.rank));
            own.clock = Some(rank.clock);
            own.lease_left_ms = Some(rank.lease_left_ms);
        }
        rows.into_values().collect()
    }

    fn servers(&self) -> Vec<ServerRow> {
        let mut rows: BTreeMap<u32, ServerRow> = BTreeMap::new();
        let row = |server: u32| ServerRow {
            server,
            state: "gone",
            life: None,
            address: None,
            lease_left_ms: None,
            primary_of: Vec::new(),
            copy_of: Vec::new(),
            traffic: None,
            memory_bytes: self.memory.get(&server).copied(),
        };
        let over = self.records.end.is_some();
        for process in self
            .processes
            .iter()
            .filter(|process| process.role == "server")
        {
            let own = rows
                .entry(process.index)
                .or_insert_with(|| row(process.index));
            own.address = Some(process.address.clone());
            own.life = Some(process.life);
            own.state = if over { "ended" } else { "gone" };
        }
        for told in self
            .standing
            .into_iter()
            .flat_map(|standing| &standing.servers)
        {
            let own = rows.entry(told.server).or_insert_with(|| row(told.server));
            own.address = Some(told.address.clone());
            own.life = Some(told.incarnation);
            own.state = match (over, told.alive) {
                (true, _) => "ended",
                (false, true) => "up",
                (false, false) => "gone",
            };
            own.lease_left_ms = told.lease_left_ms.filter(|_| told.alive);
        }
        for shard in self.shards() {
            for copy in shard.copies.iter().chain(&shard.filling) {
                let own = rows.entry(*copy).or_insert_with(|| row(*copy));
                own.copy_of.push(shard.shard);
            }
            let Some(primary) = shard.primary else {
                continue;
            };
            let own = rows.entry(primary).or_insert_with(|| row(primary));
            own.primary_of.push(shard.shard);
            if let Some(more) = shard.traffic {
                let sum = own.traffic.unwrap_or_default();
                own.traffic = Some(BytesPerSecond {
                    pushed: sum.pushed + more.pushed,
                    pulled: sum.pulled + more.pulled,
                });
            }
        }
        rows.into_values().collect()
    }

    fn shards(&self) -> Vec<ShardRow> {
        if let Some(end) = &self.records.end {
            let shards = end.shards.iter().zip(0..);
            let row = |(told, shard): (&crate::reader::EndShard, u32)| ShardRow {
                shard,
                primary: Some(told.server),
                copies: told.copies.clone(),
                filling: Vec::new(),
                waits_for: Vec::new(),
                bytes: Some(told.bytes),
                version_min: Some(told.version_min),
                version_max: Some(told.version_max),
                traffic: None,
            };
            return shards.map(row).collect();
        }
        let shards = self
            .standing
            .into_iter()
            .flat_map(|standing| &standing.shards);
        let row = |told: &standing::Shard| ShardRow {
            shard: told.shard,
            primary: told.primary,
            copies: told
                .copies
                .iter()
                .filter(|copy| copy.full)
                .map(|copy| copy.server)
                .collect(),
            filling: told
                .copies
                .iter()
                .filter(|copy| !copy.full)
                .map(|copy| copy.server)
                .collect(),
            waits_for: told.waits_for.clone(),
            bytes: told.bytes,
            version_min: told.version_min,
            version_max: told.version_max,
            traffic: self.traffic.of(told.shard),
        };
        shards.map(row).collect()
    }

    /// Where the coordinator is, or why nobody answers.
    fn coordinator(&self) -> String {
        let Some(standing) = self.standing.filter(|_| self.records.end.is_none()) else {
            return String::new();
        };
        let there = &standing.coordinator;
        let which = match (there.incarnation, &there.address) {
            (Some(life), Some(address)) => format!("coordinator {life} at {address}"),
            _ => "the coordinator".to_owned(),
        };
        match &there.away {
            Some(away) => format!("{which} does not answer at the moment: {away}"),
            None => which,
        }
    }
}

/// How a run has ended.
fn ended(end: &crate::reader::End) -> (RunState, String) {
    let state = match end.status.as_str() {
        "completed" => RunState::Completed,
        "interrupted" => RunState::Interrupted,
        _ => RunState::Failed,
    };
    let lost = end.faults.lost.filter(|lost| !lost.is_none());
    let lost = lost.map(|lost| format!("{lost} that were acknowledged are lost"));
    let why = end.failure.as_ref().map(|cause| cause.reason.clone());
    let text = [why, lost].into_iter().flatten().collect::<Vec<_>>();
    (state, text.join("; "))
}

/// After how many seconds without an exchange somebody is silent whose steps take so long.
fn patience(step_seconds: Option<f64>) -> f64 {
    step_seconds.map_or(SILENT_SECONDS, |step| {
        (SILENT_STEPS * step).max(SILENT_SECONDS)
    })
}

/// What a group does that the coordinator calls `state`, has been silent for so many seconds, and spent the time of
/// its last exchanges so.
fn doing(state: Option<&str>, silent: Option<f64>, times: Option<&Times>) -> Doing {
    match (state, silent, times) {
        (Some(state), ..) if state != "live" => Doing::new(state, Tone::Warn),
        (_, Some(silent), _) => Doing::new(format!("silent for {}", seconds(silent)), Tone::Bad),
        (Some(_), None, None) => Doing::new("first step", Tone::Plain),
        (None, None, None) => Doing::new("not here yet", Tone::Plain),
        (_, None, Some(times)) => {
            let (what, most) = times.most();
            let tone = match what == COMPUTING {
                true => Tone::Good,
                false => Tone::Plain,
            };
            let part = most / times.sum().max(f64::MIN_POSITIVE);
            Doing::new(format!("{what} {}", percent(part)), tone)
        }
    }
}

/// The ledger as it is shown, in the order of the page.
pub(crate) fn parts(ledger: &Ledger) -> Vec<TimePart> {
    let Ledger {
        applied,
        for_nothing,
        away,
    } = *ledger;
    let others = [("for nothing", for_nothing), ("no step", away)];
    let part = |(what, rank_seconds)| TimePart { what, rank_seconds };
    applied
        .parts()
        .into_iter()
        .chain(others)
        .map(part)
        .collect()
}

/// Seconds as people read them.
pub(crate) fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 0.0095 => format!("{:.1} ms", 1000.0 * s),
        s if s < 0.995 => format!("{:.0} ms", 1000.0 * s),
        s if s < 9.95 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests;
