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

use tradewind_folder::found::FoundRun;
use tradewind_folder::input;
use tradewind_process::Docs;
use tradewind_process::log::say;

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
        Err(error) => input::fail(&error, Docs::SNAPSHOTS).into(),
    }
}

fn export(arguments: &Arguments) -> anyhow::Result<()> {
    let place = FoundRun::find(arguments.run_folder.as_deref())?;
    let name = &place.config.name;
    let folder = Folder::new(&place.fleet);
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
            "there is no whole snapshot {wanted}; there are {}",
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
        may_pass: false,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::sync::Arc;

    use safetensors::SafeTensors;
    use serde::Serialize;
    use tradewind_common::placement::Placement;
    use tradewind_common::{ShardId, TensorKind, TensorSpec};
    use tradewind_core::state::BlockState;
    use tradewind_server::snapshot::{FORMAT, write};

    use super::*;

    const CONFIG: &str = "run.name = \"r\"\ndata.files = [\"x\"]\ndata.variable = \"x\"\n\
        data.validation = [1, 2]\ndata.held_out = [2, 3]\ntrain.samples = 8\n\
        optimizer.learning_rate = 0.1\nexchange.block_bytes = 16\n";

    #[derive(Serialize)]
    struct Data {
        spec: RunSpec,
    }

    /// A folder with snapshots of two tensors on two shards; all values are the snapshot's number.
    fn snapshots(root: &Path, numbers: &[u64]) {
        fs::write(root.join("config.toml"), CONFIG).unwrap();
        let place = FoundRun::find(Some(root)).unwrap();
        let tensor = |name: &str, shape: &[u64]| TensorSpec {
            name: name.into(),
            shape: shape.into(),
            kind: TensorKind::Parameter,
        };
        let tensors = vec![tensor("b", &[2, 5]), tensor("a", &[3])];
        let spec = place.config.spec(tensors, 8);
        let layout = spec.check().unwrap();
        let placement = Placement::by_bytes(&layout, 2);
        let folder = Folder::new(root);
        for &number in numbers {
            let of = |shard: &ShardId| {
                let own = layout.blocks.iter().zip(placement.shards());
                let own = own
                    .filter(|(_, of)| *of == shard)
                    .map(|(block, _)| BlockState {
                        id: block.id,
                        values: Arc::new(vec![number as f32; block.elements.len()]),
                        slots: vec![],
                        version: 1,
                        samples_applied: 8,
                        decided: BTreeMap::new(),
                    });
                let blocks: Vec<BlockState> = own.collect();
                write::shard(&folder, &place.config.name, number, *shard, &blocks).unwrap()
            };
            let manifest = Manifest {
                format: FORMAT,
                run: place.config.name.clone(),
                number,
                written_at: 0.0,
                configuration: folder.configuration(),
                files: [ShardId(0), ShardId(1)].iter().map(of).collect(),
                shards: placement.shards().to_vec(),
                data: Data { spec: spec.clone() },
            };
            manifest::write(&folder, &manifest).unwrap();
        }
    }

    fn arguments(root: &Path, snapshot: Option<u64>) -> Arguments {
        Arguments {
            run_folder: Some(root.to_owned()),
            snapshot,
            out: root.join("model.safetensors"),
        }
    }

    #[test]
    fn a_snapshot_becomes_one_file_of_the_models_tensors() {
        let root = tempfile::tempdir().unwrap();
        snapshots(root.path(), &[3, 4]);
        for (wanted, number) in [(Some(3), 3.0_f32), (None, 4.0)] {
            let arguments = arguments(root.path(), wanted);
            export(&arguments).unwrap();
            let bytes = fs::read(&arguments.out).unwrap();
            let model = SafeTensors::deserialize(&bytes).unwrap();
            let tensor = model.tensor("b").unwrap();
            assert_eq!(tensor.shape(), [2, 5]);
            assert_eq!(tensor.data(), number.to_le_bytes().repeat(10));
            assert_eq!(model.tensor("a").unwrap().shape(), [3]);
        }
    }

    #[test]
    fn a_damaged_snapshot_is_named_beside_the_others() {
        let root = tempfile::tempdir().unwrap();
        snapshots(root.path(), &[3, 4]);
        let place = FoundRun::find(Some(root.path())).unwrap();
        let folder = Folder::new(root.path()).snapshot(&place.config.name, 4);
        let file = folder.join("shard-0001.safetensors");
        let mut bytes = fs::read(&file).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&file, bytes).unwrap();
        let arguments = arguments(root.path(), None);
        let error = format!("{:#}", export(&arguments).unwrap_err());
        let wanted = "snapshot 4 is not exported; there are others (--snapshot 3): ";
        assert!(error.starts_with(wanted), "{error}");
        assert!(error.contains("shard-0001.safetensors"), "{error}");
        assert!(!arguments.out.exists());
    }

    #[test]
    fn the_newest_snapshot_is_meant_unless_another_is_named() {
        let choose = |numbers: &[u64], wanted| choose(numbers, wanted).map_err(|e| e.to_string());
        assert_eq!(choose(&[3, 5, 9], None), Ok(9));
        assert_eq!(choose(&[3, 5, 9], Some(5)), Ok(5));
        let error = "there is no whole snapshot 4; there are 9, 5, 3".to_owned();
        assert_eq!(choose(&[3, 5, 9], Some(4)), Err(error));
        let error = "there is no whole snapshot".to_owned();
        assert_eq!(choose(&[], Some(4)), Err(error));
    }
}
