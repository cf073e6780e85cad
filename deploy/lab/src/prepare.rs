//! What is looked at before the first cell: data and models, what a step takes, and whether
//! the pace can be kept.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::bail;
use tradewind_config::Config;

use super::display::Counts;
use super::file::ExperimentPlan;
use super::job::Job;
use super::keys::keys_of;
use super::machine::{self, Machine, Need};
use super::matrix::{Cell, Matrix};
use super::reading::Reading;
use super::runner::Runner;
use super::tuning::never_warm_in;
use tradewind_launch::LOOK;
use tradewind_launch::run::{Interruption, secret};
use tradewind_launch::{Process, Programs, Role, environment};
use tradewind_process::log::say;
use tradewind_programs::worker::{CheckArguments, THREADS};

/// Steps of the probe.
const PROBE_STEPS: u64 = 40;

/// Sections of the configuration on which it depends what a step computes and moves.
const COMPUTED: &[&str] = &["model", "data", "compute", "exchange"];

/// An experiment that cannot be run as it is written.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(String);

/// What cells need of this machine.
pub struct Needs {
    machine: Machine,
    by_kind: BTreeMap<String, Need>,
}

impl Needs {
    /// Part of the machine that a cell takes.
    pub fn part(&self, cell: &Cell) -> f64 {
        match self.by_kind.get(&kind(&cell.config)) {
            Some(need) => self.machine.part(cell, *need),
            None => 1.0,
        }
    }

    /// What is about to begin.
    pub fn announce(
        &self,
        name: &str,
        jobs: &[Job<'_>],
        plan: &ExperimentPlan,
        counts: Counts,
        folder: &Path,
    ) {
        say(format_args!(
            "{name}: {}; in {}",
            counts.in_words(),
            folder.display()
        ));
        let parts = jobs.iter().map(|job| job.part);
        let many = |part: f64| (1.0 / part.max(1e-3)).floor().max(1.0) as usize;
        let fit = match (parts.clone().map(many).min(), parts.map(many).max()) {
            (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
            (least, _) => least.unwrap_or(1).to_string(),
        };
        let limit = |what: &str, count| match count {
            usize::MAX => String::new(),
            count => format!("; at most {count} {what}, as is asked for"),
        };
        let mut limited = limit("cells", plan.at_once(false));
        if counts.trials > 0 {
            limited = limit("trials", plan.at_once(true)) + &limited;
        }
        for need in self.by_kind.values() {
            say(format_args!(
                "a step takes {:.1} ms of a core and a rank {:.0} MB, measured: {} cores hold {fit} side by side{limited}",
                1e3 * need.step_seconds,
                need.bytes / 1e6,
                self.machine.cores,
            ));
        }
    }
}

/// Looks at everything: trials, and cells that are to come. `None` after an interruption.
///
/// # Errors
/// [`Refused`], or something that keeps this machine from looking.
pub(super) async fn prepare(
    plan: &ExperimentPlan,
    matrix: &Matrix,
    (trials, cells): (&[Cell], &[&Cell]),
    runner: &Runner,
    interruption: &mut Interruption,
) -> anyhow::Result<Option<Needs>> {
    let todo: Vec<&Cell> = trials.iter().chain(cells.iter().copied()).collect();
    let mut kinds: BTreeMap<(String, Vec<u32>), &Cell> = BTreeMap::new();
    for cell in &todo {
        let shape = (kind(&cell.config), cell.config.cluster.groups.clone());
        kinds.entry(shape).or_insert(cell);
    }
    let (mut refusals, mut epochs) = (Vec::new(), BTreeMap::new());
    for ((kind, _), cell) in &kinds {
        let Some(found) = check(cell, runner, interruption).await? else {
            return Ok(None);
        };
        match found {
            Ok(samples) => epochs.extend(samples.map(|samples| (kind.as_str(), samples))),
            Err(why) => {
                let setting = &matrix.settings[cell.setting].label;
                refusals.push(format!("{setting}: {why}"));
            }
        }
    }
    for trial in trials {
        let samples = epochs.get(kind(&trial.config).as_str());
        refusals.extend(samples.and_then(|samples| never_warm_in(plan, trial, *samples)));
    }
    refuse(refusals)?;

    let mut needs = Needs {
        machine: Machine::here(),
        by_kind: BTreeMap::new(),
    };
    for cell in todo.iter().filter(|cell| cell.config.step_seconds > 0.0) {
        let kind = kind(&cell.config);
        if needs.by_kind.contains_key(&kind) {
            continue;
        }
        say("measuring what a step takes");
        let Some(need) = probe(cell, needs.by_kind.len(), runner, interruption).await? else {
            return Ok(None);
        };
        needs.by_kind.insert(kind, need);
    }
    let mut refusals = Vec::new();
    for cell in &todo {
        // Of cells without a pace nothing is measured.
        if let Some(need) = needs.by_kind.get(&kind(&cell.config)) {
            let own = needs.machine.refusals(cell, *need).into_iter();
            refusals.extend(own.map(|why| format!("{}: {why}", plan.file)));
        }
        refusals.extend(one_address(plan, cell, needs.part(cell)));
    }
    refuse(refusals)?;
    Ok(Some(needs))
}

/// Why cells of this part of the machine cannot all serve their metrics.
fn one_address(plan: &ExperimentPlan, cell: &Cell, part: f64) -> Option<String> {
    let together = plan.at_once(false).max(plan.at_once(true)) > 1 && part <= 0.5;
    (together && cell.config.telemetry.prometheus.is_some()).then(|| {
        format!(
            "{}: telemetry.prometheus is one address, and cells run side by side; set it to \"\" in [set], or cells_at_once and tuning.at_once to 1",
            plan.file
        )
    })
}

fn refuse(mut refusals: Vec<String>) -> anyhow::Result<()> {
    refusals.sort();
    refusals.dedup();
    match refusals.as_slice() {
        [] => Ok(()),
        all => Err(Refused(all.join("\n")).into()),
    }
}

/// Has a worker open the data and build the model of a cell: how many training samples there are, which nobody but the
/// script knows of a script.
async fn check(
    cell: &Cell,
    runner: &Runner,
    interruption: &mut Interruption,
) -> anyhow::Result<Option<Result<Option<u64>, String>>> {
    let rank = Programs::of(&cell.config)?.rank;
    if cell.config.is_script() {
        // Nobody else can look at its data and its model.
        return Ok(Some(Ok(None)));
    }
    let config = runner.write_config(cell)?;
    let log = runner.log(&format!("{}-check", cell.id));
    // An earlier one's words are not this one's.
    let _ = std::fs::remove_file(&log);
    let arguments = CheckArguments {
        config,
        local_ranks: cell.config.world_size(),
        measure: true,
    };
    let command = rank.command(&arguments.into(), &environment(&secret()?, None, THREADS))?;
    let mut process = Process::start_command(Role::Check, command, &log)?;
    let end = loop {
        if let Some(end) = process.poll()? {
            break end;
        }
        tokio::select! {
            _ = interruption.wait() => {
                Process::stop_all(vec![&mut process]);
                return Ok(None);
            }
            () = tokio::time::sleep(LOOK) => {}
        }
    };
    Ok(Some(match end.success {
        true => Ok(training_samples(&std::fs::read_to_string(&log)?)),
        false => Err(end.to_string()),
    }))
}

/// What the log of a check that has passed says of them.
fn training_samples(log: &str) -> Option<u64> {
    let told = log.lines().rfind(|line| line.starts_with('{'))?;
    let found: serde_json::Value = serde_json::from_str(told).ok()?;
    found["training_samples"].as_u64()
}

/// Measures what a step of a cell's kind takes, with one rank alone and without pace.
async fn probe(
    cell: &Cell,
    number: usize,
    runner: &Runner,
    interruption: &mut Interruption,
) -> anyhow::Result<Option<Need>> {
    let samples = PROBE_STEPS * u64::from(cell.config.train.largest_batch());
    let id = format!("probe-{number}");
    // Everything else as it is by itself: policies, stragglers and a schedule need groups, a pace
    // and a budget that a lone rank has not. A rate of 0 cannot diverge.
    let mut set: Vec<String> = computed(&cell.config)
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    set.push(format!("run.name={id}"));
    set.push(format!("train.samples={samples}"));
    set.push("optimizer.learning_rate=0".to_owned());
    let probe = Cell {
        config: Config::parse_with(cell.config.tasks(), "", &id, Path::new("/"), &set)?,
        id,
        setting: cell.setting,
        seed: cell.seed,
    };
    let Some(bytes) = runner.measure(&probe, interruption).await? else {
        return Ok(None);
    };
    let reading = Reading::of(&runner.run_folder(&probe))?;
    let step_seconds = machine::step_seconds(&reading);
    if step_seconds == 0.0 {
        bail!(
            "the probe has made no step; see {}",
            runner.log(&probe.id).display()
        );
    }
    Ok(Some(Need {
        step_seconds,
        bytes,
    }))
}

/// What a step computes: cells of one kind take equally long for it.
fn kind(config: &Config) -> String {
    let own = computed(config).map(|(key, value)| format!("{key}={value};"));
    own.collect()
}

/// The keys on which it depends, with their values as TOML; of batches that grow the largest, for the
/// pace has to hold to the end.
fn computed(config: &Config) -> impl Iterator<Item = (String, String)> {
    let batch = (
        "train.batch".to_owned(),
        config.train.largest_batch().to_string(),
    );
    let keys = keys_of(config.resolved()).into_iter();
    let others = keys.filter(move |(key, _)| {
        let section = key.split('.').next().unwrap_or_default();
        COMPUTED.contains(&section) || section == config.task.name()
    });
    others.chain([batch])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{HEAD, matrix};

    #[test]
    fn cells_side_by_side_cannot_serve_metrics_at_one_address() {
        let folder = tempfile::tempdir().unwrap();
        let check = |more: &str, set: &str, part: f64, want: bool| {
            let text = format!("{HEAD}{more}[set]\n{set}");
            let (plan, matrix) = matrix(folder.path(), &text, false).unwrap();
            let found = one_address(&plan, &matrix.cells[0], part);
            assert_eq!(found.is_some(), want, "{text} {part}");
        };
        let scraped = "telemetry.prometheus = \"127.0.0.1:9100\"\n";
        check("", scraped, 0.5, true);
        check("", scraped, 0.6, false);
        check("cells_at_once = 1\n", scraped, 0.5, false);
        check("", "", 0.5, false);
    }

    #[test]
    fn a_check_says_how_many_training_samples_there_are() {
        let log =
            "INFO opened\n{\"parameters\":7,\"training_samples\":16000,\"devices\":[\"cpu\"]}\n";
        assert_eq!(training_samples(log), Some(16_000));
        assert_eq!(training_samples("INFO opened\n"), None);
    }

    #[test]
    fn batches_that_grow_are_measured_at_their_end() {
        let check = |set: &[&str], want: &str| {
            let text = "run.name = \"r\"\nmodel.name = \"resnet50\"\ntrain.samples = 8\ntrain.batch = 4\noptimizer.learning_rate = 1\n";
            let set: Vec<String> = set.iter().map(|key| (*key).to_owned()).collect();
            let config = Config::parse(text, "c.toml", Path::new("/"), &set).unwrap();
            let all: Vec<_> = computed(&config).collect();
            let batch = all.iter().filter(|(key, _)| key == "train.batch");
            assert_eq!(batch.map(|(_, batch)| batch).collect::<Vec<_>>(), [want]);
        };
        check(&[], "4");
        check(&["train.batch_ramp=[[5, 8], [9, 16]]"], "16");
    }
}
