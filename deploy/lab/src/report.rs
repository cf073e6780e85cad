//! `tradewind report`: runs that were made by hand, compared in the form of an experiment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;

use super::page::{Page, page};
use crate::analysis::summed;
use crate::cell::{self, CellOutcome};
use crate::file::{Goal, Target};
use crate::keys::{is_synchronous, setting_keys};
use crate::line::{CellState, Line, Run, Sums};
use crate::mllog;
use crate::origin::Origin;
use crate::reading::Reading;
use tradewind_folder::input;
use tradewind_process::Docs;
use tradewind_process::log::say;
use tradewind_process::whole;

/// What is typed behind `tradewind report`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Folders of runs. Those that differ in nothing but name and seed are one setting.
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Where to write the page.
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    out: PathBuf,
    /// Write logs in the form of MLPerf HPC into this folder instead, one for each run, of deepcam or cosmoflow. The
    /// target is that of MLPerf, unless another is given.
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    mllog: Option<PathBuf>,
    /// The target: the metric on the validation split is at most this.
    #[arg(long, value_name = "VALUE", conflicts_with = "at_least")]
    at_most: Option<f64>,
    /// The target: the metric on the validation split is at least this.
    #[arg(long, value_name = "VALUE")]
    at_least: Option<f64>,
}

/// Compares the runs, and writes the page.
pub fn run(arguments: &Arguments) -> ExitCode {
    match report(arguments) {
        Ok(told) => {
            say(told);
            ExitCode::SUCCESS
        }
        Err(error) => input::fail(&error, Docs::EXPERIMENTS).into(),
    }
}

/// What is to be said of it.
fn report(arguments: &Arguments) -> anyhow::Result<String> {
    let mut runs = Vec::new();
    for folder in &arguments.runs {
        let name = folder.display().to_string();
        runs.push((name, Reading::of(folder)?));
    }
    let goal = arguments.at_most.map(Goal::AtMost);
    let goal = goal.or(arguments.at_least.map(Goal::AtLeast));
    if let Some(folder) = &arguments.mllog {
        return mllog::write(&runs, goal, folder);
    }
    let target = goal.map(|goal| target(goal, &runs)).transpose()?;
    let lines = summed(lines(runs, target.as_ref()), target.as_ref());
    let mut command = "tradewind report".to_owned();
    for folder in &arguments.runs {
        command += &format!(" {}", folder.display());
    }
    match goal {
        Some(Goal::AtMost(value)) => command += &format!(" --at-most {value}"),
        Some(Goal::AtLeast(value)) => command += &format!(" --at-least {value}"),
        None => {}
    }
    let html = page(&Page {
        title: "Runs compared",
        about: "",
        target: target.as_ref(),
        lines: &lines,
        trials: &[],
        origin: &Origin::default(),
        command: &command,
        files: &[],
    });
    whole::write(&arguments.out, html)?;
    Ok(format!("the report is in {}", arguments.out.display()))
}

/// The target on what the runs were evaluated on while they went on.
fn target(goal: Goal, runs: &[(String, Reading)]) -> anyhow::Result<Target> {
    let mut kinds = BTreeSet::new();
    let completed = runs.iter().filter(|(_, r)| r.summary.status == "completed");
    for (name, reading) in completed {
        let Some(first) = reading.validations.first() else {
            bail!(
                "{name} has no evaluations along the way, which a target needs; set evaluation.every_samples when it is run"
            );
        };
        kinds.insert((first.measure.name.clone(), first.samples));
    }
    if kinds.is_empty() {
        bail!("none of the runs has completed, so none says when it reached a target");
    }
    let [(metric, every_samples)] = Vec::from_iter(kinds).try_into().map_err(|kinds: Vec<_>| {
        let kinds: Vec<String> = kinds
            .iter()
            .map(|(m, n)| format!("{m} every {n} samples"))
            .collect();
        anyhow::anyhow!("the runs were not evaluated alike: {}", kinds.join("; "))
    })?;
    Ok(Target {
        metric,
        goal,
        every_samples,
    })
}

/// A line for each configuration, in the order in which they were named.
fn lines(runs: Vec<(String, Reading)>, target: Option<&Target>) -> Vec<Line> {
    type Keys = BTreeMap<String, String>;
    let mut settings: Vec<(Keys, Vec<(String, Reading)>)> = Vec::new();
    for (name, reading) in runs {
        let keys = setting_keys(reading.config.resolved());
        match settings.iter_mut().find(|(known, _)| *known == keys) {
            Some((_, own)) => own.push((name, reading)),
            None => settings.push((keys, vec![(name, reading)])),
        }
    }
    let all: Vec<Keys> = settings.iter().map(|(keys, _)| keys.clone()).collect();
    let line = |(keys, runs): (Keys, Vec<(String, Reading)>)| {
        let differs = |key: &&String| all.iter().any(|other| other.get(*key) != keys.get(*key));
        let own = keys.keys().filter(differs).map(|key| {
            let name = key.rsplit('.').next().unwrap_or(key);
            format!("{name} {}", keys[key].trim_matches('"'))
        });
        let label = own.collect::<Vec<_>>().join(", ");
        let label = if label.is_empty() {
            runs[0].0.clone()
        } else {
            label
        };
        let runs = runs.into_iter().map(|(name, reading)| {
            let seed = reading.config.seed;
            let state = match cell::outcome(&reading) {
                Ok(CellOutcome::Completed) => CellState::Completed(Box::new(reading)),
                Ok(CellOutcome::Void(why)) => CellState::Void(why, Box::new(reading)),
                Ok(CellOutcome::Failed(why)) => CellState::Failed(why),
                Err(why) => CellState::NotRun(Some(format!("{why:#}"))),
            };
            Run::of(name, seed, state, target)
        });
        Line {
            label,
            panel: String::new(),
            values: Vec::new(),
            synchronous: is_synchronous(&keys),
            tuned: None,
            on_edge: Vec::new(),
            keys,
            runs: runs.collect(),
            sums: Sums::default(),
        }
    };
    settings.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::reading_of;

    #[test]
    fn runs_that_differ_in_their_seeds_are_one_setting() {
        let folder = tempfile::tempdir().unwrap();
        let run = |set: &str, values: &[f64]| {
            let reading = reading_of(folder.path(), set, values);
            (set.to_owned(), reading)
        };
        let runs = vec![
            run("run.seed = 1\n", &[0.9, 0.4, 0.4]),
            run(
                "train.consistency = \"sync\"\nrun.seed = 1\n",
                &[0.9, 0.9, 0.4, 0.4],
            ),
            run("run.seed = 2\n", &[0.4, 0.4, 0.4]),
        ];
        let target = target(Goal::AtMost(0.5), &runs).unwrap();
        assert_eq!(
            (target.metric.as_str(), target.every_samples),
            ("error", 10)
        );
        let lines = summed(lines(runs, Some(&target)), Some(&target));
        let labels: Vec<_> = lines.iter().map(|line| line.label.as_str()).collect();
        assert_eq!(labels, ["consistency bounded", "consistency sync"]);
        assert_eq!((lines[0].runs.len(), lines[0].sums.reached), (2, 2));
        assert!(lines[1].sums.best_synchronous);
        let sooner = lines[0].sums.sooner.unwrap();
        assert!(
            (sooner.mean - 1.5).abs() < 1e-9,
            "paired by seed: {sooner:?}"
        );
    }

    #[test]
    fn runs_that_did_not_end_or_missed_their_pace_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let whole = || reading_of(folder.path(), "", &[0.4, 0.4]);
        let (mut cut_short, mut late) = (whole(), whole());
        cut_short.summary.status = "interrupted".into();
        late.records
            .iter_mut()
            .for_each(|record| record.missed_pace = 1);
        let runs = [("whole", whole()), ("cut short", cut_short), ("late", late)];
        let runs = runs.map(|(name, reading)| (name.to_owned(), reading));
        let lines = summed(lines(runs.to_vec(), None), None);
        let states: Vec<_> = lines[0].runs.iter().map(|run| &run.state).collect();
        assert!(
            matches!(
                states[..],
                [
                    CellState::Completed(_),
                    CellState::NotRun(Some(_)),
                    CellState::Void(..)
                ]
            ),
            "{states:?}"
        );
        assert_eq!(lines[0].sums.counted, 1);
    }

    #[test]
    fn a_target_needs_evaluations_along_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let runs = [("a".to_owned(), reading_of(folder.path(), "", &[]))];
        let error = target(Goal::AtMost(0.5), &runs).unwrap_err().to_string();
        assert!(
            error.starts_with("a has no evaluations along the way"),
            "{error}"
        );
    }
}
