//! Evaluates the parameters that servers have saved on the way ([`tradewind_common::milestone`]).

use std::path::Path;

use anyhow::{Context, bail};
use safetensors::SafeTensors;
use tradewind_common::milestone::{SAMPLES_MAX, SAMPLES_MIN, UPDATES, WALL, folder};
use tradewind_common::record::{Measure, Validation};
use tradewind_common::{BlockId, Layout, RunId};
use tradewind_process::whole;

use crate::saving::mapped;

/// What a milestone's files say besides its values.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Notes {
    wall: f64,
    updates: u64,
    samples: (u64, u64),
}

/// Which blocks of a milestone are read.
pub type Wanted<'a> = &'a dyn Fn(BlockId) -> bool;

/// What `measure` finds of the flat vector of every whole milestone of a run, in the order of their
/// samples; of the vector the `wanted` blocks are read. One that is not whole is told and left out.
///
/// # Errors
/// A folder that cannot be read, or what `measure` fails with.
pub fn evaluate(
    fleet: &Path,
    run: &RunId,
    layout: &Layout,
    wanted: Wanted<'_>,
    measure: &mut dyn FnMut(&[f32]) -> anyhow::Result<Measure>,
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
    // Of these zeros only what is read becomes memory.
    let mut values = vec![0.0; layout.elements()];
    let mut validations = Vec::new();
    for (samples, path) in numbered {
        match load(&path, layout, wanted, &mut values) {
            Ok(notes) => validations.push(Validation {
                samples,
                samples_applied: notes.samples,
                updates: notes.updates,
                wall: notes.wall,
                measure: measure(&values)?,
            }),
            Err(error) => tracing::warn!("a milestone is left out: {error:#}"),
        }
    }
    Ok(validations)
}

/// The same into `validation.jsonl` in the folder `out`; then the milestones are deleted.
///
/// # Errors
/// As with [`evaluate`], and what the disk refuses.
pub fn record(
    fleet: &Path,
    run: &RunId,
    layout: &Layout,
    out: &Path,
    wanted: Wanted<'_>,
    measure: &mut dyn FnMut(&[f32]) -> anyhow::Result<Measure>,
) -> anyhow::Result<()> {
    let validations = evaluate(fleet, run, layout, wanted, measure)?;
    let lines = validations
        .iter()
        .map(|v| Ok(serde_json::to_string(v)? + "\n"));
    let text = lines.collect::<anyhow::Result<String>>()?;
    whole::write(&out.join("validation.jsonl"), text)?;
    remove(fleet, run)
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

/// Reads the wanted blocks of a milestone, which has all, into `values`.
fn load(
    milestone: &Path,
    layout: &Layout,
    wanted: Wanted<'_>,
    values: &mut [f32],
) -> anyhow::Result<Notes> {
    let mut missing: std::collections::BTreeSet<BlockId> =
        layout.blocks.iter().map(|block| block.id).collect();
    let mut together: Option<Notes> = None;
    for entry in std::fs::read_dir(milestone)? {
        let path = entry?.path();
        if path
            .extension()
            .is_none_or(|extension| extension != "safetensors")
        {
            continue;
        }
        let file = mapped(&path)?;
        let found = take(&file, layout, wanted, values, &mut missing);
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

/// Takes the wanted blocks of one shard's file.
fn take(
    bytes: &[u8],
    layout: &Layout,
    wanted: Wanted<'_>,
    values: &mut [f32],
    missing: &mut std::collections::BTreeSet<BlockId>,
) -> anyhow::Result<Notes> {
    let (_, header) = SafeTensors::read_metadata(bytes)?;
    let notes = header.metadata().clone().unwrap_or_default();
    let note = |name: &str| {
        notes
            .get(name)
            .with_context(|| format!("it has no {name:?}"))
    };
    for (name, tensor) in SafeTensors::deserialize(bytes)?.tensors() {
        let id = BlockId(
            name.parse()
                .with_context(|| format!("{name:?} is no block"))?,
        );
        let block = layout
            .block(id)
            .with_context(|| format!("the run has no block {id}"))?;
        let to = &mut values[block.elements.clone()];
        if tensor.data().len() != size_of_val(to) {
            bail!(
                "block {id} has {} bytes where {} belong",
                tensor.data().len(),
                size_of_val(to)
            );
        }
        if wanted(id) {
            bytemuck::cast_slice_mut(to).copy_from_slice(tensor.data());
        }
        missing.remove(&id);
    }
    Ok(Notes {
        wall: note(WALL)?.parse()?,
        updates: note(UPDATES)?.parse()?,
        samples: (note(SAMPLES_MIN)?.parse()?, note(SAMPLES_MAX)?.parse()?),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use safetensors::Dtype;
    use safetensors::tensor::TensorView;
    use tradewind_common::milestone::Milestone;
    use tradewind_common::{ShardId, TensorKind, TensorSpec};

    use super::*;

    /// Twelve elements in blocks of four.
    fn layout() -> Layout {
        let tensor = TensorSpec {
            name: "w".into(),
            shape: vec![12],
            kind: TensorKind::Parameter,
        };
        Layout::new(&[tensor], 16).unwrap()
    }

    /// Leaves a shard's file with these blocks, all of whose values are `value`.
    fn leave(path: &Path, blocks: &[(u32, usize)], value: f32, notes: [&str; 4]) {
        let values: Vec<Vec<u8>> = blocks
            .iter()
            .map(|b| value.to_le_bytes().repeat(b.1))
            .collect();
        let views = blocks.iter().zip(&values).map(|((id, length), bytes)| {
            let view = TensorView::new(Dtype::F32, vec![*length], bytes).unwrap();
            (id.to_string(), view)
        });
        let names = [WALL, UPDATES, SAMPLES_MIN, SAMPLES_MAX].map(str::to_owned);
        let notes: HashMap<_, _> = names.into_iter().zip(notes.map(str::to_owned)).collect();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, safetensors::serialize(views, Some(notes)).unwrap()).unwrap();
    }

    #[test]
    fn whole_milestones_are_measured_in_order() {
        let root = tempfile::tempdir().unwrap();
        let run = RunId::new("r").unwrap();
        let file =
            |samples, shard| Milestone::new(root.path(), &run, samples).shard(ShardId(shard));
        leave(
            &file(200, 0),
            &[(0, 4), (1, 4)],
            2.0,
            ["11.5", "20", "200", "204"],
        );
        leave(&file(200, 1), &[(2, 4)], 3.0, ["12.5", "19", "201", "202"]);
        leave(
            &file(100, 0),
            &[(0, 4), (1, 4), (2, 4)],
            1.0,
            ["7", "10", "100", "100"],
        );
        // Not whole, or not of this run.
        leave(
            &file(300, 0),
            &[(0, 4), (1, 4)],
            9.0,
            ["13", "30", "300", "300"],
        );
        leave(
            &file(400, 0),
            &[(0, 4), (1, 4), (2, 3)],
            9.0,
            ["14", "40", "400", "400"],
        );
        let mut measure = |values: &[f32]| {
            Ok(Measure {
                name: "sum".into(),
                unit: String::new(),
                value: values.iter().map(|x| f64::from(*x)).sum(),
            })
        };
        let found = evaluate(root.path(), &run, &layout(), &|_| true, &mut measure).unwrap();
        let told: Vec<_> = found
            .iter()
            .map(|v| {
                (
                    v.samples,
                    v.samples_applied,
                    v.updates,
                    v.wall,
                    v.measure.value,
                )
            })
            .collect();
        let want = [
            (100, (100, 100), 10, 7.0, 12.0),
            (200, (200, 204), 20, 12.5, 28.0),
        ];
        assert_eq!(told, want);
        // A rank that needs one block reads it alone, and leaves out the same milestones.
        let last = |id| id == BlockId(2);
        let found = evaluate(root.path(), &run, &layout(), &last, &mut measure).unwrap();
        let sums: Vec<_> = found.iter().map(|v| v.measure.value).collect();
        assert_eq!(sums, [4.0, 12.0]);
        remove(root.path(), &run).unwrap();
        remove(root.path(), &run).unwrap();
        assert!(
            evaluate(root.path(), &run, &layout(), &|_| true, &mut measure)
                .unwrap()
                .is_empty()
        );
    }
}
