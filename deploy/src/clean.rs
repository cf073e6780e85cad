//! `tradewind clean`: deletes what of runs is needed neither to go on with them nor to find out what went wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use indicatif::HumanBytes;
use serde::de::IgnoredAny;
use tradewind_common::{milestone, run_files};
use tradewind_folder::found::FoundRun;
use tradewind_folder::input::{self, BadInput};
use tradewind_folder::lock;
use tradewind_folder::runtime::one_thread;
use tradewind_process::Docs;
use tradewind_process::log::{self, say};
use tradewind_server::snapshot::{Folder, manifest};
use tradewind_watch::{Watcher, table};

use crate::size;

/// Where runs are if none is named.
const RUNS: &str = "runs";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Folders of runs; all runs in runs/ if none is named.
    runs: Vec<PathBuf>,
    /// Delete without asking.
    #[arg(long)]
    yes: bool,
}

/// What is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Snapshots older than the newest whole one, and unfinished ones.
    Snapshots,
    /// Logs of processes: of a run that has completed all of them, of others what was in them before they
    /// began anew.
    Logs,
    /// Parameters that were saved for an evaluation, of a run that has completed.
    Milestones,
    /// What coordinators before the last start of the run knew.
    Coordinators,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Snapshots => "snapshots",
            Self::Logs => "logs",
            Self::Milestones => "milestones",
            Self::Coordinators => "former coordinators",
        })
    }
}

/// A thing to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    kind: Kind,
    is: Is,
    bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Is {
    /// A snapshot by its number.
    Snapshot(u64),
    /// A file or a folder.
    Path(PathBuf),
}

/// A run of which something can be deleted.
#[derive(Debug)]
struct Cleaned {
    run: FoundRun,
    /// When it was begun last: afterwards it is another matter.
    begun: Option<f64>,
    pieces: Vec<Piece>,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let done = clean(arguments, &mut asked);
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => input::fail(&error, Docs::COMMANDS).into(),
    }
}

/// `agree` is asked before anything is deleted.
fn clean(
    arguments: &Arguments,
    agree: &mut dyn FnMut(&str) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let mut cleaned = Vec::new();
    for path in runs(&arguments.runs)? {
        let run = FoundRun::find(Some(&path))?;
        if let Some(why) = in_use(&run)? {
            say(format_args!("{}: left, for {why}", path.display()));
            continue;
        }
        let pieces = pieces(&run).with_context(|| format!("looking into {}", path.display()))?;
        if !pieces.is_empty() {
            let begun = run.begun();
            cleaned.push(Cleaned { run, begun, pieces });
        }
    }
    if cleaned.is_empty() {
        say("there is nothing to delete");
        return Ok(());
    }
    say(listed(&cleaned));
    let sum = HumanBytes(cleaned.iter().map(Cleaned::bytes).sum());
    if !arguments.yes && !agree(&format!("delete {sum}?"))? {
        say("nothing is deleted");
        return Ok(());
    }
    let mut freed = 0;
    for cleaned in &cleaned {
        freed += delete(cleaned)?;
    }
    say(format_args!("freed {}", HumanBytes(freed)));
    Ok(())
}

/// Those that were named, or all.
fn runs(named: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    if !named.is_empty() {
        return Ok(named.to_owned());
    }
    let entries = fs::read_dir(RUNS).map_err(|_| {
        BadInput(format!(
            "there is no folder {RUNS}/; name the folders of runs"
        ))
    })?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut runs: Vec<PathBuf> = paths
        .filter(|path| path.join(run_files::CONFIG).is_file())
        .collect();
    runs.sort();
    Ok(runs)
}

/// Why nothing of a run may be touched; `None` if nobody works on it.
pub(crate) fn in_use(run: &FoundRun) -> anyhow::Result<Option<&'static str>> {
    if run.is_fleet() {
        return Ok(Some("it is a fleet, whose runs are folders of their own"));
    }
    if lock::is_held(&run.path) {
        return Ok(Some("it goes on"));
    }
    if run.ended().is_some() {
        return Ok(None);
    }
    if run.token().is_err() {
        let why = "it has not ended, and without its token nobody can ask whether it goes on";
        return Ok(Some(why));
    }
    // Who was killed has written no end, and processes may have outlived their launcher.
    let place = FoundRun::find(Some(&run.path))?;
    let standing = one_thread()?.block_on(Watcher::new(place).look());
    Ok((!standing.is_at_rest()).then_some("it has not ended, and may go on"))
}

/// What can be deleted.
fn pieces(run: &FoundRun) -> anyhow::Result<Vec<Piece>> {
    let has_completed = run.ended().is_some_and(|how| how == "completed");
    let mut pieces = Vec::new();
    // Snapshots of a run on a fleet are its servers'.
    if !run.is_on_fleet() {
        let folder = Folder::new(&run.path);
        for number in old_snapshots(run)? {
            let bytes = size::bytes(&folder.snapshot(&run.config.name, number));
            pieces.push(Piece {
                kind: Kind::Snapshots,
                is: Is::Snapshot(number),
                bytes,
            });
        }
        let milestones = milestone::folder(&run.path, &run.config.name);
        if has_completed && milestones.is_dir() {
            pieces.push(Piece::at(Kind::Milestones, milestones));
        }
    }
    for path in inside(&run.path.join("logs"))? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_kept = [run_files::CHECK_LOG, run_files::EVALUATE_LOG]
            .iter()
            .any(|kept| run.path.join(kept) == path);
        if name.ends_with(".log.1") || has_completed && name.ends_with(".log") && !is_kept {
            pieces.push(Piece::at(Kind::Logs, path));
        }
    }
    for path in inside(&run.path)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let number = name.strip_prefix(run_files::COORDINATOR);
        let number = number.and_then(|rest| rest.strip_prefix('-'));
        if number.is_some_and(|number| number.parse::<u32>().is_ok()) {
            pieces.push(Piece::at(Kind::Coordinators, path));
        }
    }
    Ok(pieces)
}

/// All but the newest whole snapshot, from which the run can go on. One that is newer and damaged stays:
/// somebody may repair it.
fn old_snapshots(run: &FoundRun) -> anyhow::Result<Vec<u64>> {
    let (folder, name) = (Folder::new(&run.path), &run.config.name);
    let all = folder.numbers(name)?;
    if all.len() < 2 {
        return Ok(Vec::new());
    }
    let (newest, damaged) = manifest::newest_whole::<IgnoredAny>(&folder, name, &mut |_, _| {})?;
    for error in damaged {
        say(format_args!(
            "{}: a damaged snapshot, left: {error}",
            run.path.display()
        ));
    }
    let Some(newest) = newest else {
        return Ok(Vec::new());
    };
    let is_unfinished = |number: u64| !folder.manifest(name, number).exists();
    let numbers = all.into_iter();
    let old = numbers.filter(|number| {
        *number < newest.number || *number > newest.number && is_unfinished(*number)
    });
    Ok(old.collect())
}

/// What is in a folder, in the order of the names; nothing if there is none.
fn inside(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry?.path());
    }
    paths.sort();
    Ok(paths)
}

impl Piece {
    fn at(kind: Kind, path: PathBuf) -> Self {
        Self {
            kind,
            bytes: size::bytes(&path),
            is: Is::Path(path),
        }
    }
}

impl Cleaned {
    fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }
}

/// A table: a row for each run and kind.
fn listed(cleaned: &[Cleaned]) -> String {
    let mut rows = Vec::new();
    for cleaned in cleaned {
        let mut kinds: BTreeMap<Kind, (usize, u64)> = BTreeMap::new();
        for piece in &cleaned.pieces {
            let (count, bytes) = kinds.entry(piece.kind).or_default();
            *count += 1;
            *bytes += piece.bytes;
        }
        rows.extend(kinds.into_iter().map(|(kind, (count, bytes))| {
            let run = cleaned.run.path.display().to_string();
            let bytes = HumanBytes(bytes).to_string();
            [run, kind.to_string(), count.to_string(), bytes]
        }));
    }
    let header = ["run", "what", "number", "size"];
    table::columns(header, rows).trim_end().to_owned()
}

/// Deletes what was told of a run, unless somebody has begun to work on it; how many bytes that was.
fn delete(cleaned: &Cleaned) -> anyhow::Result<u64> {
    let Cleaned { run, begun, pieces } = cleaned;
    let lock = lock::take(&run.path)?;
    if lock.is_none() || run.begun() != *begun {
        say(format_args!(
            "{}: left, for it goes on now",
            run.path.display()
        ));
        return Ok(0);
    }
    for piece in pieces {
        match &piece.is {
            Is::Snapshot(number) => {
                manifest::delete(&Folder::new(&run.path), &run.config.name, *number)?;
            }
            Is::Path(path) => {
                let deleted = match path.is_dir() {
                    true => fs::remove_dir_all(path),
                    false => fs::remove_file(path),
                };
                deleted.with_context(|| format!("cannot delete {}", path.display()))?;
            }
        }
    }
    Ok(cleaned.bytes())
}

/// Asks who sits at the terminal.
fn asked(question: &str) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() {
        bail!(BadInput(
            "there is nobody to ask; --yes deletes without asking".into()
        ));
    }
    log::print(&format!("{question} [y/N] "))?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tradewind_common::exit::Exit;
    use tradewind_server::snapshot::FORMAT;
    use tradewind_server::snapshot::manifest::Manifest;

    use super::*;

    const CONFIG: &str = r#"
        [run]
        name = "r"
        [data]
        files = ["t.nc"]
        variable = "t"
        validation = [20, 25]
        held_out = [30, 40]
        [train]
        samples = 100
        [optimizer]
        learning_rate = 0.1
    "#;

    /// A run with five snapshots, of which 3 is the newest whole one, 4 is unfinished and 5 damaged.
    fn run(root: &Path, name: &str, status: &str) -> PathBuf {
        let path = root.join(name);
        let write = |name: &str, text: &str| {
            let file = path.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write("config.toml", CONFIG);
        write("summary.json", &format!(r#"{{"status": "{status}"}}"#));
        write("metrics.jsonl", "");
        for log in [
            "server-0.log",
            "server-0.log.1",
            "server-0.address",
            "check.log",
            "evaluate.log",
        ] {
            write(&format!("logs/{log}"), "x");
        }
        write("coordinator/state-1.json", "x");
        write("coordinator-1/state-1.json", "x");
        write("milestones/r/000000000010/shard-0000.safetensors", "x");
        write("snapshots/r/00000004/shard-0000.safetensors", "x");
        let folder = Folder::new(&path);
        let run = FoundRun::find(Some(&path)).unwrap().config.name;
        for number in [1, 2, 3, 5] {
            let manifest = Manifest {
                format: FORMAT,
                run: run.clone(),
                number,
                written_at: 0.0,
                configuration: None,
                files: vec![],
                shards: vec![],
                data: (),
            };
            fs::create_dir_all(folder.snapshot(&run, number)).unwrap();
            manifest::write(&folder, &manifest).unwrap();
        }
        let damaged = folder.manifest(&run, 5);
        let text = fs::read_to_string(&damaged).unwrap();
        fs::write(damaged, text.replace("\"number\": 5", "\"number\": 6")).unwrap();
        path
    }

    /// What is in a run, from its folder on.
    fn files(run: &Path) -> Vec<String> {
        let mut folders = vec![run.to_owned()];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            for path in inside(&folder).unwrap() {
                match path.is_dir() {
                    true => folders.push(path),
                    false => files.push(path.strip_prefix(run).unwrap().display().to_string()),
                }
            }
        }
        files.retain(|file| file != ".lock");
        files.sort();
        files
    }

    fn cleaned(run: &Path, yes: bool) -> anyhow::Result<()> {
        let runs = vec![run.to_owned()];
        clean(&Arguments { runs, yes }, &mut |_| Ok(false))
    }

    const KEPT: &[&str] = &[
        "config.toml",
        "coordinator/state-1.json",
        "logs/check.log",
        "logs/evaluate.log",
        "logs/server-0.address",
        "metrics.jsonl",
        "snapshots/r/00000003/manifest.json",
        "snapshots/r/00000005/manifest.json",
        "summary.json",
    ];

    #[test]
    fn what_a_run_needs_stays() {
        let root = tempfile::tempdir().unwrap();
        let completed = run(root.path(), "a", "completed");
        let before = files(&completed);
        cleaned(&completed, false).unwrap();
        assert_eq!(files(&completed), before, "somebody has said no");
        cleaned(&completed, true).unwrap();
        assert_eq!(files(&completed), KEPT);
        // Whoever looks for what went wrong, or goes on, needs more.
        let failed = run(root.path(), "b", "failed");
        cleaned(&failed, true).unwrap();
        let mut kept: Vec<&str> = KEPT.to_vec();
        kept.push("logs/server-0.log");
        kept.push("milestones/r/000000000010/shard-0000.safetensors");
        kept.sort_unstable();
        assert_eq!(files(&failed), kept);
    }

    /// Waits until the lock is free: a child that another test starts just now has it until it runs its program.
    fn free(run: &Path) {
        let is_free = || {
            let is_free = !lock::is_held(run);
            if !is_free {
                std::thread::sleep(Duration::from_millis(50));
            }
            is_free
        };
        assert!((0..100).any(|_| is_free()));
    }

    #[test]
    fn a_run_that_goes_on_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let path = run(root.path(), "r", "completed");
        let before = files(&path);
        let launcher = lock::take(&path).unwrap();
        cleaned(&path, true).unwrap();
        assert_eq!(files(&path), before);
        drop(launcher);
        free(&path);
        // It is begun again while somebody is asked.
        let mut launcher = None;
        let arguments = Arguments {
            runs: vec![path.clone()],
            yes: false,
        };
        clean(&arguments, &mut |_| {
            launcher = lock::take(&path)?;
            Ok(true)
        })
        .unwrap();
        assert_eq!(files(&path), before);
        drop(launcher);
        free(&path);
        // Without an end, and with nobody to ask.
        fs::remove_file(path.join("summary.json")).unwrap();
        let before = files(&path);
        cleaned(&path, true).unwrap();
        assert_eq!(files(&path), before);
        // It was killed, long ago.
        fs::write(path.join("token"), "secret").unwrap();
        cleaned(&path, true).unwrap();
        assert!(!path.join("snapshots/r/00000001").exists());
        assert!(path.join("logs/server-0.log").exists());
    }

    #[test]
    fn nobody_is_taken_to_agree() {
        let root = tempfile::tempdir().unwrap();
        let error = runs(&[]).unwrap_err();
        assert_eq!(input::exit(&error), Exit::BadInput);
        let none = root.path().join("none");
        let error = cleaned(&none, true).unwrap_err();
        assert_eq!(input::exit(&error), Exit::BadInput);
        fs::create_dir(root.path().join("empty")).unwrap();
        let error = cleaned(&root.path().join("empty"), true).unwrap_err();
        assert!(error.to_string().contains("is no run's folder"), "{error}");
    }
}
