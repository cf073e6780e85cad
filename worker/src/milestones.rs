//! Evaluates the parameters that servers have saved on the way ([`tradewind_common::milestone`]).

use std::path::Path;

use anyhow::{Context, bail};
use safetensors::SafeTensors;
use tradewind_common::milestone::{SAMPLES_MAX, SAMPLES_MIN, UPDATES, WALL, folder};
use tradewind_common::record::Validation;
use tradewind_common::{BlockId, Layout, RunId};

use crate::data::Split;
use crate::flat::Flat;
use crate::model::Task;

/// What a milestone's files say besides its values.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Notes {
    wall: f64,
    updates: u64,
    samples: (u64, u64),
}

/// Evaluates every whole milestone of a run on the validation split, in the order of their samples.
/// One that is not whole is told and left out.
///
/// # Errors
/// Data that cannot be read, or a folder.
pub fn evaluate(
    fleet: &Path,
    run: &RunId,
    layout: &Layout,
    flat: &mut Flat,
    task: &dyn Task,
) -> anyhow::Result<Vec<Validation>> {
    let mut numbered = Vec::new();
    let all = folder(fleet, run);
    if all.is_dir() {
        for entry in std::fs::read_dir(&all)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            if let Some(samples) = name.and_then(|name| name.parse::<u64>().ok()) {
                numbered.push((samples, path));
            }
        }
    }
    numbered.sort();
    let mut validations = Vec::new();
    for (samples, path) in numbered {
        match load(&path, layout, flat.values_mut()) {
            Ok(notes) => validations.push(Validation {
                samples,
                samples_applied: notes.samples,
                updates: notes.updates,
                wall: notes.wall,
                measure: task.measure(Split::Validation)?,
            }),
            Err(error) => tracing::warn!("a milestone is left out: {error:#}"),
        }
    }
    Ok(validations)
}

/// Deletes the milestones of a run.
pub fn remove(fleet: &Path, run: &RunId) -> anyhow::Result<()> {
    let all = folder(fleet, run);
    match std::fs::remove_dir_all(&all) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", all.display()))
        }
        _ => Ok(()),
    }
}

/// Reads all blocks of a milestone into `values`.
fn load(milestone: &Path, layout: &Layout, values: &mut [f32]) -> anyhow::Result<Notes> {
    let mut missing: std::collections::BTreeSet<BlockId> =
        layout.blocks.iter().map(|block| block.id).collect();
    let mut together: Option<Notes> = None;
    for entry in std::fs::read_dir(milestone)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "safetensors") {
            continue;
        }
        let bytes = std::fs::read(&path)?;
        let found = take(&bytes, layout, values, &mut missing);
        let own = found.with_context(|| path.display().to_string())?;
        together = Some(match together {
            None => own,
            Some(known) => Notes {
                wall: known.wall.max(own.wall),
                updates: known.updates.max(own.updates),
                samples: (
                    known.samples.0.min(own.samples.0),
                    known.samples.1.max(own.samples.1),
                ),
            },
        });
    }
    if let Some(block) = missing.first() {
        bail!("{}: block {block} is missing", milestone.display());
    }
    together.with_context(|| format!("{} has no files", milestone.display()))
}

/// Takes the blocks of one shard's file.
fn take(
    bytes: &[u8],
    layout: &Layout,
    values: &mut [f32],
    missing: &mut std::collections::BTreeSet<BlockId>,
) -> anyhow::Result<Notes> {
    let (_, header) = SafeTensors::read_metadata(bytes)?;
    let notes = header.metadata().clone().unwrap_or_default();
    let note = |name: &str| notes.get(name).with_context(|| format!("it has no {name:?}"));
    for (name, tensor) in SafeTensors::deserialize(bytes)?.tensors() {
        let id = BlockId(name.parse().with_context(|| format!("{name:?} is no block"))?);
        let block = layout.block(id).with_context(|| format!("the run has no block {id}"))?;
        let to = &mut values[block.elements.clone()];
        if tensor.data().len() != size_of_val(to) {
            bail!("block {id} has {} bytes where {} belong", tensor.data().len(), size_of_val(to));
        }
        bytemuck::cast_slice_mut(to).copy_from_slice(tensor.data());
        missing.remove(&id);
    }
    Ok(Notes {
        wall: note(WALL)?.parse()?,
        updates: note(UPDATES)?.parse()?,
        samples: (note(SAMPLES_MIN)?.parse()?, note(SAMPLES_MAX)?.parse()?),
    })
}
