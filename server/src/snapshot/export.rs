//! Joins a snapshot into one file with the model's own tensors.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use safetensors::Dtype;
use serde::de::IgnoredAny;
use tradewind_common::{BlockId, Layout, RunId, ShardId};

use super::container::header;
use super::manifest::{self, Manifest};
use super::read::check_values;
use super::shard_file::for_each_block;
use super::{Damaged, Folder, notes};
use crate::disk::{self, Part};

/// Why there is no export.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The snapshot cannot be used.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// The file cannot be written.
    #[error("cannot write {0}")]
    Disk(#[from] io::Error),
}

/// Where a tensor goes: in the flat vector and in the file.
struct TensorPlace {
    flat: Range<usize>,
    offset: u64,
}

/// Writes the values of snapshot `number` as safetensors to `target`: f32, under the tensors' own
/// names and with their shapes, in name order, with `metadata` in the header. Holds one block at a
/// time in memory. The file is there whole or not at all.
pub fn export(
    folder: &Folder,
    run: &RunId,
    number: u64,
    layout: &Layout,
    metadata: HashMap<String, String>,
    target: &Path,
) -> Result<(), ExportError> {
    let manifest: Manifest<IgnoredAny> = manifest::read(folder, run, number)?;
    let path = folder.manifest(run, number);
    if manifest.shards.len() != layout.blocks.len() {
        let (has, wants) = (manifest.shards.len(), layout.blocks.len());
        let what = format!("the snapshot has {has} blocks, the run {wants}");
        return Err(Damaged::new(&path, what).into());
    }
    let part = Part::beside(target)?;
    let places = begin(layout, metadata, part.file()).map_err(disk::at(part.path()))?;
    for shard in (0..manifest.files.len() as u32).map(ShardId) {
        let all = manifest.shards.iter().zip(&layout.blocks);
        let own = all.filter(|(of, _)| **of == shard).map(|(_, b)| b.id);
        let mut missing: BTreeSet<BlockId> = own.collect();
        let file = manifest.file(&path, shard)?;
        let at = folder.snapshot(run, number).join(&file.name);
        let mut failure = None;
        let wanted = missing.clone();
        let read = for_each_block(&at, file, &notes(run, number, shard), &wanted, |state| {
            let block = check_values(&state, layout)?;
            missing.remove(&state.id);
            let elements = block.elements.clone();
            put(part.file(), &places, elements, &state.values).map_err(|error| {
                let text = error.to_string();
                failure = Some(error);
                text
            })
        });
        if let Some(error) = failure {
            return Err(disk::at(part.path())(error).into());
        }
        read.map_err(|what| Damaged::new(&at, what))?;
        if let Some(block) = missing.first() {
            return Err(Damaged::new(&at, format!("block {block} is missing")).into());
        }
    }
    Ok(part.publish(target)?)
}

/// Writes the header; says where each tensor goes, in flat order.
fn begin(
    layout: &Layout,
    metadata: HashMap<String, String>,
    file: &File,
) -> io::Result<Vec<TensorPlace>> {
    let mut named: Vec<_> = layout.tensors.iter().collect();
    named.sort_by_key(|tensor| &tensor.spec.name);
    let header = header(
        metadata,
        named.iter().map(|tensor| {
            let shape = tensor.spec.shape.iter().map(|extent| *extent as usize);
            (tensor.spec.name.clone(), Dtype::F32, shape.collect())
        }),
    )?;
    file.write_all_at(&header, 0)?;
    let mut offset = header.len() as u64;
    let mut places = Vec::new();
    for tensor in named {
        let flat = tensor.elements.clone();
        let bytes = flat.len() as u64 * 4;
        places.push(TensorPlace { flat, offset });
        offset += bytes;
    }
    places.sort_by_key(|place| place.flat.start);
    Ok(places)
}

/// Writes the values of one range of the flat vector, which may be of several tensors.
fn put(file: &File, places: &[TensorPlace], range: Range<usize>, values: &[f32]) -> io::Result<()> {
    let first = places.partition_point(|place| place.flat.end <= range.start);
    for place in &places[first..] {
        let begin = place.flat.start.max(range.start);
        let end = place.flat.end.min(range.end);
        if begin >= end {
            break;
        }
        let offset = place.offset + (begin - place.flat.start) as u64 * 4;
        let piece = &values[begin - range.start..end - range.start];
        file.write_all_at(bytemuck::cast_slice(piece), offset)?;
    }
    Ok(())
}
