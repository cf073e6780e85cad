//! `tradewind export`: joins a snapshot into one file of the model's own tensors.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde::Deserialize;
use tradewind_common::RunId;
use tradewind_common::layout::Layout;
use tradewind_common::spec::RunSpec;
use tradewind_server::snapshot::manifest::{self, Manifest};
use tradewind_server::snapshot::{Damaged, Folder, export};

use crate::place::Place;
use crate::say;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The run's folder; the newest in runs/ if not given.
    run_folder: Option<PathBuf>,
    /// Number of the snapshot; the newest if not given.
    #[arg(long, value_name = "N")]
    snapshot: Option<u64>,
    /// The file to write.
    #[arg(long, value_name = "FILE", default_value = "model.safetensors")]
    out: PathBuf,
}

/// What an export needs of what the coordinator has written into a manifest.
#[derive(Debug, Deserialize)]
struct Known {
    spec: RunSpec,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match export(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn export(arguments: &Arguments) -> anyhow::Result<()> {
    let place = Place::find(arguments.run_folder.as_deref())?;
    let name = &place.config.name;
    let folder = Folder::new(&place.path);
    let numbers = manifest::list(&folder, name)
        .with_context(|| format!("cannot look into {}", folder.run(name).display()))?;
    let number = choose(&numbers, arguments.snapshot)
        .with_context(|| format!("run {name} in {}", place.path.display()))?;
    write(&folder, name, number, &arguments.out).map_err(|error| {
        let others: Vec<String> = others(&numbers, number);
        match others.is_empty() {
            true => error,
            false => error.context(format!(
                "snapshot {number} is not exported; there are others (--snapshot {})",
                others.join(", ")
            )),
        }
    })?;
    say(format_args!(
        "snapshot {number} of run {name} is in {}",
        arguments.out.display()
    ));
    Ok(())
}

/// The snapshot that was asked for, or the newest.
fn choose(numbers: &[u64], wanted: Option<u64>) -> anyhow::Result<u64> {
    let Some(newest) = numbers.last() else {
        bail!("there is no whole snapshot");
    };
    match wanted {
        None => Ok(*newest),
        Some(wanted) if numbers.contains(&wanted) => Ok(wanted),
        Some(wanted) => bail!(
            "there is no whole snapshot {wanted}; there is {}",
            others(numbers, wanted).join(", ")
        ),
    }
}

/// All other snapshots, newest first.
fn others(numbers: &[u64], than: u64) -> Vec<String> {
    let others = numbers.iter().rev().filter(|number| **number != than);
    others.map(u64::to_string).collect()
}

fn write(folder: &Folder, run: &RunId, number: u64, out: &Path) -> anyhow::Result<()> {
    let manifest: Manifest<Known> = manifest::read(folder, run, number)?;
    let layout = layout(&manifest, folder)?;
    let mut metadata = HashMap::from([
        ("run".to_owned(), run.to_string()),
        ("snapshot".to_owned(), number.to_string()),
    ]);
    // It tells how the model is made that the tensors are of.
    metadata.extend(
        manifest
            .configuration
            .map(|text| ("configuration".to_owned(), text)),
    );
    export::export(folder, run, number, &layout, metadata, out)?;
    Ok(())
}

fn layout(manifest: &Manifest<Known>, folder: &Folder) -> Result<Layout, Damaged> {
    manifest.data.spec.check().map_err(|error| Damaged {
        path: folder.manifest(&manifest.run, manifest.number),
        what: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_snapshot_is_meant_unless_another_is_named() {
        let choose = |numbers: &[u64], wanted| choose(numbers, wanted).map_err(|e| e.to_string());
        assert_eq!(choose(&[3, 5, 9], None), Ok(9));
        assert_eq!(choose(&[3, 5, 9], Some(5)), Ok(5));
        let error = "there is no whole snapshot 4; there is 9, 5, 3".to_owned();
        assert_eq!(choose(&[3, 5, 9], Some(4)), Err(error));
        let error = "there is no whole snapshot".to_owned();
        assert_eq!(choose(&[], Some(4)), Err(error));
    }
}
