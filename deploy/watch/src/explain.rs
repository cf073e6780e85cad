//! Where the time of a run went, in sentences, each with its figures, and which keys would help.

use std::collections::BTreeMap;

use tradewind_common::Compression;
use tradewind_common::spec::ConsistencySpec;
use tradewind_config::Config;
use tradewind_folder::found::FoundRun;

use crate::curve::{Point, Times};
use crate::history::{GroupHistory, Ledger};
use crate::look::{parts, seconds};
use crate::reader::{Reader, Records};

/// Parts of the time below this one are not worth a sentence.
const WORTH: f64 = 0.02;

/// A group whose steps take so many times as long as the fastest one's is slow, and not only now and then.
const SLOW: f64 = 1.2;

/// Where the time of a run went: a paragraph each.
///
/// # Errors
/// There is no exchange yet.
pub fn explain(place: FoundRun) -> anyhow::Result<Vec<String>> {
    let mut reader = Reader::new(place);
    reader.look();
    let told = Told::new(&reader.place().config, reader.records());
    match told {
        Some(told) => Ok(told.all()),
        None => {
            let run = &reader.place().config.name;
            anyhow::bail!("run {run} has made no exchange yet, so there is nothing to explain")
        }
    }
}

/// What sentences are made from.
struct Told<'a> {
    config: &'a Config,
    records: &'a Records,
    ledger: Ledger,
    /// By group: exchanges that were applied or not, and the seconds of those that were.
    groups: BTreeMap<u32, (f64, Times)>,
    ranks: u32,
}

impl<'a> Told<'a> {
    /// `None` without an exchange.
    fn new(config: &'a Config, records: &'a Records) -> Option<Self> {
        let size = |group: u32| {
            config
                .cluster
                .groups
                .get(group as usize)
                .copied()
                .unwrap_or(1)
        };
        let own = |history: &GroupHistory| {
            let points = history.curve.points().iter();
            let exchanges: u64 = points.clone().map(|point| point.exchanges).sum();
            let add = |sum: Times, point: &Point| sum.plus(&point.applied, 1.0);
            (exchanges as f64, points.fold(Times::default(), add))
        };
        let histories = records.history.groups();
        let groups: BTreeMap<_, _> = histories
            .iter()
            .map(|(group, of)| (*group, own(of)))
            .collect();
        let ledger = records.history.ledger(size);
        (ledger.all() > 0.0).then(|| Self {
            config,
            records,
            ledger,
            ranks: groups.keys().map(|group| size(*group)).sum(),
            groups,
        })
    }

    fn all(&self) -> Vec<String> {
        let findings = [
            self.held_back(),
            self.exchanging(),
            self.data(),
            self.reducing(),
            self.for_nothing(),
            self.no_step(),
        ];
        let mut all = vec![self.summary()];
        all.extend(findings.into_iter().flatten());
        if all.len() == 1 {
            all.push("No other part is large enough for a key to help much.".into());
        }
        all
    }

    /// A part of all rank-seconds: `92 s (9.4 %)`.
    fn part(&self, rank_seconds: f64) -> String {
        let share = 100.0 * rank_seconds / self.ledger.all();
        format!("{} ({share:.1} %)", seconds(rank_seconds))
    }

    fn is_worth(&self, rank_seconds: f64) -> bool {
        rank_seconds > WORTH * self.ledger.all()
    }

    fn summary(&self) -> String {
        let known = parts(&self.ledger)
            .into_iter()
            .filter(|part| part.rank_seconds > 0.0);
        let known: Vec<String> = known
            .map(|part| format!("{} {}", part.what, self.part(part.rank_seconds)))
            .collect();
        format!(
            "{}: {} ranks in {} groups had {} together, from the first step of each group on: {}.",
            self.config.name,
            self.ranks,
            self.groups.len(),
            seconds(self.ledger.all()),
            known.join(", ")
        )
    }

    /// Seconds of an exchange of a group by itself, without being held back.
    fn own_step(&self, group: u32) -> f64 {
        let (exchanges, times) = self.groups[&group];
        (times.sum() - times.waiting) / exchanges.max(1.0)
    }

    fn held_back(&self) -> Option<String> {
        let waiting = self.ledger.applied.waiting;
        if !self.is_worth(waiting) || self.groups.len() < 2 {
            return None;
        }
        let by_step = |a: &&u32, b: &&u32| self.own_step(**a).total_cmp(&self.own_step(**b));
        let slowest = *self.groups.keys().max_by(by_step)?;
        let fastest = *self.groups.keys().min_by(by_step)?;
        let (slow, fast) = (self.own_step(slowest), self.own_step(fastest));
        let what = format!(
            "Held back, {}: a step of group {slowest} takes {} by itself, one of group {fastest} {}.",
            self.part(waiting),
            seconds(slow),
            seconds(fast),
        );
        let is_slow = slow > SLOW * fast;
        let help = match self.config.train.consistency {
            ConsistencySpec::Sync => "Under train.consistency = \"sync\" every update waits for all groups: \
                 train.backup_groups = 1 leaves out the last of them, \"bounded\" lets the others go ahead."
                .to_owned(),
            ConsistencySpec::Bounded { staleness_bound } if is_slow => format!(
                "A group that is always slower sets the pace once the others are train.staleness_bound = \
                 {staleness_bound} exchanges ahead: a larger bound puts that off, train.consistency = \"async\" ends \
                 it, at the price of older gradients."
            ),
            ConsistencySpec::Bounded { staleness_bound } => format!(
                "Steps take about as long in all groups, so these are pauses: train.staleness_bound above \
                 {staleness_bound} lets the others go on for longer meanwhile."
            ),
            ConsistencySpec::Async => "Under \"async\" nobody waits for other groups; what is held back waits for a \
                 server to admit it, as after a failover."
                .to_owned(),
        };
        Some(format!("{what} {help}"))
    }

    fn exchanging(&self) -> Option<String> {
        let exchanging = self.ledger.applied.exchanging;
        if !self.is_worth(exchanging) {
            return None;
        }
        let mut help = Vec::new();
        if !self.config.train.overlap && self.config.local.is_none() {
            // What a step's exchange takes can be hidden as far as the next step computes.
            let hidden = |(group, (exchanges, times)): (&u32, &(f64, Times))| {
                let ranks = self
                    .config
                    .cluster
                    .groups
                    .get(*group as usize)
                    .copied()
                    .unwrap_or(1);
                let each = (times.exchanging / exchanges).min(times.computing / exchanges);
                f64::from(ranks) * exchanges * each
            };
            let hidden = self.part(self.groups.iter().map(hidden).sum());
            help.push(format!(
                "train.overlap = 1 would run it beside the next step's computation and could hide up to {hidden}, on \
                 parameters that are one exchange older"
            ));
        }
        if self.config.up == Compression::None {
            let told = self.pushed();
            help.push(format!(
                "exchange.up = \"bf16\" would send half the bytes{told}"
            ));
        }
        let servers = self.config.cluster.servers;
        if servers == 1 {
            help.push("cluster.servers = 2 would divide them between two servers".into());
        }
        let (exchanges, times) = self.sums();
        let what = format!(
            "Exchanging, {}: a group stands still for {} at an exchange, beside {} of computing, with {servers} {}.",
            self.part(exchanging),
            seconds(times.exchanging / exchanges),
            seconds(times.computing / exchanges),
            if servers == 1 { "server" } else { "servers" },
        );
        Some(match help.is_empty() {
            true => what,
            false => format!("{what} It would help: {}.", help.join("; ")),
        })
    }

    /// Of all groups, each counted once.
    fn sums(&self) -> (f64, Times) {
        let add = |(count, sum): (f64, Times), (exchanges, times): &(f64, Times)| {
            (count + exchanges, sum.plus(times, 1.0))
        };
        self.groups.values().fold((0.0, Times::default()), add)
    }

    /// How much a group pushes at an exchange, if the summary has it.
    fn pushed(&self) -> String {
        let exchanged = self
            .records
            .end
            .as_ref()
            .and_then(|end| end.exchanged.as_ref());
        let (exchanges, _) = self.sums();
        exchanged.map_or(String::new(), |exchanged| {
            format!(
                ", {:.2} MB a group and exchange",
                exchanged.pushed_bytes as f64 / exchanges / 1e6
            )
        })
    }

    fn data(&self) -> Option<String> {
        let reading = self.ledger.applied.reading;
        if !self.is_worth(reading) {
            return None;
        }
        let (exchanges, times) = self.sums();
        Some(format!(
            "Waiting for data, {}: {} at an exchange. More threads that read ahead (loader.readers) help where \
             reading or decoding takes longer than a step; loader.cache keeps files on each node's own disk.",
            self.part(reading),
            seconds(times.reading / exchanges),
        ))
    }

    fn reducing(&self) -> Option<String> {
        let reducing = self.ledger.applied.reducing;
        if !self.is_worth(reducing) {
            return None;
        }
        let (exchanges, times) = self.sums();
        let widest = self
            .config
            .cluster
            .groups
            .iter()
            .max()
            .copied()
            .unwrap_or(1);
        Some(format!(
            "Reducing, {}: averaging inside groups of up to {widest} ranks takes {} at an exchange that backward does \
             not hide. Smaller groups (cluster.groups) average among fewer ranks, a larger train.batch does it less \
             often for the same samples.",
            self.part(reducing),
            seconds(times.reducing / exchanges),
        ))
    }

    fn for_nothing(&self) -> Option<String> {
        let for_nothing = self.ledger.for_nothing;
        if for_nothing <= 0.0 {
            return None;
        }
        let history = &self.records.history;
        let kinds = [
            (
                history.skipped,
                "were skipped, because their gradient was not finite: optimizer.learning_rate may be too high",
            ),
            (
                history.left_out,
                "were left out by a policy, because they came too late",
            ),
            (
                history.again,
                "were made again after a resume: a shorter liveness.snapshot_ms leaves less to make again",
            ),
        ];
        let told = kinds.iter().filter(|(count, _)| *count > 0);
        let told: Vec<String> = told
            .map(|(count, why)| format!("{count} exchanges {why}"))
            .collect();
        Some(format!(
            "For nothing, {}: {}.",
            self.part(for_nothing),
            told.join("; ")
        ))
    }

    fn no_step(&self) -> Option<String> {
        let away = self.ledger.away;
        if !self.is_worth(away) {
            return None;
        }
        let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
        for told in self
            .records
            .timeline
            .all()
            .filter(|told| told.event.is_fault())
        {
            *kinds.entry(told.event.kind.as_str()).or_default() += 1;
        }
        let counted = |kind: &str| kinds.get(kind).copied().unwrap_or(0);
        let deaths = counted("process_died") + counted("process_killed");
        let lost = counted("rank_lost");
        let lease_ms = self.config.liveness.lease_ms;
        let reform_grace_ms = self.config.faults.reform_grace_ms;
        let why = match deaths + lost {
            0 => "No process died: it is what ranks do between steps, such as a script's own work, or a pace that they \
                  keep (pace.step_seconds)."
                .to_owned(),
            _ => format!(
                "deaths of processes: {deaths}, ranks that their groups lost: {lost}. One that is silent is noticed after \
                 liveness.lease_ms = {lease_ms}; a group waits for up to liveness.reform_grace_ms = {reform_grace_ms} until it \
                 goes on without a rank."
            ),
        };
        Some(format!("No step, {}: {why}", self.part(away)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{folder, lines, with_faults};
    use tradewind_common::record::fixture::run;

    fn explained(root: &std::path::Path) -> Vec<String> {
        explain(FoundRun::find(Some(root)).unwrap()).unwrap()
    }

    #[test]
    fn each_part_is_explained_with_its_figures() {
        let root = tempfile::tempdir().unwrap();
        with_faults(root.path());
        let mut rows = run(3, 100);
        for row in &mut rows {
            // The third group needs twice as long, and the others wait for it.
            match row.group {
                2 => row.compute_seconds = 0.25,
                _ => {
                    row.wait_seconds = 0.03;
                    row.exposed_seconds = 0.05;
                }
            }
        }
        let skipped = rows.iter_mut().filter(|row| row.loss.is_none());
        skipped.for_each(|row| row.delay = None);
        std::fs::write(root.path().join("metrics.jsonl"), lines(rows)).unwrap();
        let told = explained(root.path());
        let begins = |words: &str| {
            let found = told.iter().find(|text| text.starts_with(words));
            found.unwrap_or_else(|| panic!("nothing begins with {words:?} in {told:#?}"))
        };
        assert!(
            told[0].starts_with("r: 6 ranks in 3 groups had "),
            "{}",
            told[0]
        );
        // Of 100 exchanges each of 4 ranks was held back for 0.03 s, but for one that was skipped.
        let held = begins("Held back, 12 s (");
        assert!(
            held.contains("a step of group 2 takes 277 ms by itself, one of group 0 129 ms"),
            "{held}"
        );
        assert!(
            held.contains("train.staleness_bound = 3") && held.contains("\"async\""),
            "{held}"
        );
        assert!(
            begins("Exchanging, 12 s (").contains("train.overlap = 1"),
            "{told:#?}"
        );
        let nothing = begins("For nothing, ");
        assert!(nothing.contains("3 exchanges were skipped"), "{nothing}");
        assert!(
            begins("No step, ").contains("deaths of processes: 2, ranks that their groups lost: 0"),
            "{told:#?}"
        );
        assert!(
            !told.iter().any(|text| text.starts_with("Waiting for data")),
            "{told:#?}"
        );
    }

    #[test]
    fn a_run_without_an_exchange_has_nothing_to_explain() {
        let root = tempfile::tempdir().unwrap();
        folder(root.path());
        let error = explain(FoundRun::find(Some(root.path())).unwrap()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "run r has made no exchange yet, so there is nothing to explain"
        );
    }
}
