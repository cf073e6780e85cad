//! Going on in the folder of a run that has ended before its end.

use std::path::Path;

use anyhow::{Context, bail};
use serde::Deserialize;
use tradewind_common::exit::Exit;
use tradewind_common::loss::Loss;
use tradewind_common::{RunId, run_files};
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
