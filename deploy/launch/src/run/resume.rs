//! Going on in the folder of a run that has ended before its end.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use serde::Deserialize;
use tradewind_common::exit::Exit;
use tradewind_common::loss::Loss;
use tradewind_common::{RunId, run_files};
use tradewind_config::Config;
use tradewind_server::snapshot::{Folder, manifest};

use crate::processes;
use tradewind_folder::run::{RunFolder, forget_end, put_coordinator_aside};

/// The newest snapshot of a run in its folder. Whether its files are whole is the servers' to find
/// out: they pass over damaged ones.
pub fn newest(path: &Path, run: &RunId) -> anyhow::Result<u64> {
    if !path.join(run_files::CONFIG).exists() {
        bail!(
            "there is no run in {} to resume; name its folder with --out, or leave out --resume to begin a new one",
            path.display()
        );
    }
    let folder = Folder::new(path);
    let snapshots = folder.run(run);
    let numbers = manifest::list(&folder, run)
        .with_context(|| format!("cannot look for snapshots in {}", snapshots.display()))?;
    match numbers.last() {
        Some(newest) => Ok(*newest),
        None => bail!(
            "{} has no whole snapshot to resume from; if the run had another name, set it with --set run.name=…; or leave out --resume to begin anew, what is there is then moved aside",
            snapshots.display()
        ),
    }
}

/// What going on means for a run that has stopped at a loss: whoever resumes it accepts that. `None` for
/// one that has ended in another way.
pub fn accepted(run: &Path) -> Option<String> {
    let told = std::fs::read_to_string(run.join(run_files::SUMMARY)).ok()?;
    let told: Stopped = serde_json::from_str(&told).ok()?;
    if told.exit_status != Exit::Lost.number() {
        return None;
    }
    let lost = told.faults.lost.map(|lost| lost.to_string());
    let lost = lost.unwrap_or_else(|| "updates".to_owned());
    Some(format!(
        "the run had stopped because {lost} are lost; that it goes on accepts the loss"
    ))
}

/// Which settings of a run that goes on are not what they were before; `None` if all are.
pub fn changed(config: &Config, folder: &RunFolder) -> Option<String> {
    let differences = differences(folder.before()?, config.resolved(), config.identity());
    (!differences.is_empty()).then(|| differences.join("; "))
}

/// `train.samples is 6880, it was 20000 before` for each key with another value. A key that was not
/// written down before, as by an earlier version, counts where `departed` has it: the lines of the keys
/// that are not at their defaults.
fn differences(before: &str, now: &str, departed: &str) -> Vec<String> {
    let (was, is) = (settings(before), settings(now));
    let departed = |key: &str| {
        departed
            .lines()
            .any(|line| line.starts_with(&format!("{key} = ")))
    };
    let others = is.iter().filter_map(|(key, value)| match was.get(key) {
        Some(old) if old == value => None,
        Some(old) => Some(format!("{key} is {value}, it was {old} before")),
        None if departed(key) => Some(format!("{key} is {value}, it was not set before")),
        None => None,
    });
    let unset = was.iter().filter(|(key, _)| !is.contains_key(*key));
    let unset = unset.map(|(key, old)| format!("{key} is not set, it was {old} before"));
    others.chain(unset).collect()
}

/// The values of a resolved configuration, which has a line for each, by `section.name`.
fn settings(resolved: &str) -> BTreeMap<String, &str> {
    let mut section = "";
    let mut settings = BTreeMap::new();
    for line in resolved.lines() {
        if let Some(head) = line.strip_prefix('[') {
            section = head.trim_end_matches(']');
        } else if let Some((name, value)) = line.split_once(" = ") {
            settings.insert(format!("{section}.{name}"), value);
        }
    }
    settings
}

/// What is needed of the summary of a run that has stopped.
#[derive(Deserialize)]
struct Stopped {
    exit_status: u8,
    faults: Faults,
}

#[derive(Deserialize)]
struct Faults {
    lost: Option<Loss>,
}

/// Makes the folder ready for new processes. The number of lives that previous ones have used.
pub(super) fn prepare(folder: &RunFolder) -> anyhow::Result<u64> {
    // The fleet is a new one: what it must know is in the snapshot. No previous process is left, for
    // they die with the launcher, which holds the folder.
    put_coordinator_aside(folder.path())?;
    forget_end(folder.path())?;
    let lives = processes(folder.path()).into_iter().map(|row| row.life);
    Ok(lives.max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_cannot_be_resumed_says_what_to_do() {
        let root = tempfile::tempdir().unwrap();
        let run = RunId::new("r").unwrap();
        let error = newest(root.path(), &run).unwrap_err().to_string();
        assert!(error.contains("there is no run in"), "{error}");
        fs::write(root.path().join("config.toml"), "").unwrap();
        let error = newest(root.path(), &run).unwrap_err().to_string();
        assert!(
            error.contains("snapshots/r has no whole snapshot"),
            "{error}"
        );
        // Without a manifest a snapshot is not whole.
        let folder = Folder::new(root.path());
        for number in [3, 4] {
            fs::create_dir_all(folder.snapshot(&run, number)).unwrap();
        }
        fs::write(folder.manifest(&run, 3), "{}").unwrap();
        assert_eq!(newest(root.path(), &run).unwrap(), 3);
    }

    #[test]
    fn who_resumes_a_run_that_stopped_at_a_loss_is_told_what_that_accepts() {
        let root = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(&root.path().join("r")).unwrap();
        let check = |summary: &str, want: Option<&str>| {
            folder.write("summary.json", summary).unwrap();
            let said = accepted(folder.path());
            assert_eq!(said.is_some(), want.is_some(), "{summary}");
            assert!(said.unwrap_or_default().contains(want.unwrap_or("")));
        };
        assert_eq!(accepted(folder.path()), None, "it has no summary");
        check(
            r#"{"exit_status": 7, "faults": {"lost": {"updates": 312, "samples": 640}}}"#,
            Some("because 312 updates of blocks (640 samples) are lost"),
        );
        let unknown = r#"{"exit_status": 7, "faults": {"lost": null}}"#;
        check(unknown, Some("because updates are lost"));
        check(r#"{"exit_status": 1, "faults": {"lost": null}}"#, None);
        // Of an earlier version.
        check(r#"{"status": "failed", "faults": {"lost": 3}}"#, None);
    }

    #[test]
    fn settings_that_are_not_what_they_were_are_told() {
        let check = |before: &str, now: &str, want: &[&str]| {
            let departed = "train.overlap = 1\n";
            assert_eq!(differences(before, now, departed), want, "{before} {now}");
        };
        let before = "[run]\nname = \"r\"\n\n[train]\nsamples = 20000\n";
        check(before, before, &[]);
        check(
            before,
            &before.replace("20000", "6880"),
            &["train.samples is 6880, it was 20000 before"],
        );
        // Of an earlier version, which did not know the keys.
        let more = format!("{before}batch = 8\noverlap = 1\n");
        check(
            before,
            &more,
            &["train.overlap is 1, it was not set before"],
        );
        check(
            &more,
            before,
            &[
                "train.batch is not set, it was 8 before",
                "train.overlap is not set, it was 1 before",
            ],
        );
    }

    #[test]
    fn a_resumed_run_keeps_what_it_has_written_but_not_its_fleet() {
        let root = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(&root.path().join("r")).unwrap();
        assert_eq!(prepare(&folder).unwrap(), 0);
        folder.write("summary.json", "{}").unwrap();
        folder.write("metrics.jsonl", "{}\n").unwrap();
        let row = r#"[{"role":"server","index":0,"group":null,"group_rank":null,"pid":1,"address":"","life":4}]"#;
        folder.write("processes.json", row).unwrap();
        fs::create_dir(folder.file("coordinator")).unwrap();
        assert_eq!(prepare(&folder).unwrap(), 4);
        assert!(folder.file("coordinator-1").exists() && !folder.file("coordinator").exists());
        assert!(folder.file("metrics.jsonl").exists() && !folder.file("summary.json").exists());
    }
}
