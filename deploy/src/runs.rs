//! `tradewind runs`: the runs in a folder, the newest first.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use indicatif::HumanBytes;
use serde::Serialize;
use serde_json::Value;
use tradewind_common::run_files;
use tradewind_folder::clock::wall;
use tradewind_folder::found::FoundRun;
use tradewind_folder::input::{self, BadInput};
use tradewind_folder::lock::is_held;
use tradewind_process::Docs;
use tradewind_process::log::say;
use tradewind_watch::table;

use crate::size;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The folder that the runs are in.
    #[arg(default_value = "runs")]
    folder: PathBuf,
    /// As JSON, one object a line.
    #[arg(long)]
    json: bool,
}

/// A run, as it is listed.
#[derive(Debug, Serialize)]
struct Listed {
    run: String,
    folder: PathBuf,
    /// `completed`, `failed`, `interrupted`; `under way`, or `not ended` where nobody here keeps it going.
    state: String,
    /// On the held-out split; `null` if it was not evaluated.
    metric: Option<String>,
    /// Part of the budget that was applied, 0 to 1; `null` before its summary is there.
    applied: Option<f64>,
    /// When it began last, seconds since the Unix epoch.
    begun: Option<f64>,
    /// On disk; of many files those that were looked at.
    bytes: u64,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match list(&arguments.folder) {
        Ok(runs) if arguments.json => {
            for run in runs {
                say(serde_json::to_string(&run).expect("it has plain keys"));
            }
            ExitCode::SUCCESS
        }
        Ok(runs) => {
            say(text(&runs, wall()));
            ExitCode::SUCCESS
        }
        Err(error) => input::fail(&error, Docs::WATCHING).into(),
    }
}

fn list(folder: &Path) -> anyhow::Result<Vec<Listed>> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Err(BadInput(format!("there is no folder {}", folder.display())).into());
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let runs = paths.filter(|path| path.join(run_files::CONFIG).is_file());
    let mut runs: Vec<Listed> = runs.map(listed).collect();
    if runs.is_empty() {
        return Err(BadInput(format!("there is no run in {}", folder.display())).into());
    }
    runs.sort_by(|a, b| b.begun.unwrap_or(0.0).total_cmp(&a.begun.unwrap_or(0.0)));
    Ok(runs)
}

fn listed(folder: PathBuf) -> Listed {
    let summary = fs::read_to_string(folder.join(run_files::SUMMARY)).ok();
    let summary: Value = summary
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    let found = FoundRun::find(Some(&folder));
    let name = folder
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let state = match summary["status"].as_str() {
        Some(status) => status.to_owned(),
        None if is_held(&folder) => "under way".into(),
        None => "not ended".into(),
    };
    let metric = summary["metric"]["value"].as_f64().map(|value| {
        let word = |key: &str| {
            summary["metric"][key]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        format!("{} {value:.4} {}", word("name"), word("unit"))
            .trim_end()
            .to_owned()
    });
    let samples = |key: &str| summary["samples"][key].as_f64();
    Listed {
        run: name.unwrap_or_default(),
        state,
        metric,
        applied: samples("applied")
            .zip(samples("budget"))
            .map(|(applied, budget)| applied / budget),
        begun: found.ok().and_then(|found| found.begun()),
        bytes: size::bytes(&folder),
        folder,
    }
}

/// A table; `now` is seconds since the Unix epoch.
fn text(runs: &[Listed], now: f64) -> String {
    let dash = || "-".to_owned();
    let rows = runs.iter().map(|run| {
        [
            run.run.clone(),
            run.state.clone(),
            run.metric.clone().unwrap_or_else(dash),
            run.applied
                .map_or_else(dash, |part| format!("{:.0} %", 100.0 * part)),
            run.begun
                .map_or_else(dash, |begun| format!("{} ago", table::age(now - begun))),
            HumanBytes(run.bytes).to_string(),
        ]
    });
    let header = ["run", "state", "metric", "samples", "begun", "size"];
    table::columns(header, rows.collect()).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_listed_with_what_they_came_to() {
        let root = tempfile::tempdir().unwrap();
        let run = |name: &str, summary: &str| {
            let folder = root.path().join(name);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("config.toml"), "").unwrap();
            if !summary.is_empty() {
                fs::write(folder.join("summary.json"), summary).unwrap();
            }
        };
        let ended = r#"{"status": "completed", "samples": {"applied": 90, "budget": 100},
            "metric": {"name": "held-out RMSE", "unit": "K", "value": 0.71523}}"#;
        run("done", ended);
        run("half", "");
        fs::create_dir(root.path().join("notes")).unwrap();
        let mut runs = list(root.path()).unwrap();
        assert!(
            runs.iter().all(|run| run.bytes >= 512 || run.run == "half"),
            "{runs:?}"
        );
        runs.sort_by(|a, b| a.run.cmp(&b.run));
        for (run, begun) in runs.iter_mut().zip([100.0, 4000.0]) {
            run.bytes = 3 << 20;
            run.begun = Some(begun);
        }
        let want = "\
run    state       metric                 samples   begun        size
done   completed   held-out RMSE 0.7152 K   90 %      2 h ago      3.00 MiB
half   not ended   -                        -         66 min ago   3.00 MiB";
        assert_eq!(
            text(&runs, 8000.0).split_whitespace().collect::<Vec<_>>(),
            want.split_whitespace().collect::<Vec<_>>()
        );
        let error = list(&root.path().join("notes")).unwrap_err();
        assert!(
            error.to_string().starts_with("there is no run in "),
            "{error}"
        );
    }
}
