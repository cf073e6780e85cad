//! Reads blocks back from a snapshot, and believes nothing: lengths and checksums are those of the
//! manifest, numbers are those of the layout.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use safetensors::tensor::{Metadata, TensorInfo};
use serde::de::IgnoredAny;
use tradewind_common::finite::all_finite;
use tradewind_common::layout::Block;
use tradewind_common::{BlockId, Clock, GroupId, Incarnation, Layout, RunId, ShardId, TensorKind};

use super::container::{Hashing, read_header};
use super::manifest::{self, Manifest};
use super::write::{BLOCK_COLUMNS, DECIDED_COLUMNS, VERDICTS, slot_name, values_name};
use super::{Damaged, Folder, notes};
use crate::core::block::Decided;
use crate::core::order::ShardFile;
use crate::core::state::BlockState;

/// The wanted blocks of a snapshot, in the order of `wanted`, from whatever files hold them; no
/// other file is looked at. `slots` is what the run's optimizer keeps for each parameter.
pub fn blocks(
    folder: &Folder,
    run: &RunId,
    number: u64,
    wanted: &[BlockId],
    layout: &Layout,
    slots: usize,
) -> Result<Vec<BlockState>, Damaged> {
    let manifest: Manifest<IgnoredAny> = manifest::read(folder, run, number)?;
    let path = folder.manifest(run, number);
    if manifest.shards.len() != layout.blocks.len() {
        let (has, wants) = (manifest.shards.len(), layout.blocks.len());
        let what = format!("the snapshot has {has} blocks, the run {wants}");
        return Err(Damaged::new(&path, what));
    }
    let mut files: BTreeMap<ShardId, BTreeSet<BlockId>> = BTreeMap::new();
    for block in wanted {
        let shard = manifest.shards.get(block.0 as usize);
        let shard = shard.ok_or_else(|| Damaged::new(&path, format!("has no block {block}")))?;
        files.entry(*shard).or_default().insert(*block);
    }
    let mut found = BTreeMap::new();
    for (shard, wanted) in &files {
        let file = manifest.file(&path, *shard)?;
        let at = folder.snapshot(run, number).join(&file.name);
        visit(&at, file, &notes(run, number, *shard), wanted, |state| {
            check(&state, layout, slots)?;
            found.insert(state.id, state);
            Ok(())
        })
        .map_err(|what| Damaged::new(&at, what))?;
        if let Some(missing) = wanted.iter().find(|id| !found.contains_key(id)) {
            return Err(Damaged::new(&at, format!("block {missing} is missing")));
        }
    }
    // Cheap: values and slots are shared.
    Ok(wanted.iter().map(|id| found[id].clone()).collect())
}

/// What [`newest`] found.
#[derive(Clone, Debug, PartialEq)]
pub struct Restored {
    /// The snapshot.
    pub number: u64,
    /// The wanted blocks.
    pub states: Vec<BlockState>,
    /// Newer snapshots that were passed over: the file, and what is wrong with it.
    pub damaged: Vec<String>,
}

/// There is no snapshot that could be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no snapshot can be used{}", self.damaged.iter().map(|d| format!("; {d}")).collect::<String>())]
pub struct NoneLeft {
    /// Those that there are: the file, and what is wrong with it.
    pub damaged: Vec<String>,
}

/// The wanted blocks from the newest snapshot up to `upto` that holds them undamaged; with `only`,
/// from no other than `upto`.
pub fn newest(
    folder: &Folder,
    run: &RunId,
    (upto, only): (u64, bool),
    wanted: &[BlockId],
    layout: &Layout,
    slots: usize,
) -> Result<Restored, NoneLeft> {
    let mut damaged = Vec::new();
    let numbers = match only {
        true => vec![upto],
        false => manifest::list(folder, run).unwrap_or_else(|error| {
            damaged.push(error.to_string());
            Vec::new()
        }),
    };
    for number in numbers.into_iter().rev().filter(|number| *number <= upto) {
        match blocks(folder, run, number, wanted, layout, slots) {
            Ok(states) => {
                return Ok(Restored {
                    number,
                    states,
                    damaged,
                });
            }
            Err(error) => damaged.push(error.to_string()),
        }
    }
    Err(NoneLeft { damaged })
}

/// Reads a shard's file from front to back, once, and hands out its wanted blocks. They count only
/// when it has returned without an error: the checksum is known at the end.
pub(super) fn visit(
    path: &Path,
    file: &ShardFile,
    named: &[(&str, String)],
    wanted: &BTreeSet<BlockId>,
    mut each: impl FnMut(BlockState) -> Result<(), String>,
) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot be read: {error}");
    let opened = File::open(path).map_err(failed)?;
    let length = opened.metadata().map_err(failed)?.len();
    if length != file.bytes {
        return Err(format!(
            "it has {length} bytes, in the manifest it has {}",
            file.bytes
        ));
    }
    let mut from = Hashing::new(BufReader::with_capacity(1 << 20, opened));
    let header = read_header(&mut from, length)?;
    check_notes(&header, named)?;
    let tables = Tables::read(&mut from, &header, wanted)?;
    for (id, (version, samples_applied)) in tables.blocks {
        let mut take = |name: &str| vector(&mut from, &header, name, wanted.contains(&id));
        let values = take(&values_name(id))?.ok_or(format!("block {id} has no values"))?;
        let mut slots = Vec::new();
        while let Some(slot) = take(&slot_name(id, slots.len()))? {
            slots.push(Arc::new(slot));
        }
        if wanted.contains(&id) {
            each(BlockState {
                id,
                values: Arc::new(values),
                slots,
                version,
                samples_applied,
                decided: tables.decided.get(&id).cloned().unwrap_or_default(),
            })?;
        }
    }
    skip(&mut from, u64::MAX).map_err(failed)?;
    if from.result() != (file.bytes, file.digest.clone()) {
        return Err("its bytes do not have the checksum of the manifest".to_owned());
    }
    Ok(())
}

/// Whether a block is as long as the layout says, in values that may be used; the layout's block.
pub(super) fn check_values<'a>(
    state: &BlockState,
    layout: &'a Layout,
) -> Result<&'a Block, String> {
    let id = state.id;
    let block = layout.block(id).ok_or(format!("there is no block {id}"))?;
    let length = block.elements.len();
    let vectors = std::iter::once(&state.values).chain(&state.slots);
    if let Some(bad) = vectors.map(|vector| vector.len()).find(|n| *n != length) {
        return Err(format!("block {id} has {bad} values where {length} belong"));
    }
    // Slots may be infinite where values are sound: squares overflow first.
    if !all_finite(&state.values) {
        return Err(format!("block {id} has a value that is not finite"));
    }
    Ok(block)
}

fn check(state: &BlockState, layout: &Layout, slots: usize) -> Result<(), String> {
    let wants = match check_values(state, layout)?.kind {
        TensorKind::Parameter => slots,
        TensorKind::Buffer => 0,
    };
    let (id, has) = (state.id, state.slots.len());
    if has == wants {
        Ok(())
    } else {
        Err(format!(
            "block {id} has {has} optimizer slots where {wants} belong"
        ))
    }
}

fn check_notes(header: &Metadata, named: &[(&str, String)]) -> Result<(), String> {
    for (key, want) in named {
        let has = header.metadata().as_ref().and_then(|notes| notes.get(*key));
        if has != Some(want) {
            let has = has.map_or("nothing", |has| has);
            return Err(format!("its {key} is {has}, not {want}"));
        }
    }
    Ok(())
}

/// The two tables at the beginning of a shard's file.
struct Tables {
    /// Version and samples applied.
    blocks: BTreeMap<BlockId, (u64, u64)>,
    /// Of the wanted blocks.
    decided: BTreeMap<BlockId, BTreeMap<GroupId, (Incarnation, Decided)>>,
}

impl Tables {
    fn read(
        from: &mut impl Read,
        header: &Metadata,
        wanted: &BTreeSet<BlockId>,
    ) -> Result<Self, String> {
        let mut blocks = BTreeMap::new();
        let mut last = None;
        rows(from, header, "blocks", |row: [u64; BLOCK_COLUMNS]| {
            let id = BlockId(number(row[0])?);
            // The values follow in this order.
            if last.replace(id) >= Some(id) {
                return Err(format!("its table of blocks is out of order at block {id}"));
            }
            blocks.insert(id, (row[1], row[2]));
            Ok(())
        })?;
        let mut decided: BTreeMap<BlockId, BTreeMap<_, _>> = BTreeMap::new();
        rows(from, header, "decided", |row: [u64; DECIDED_COLUMNS]| {
            let id = BlockId(number(row[0])?);
            let verdict = VERDICTS.get(number::<usize>(row[4])?);
            let one = Decided {
                clock: Clock(row[3]),
                verdict: *verdict.ok_or(format!("it has an unknown verdict {}", row[4]))?,
                delay: row[5],
            };
            if wanted.contains(&id) {
                let of = decided.entry(id).or_default();
                of.insert(GroupId(number(row[1])?), (Incarnation(row[2]), one));
            }
            Ok(())
        })?;
        Ok(Self { blocks, decided })
    }
}

fn number<T: TryFrom<u64>>(number: u64) -> Result<T, String> {
    T::try_from(number).map_err(|_| format!("its tables have a number that is too large: {number}"))
}

/// Reads a table row by row: it may be larger than what is wanted of it.
fn rows<const COLUMNS: usize>(
    from: &mut impl Read,
    header: &Metadata,
    name: &str,
    mut each: impl FnMut([u64; COLUMNS]) -> Result<(), String>,
) -> Result<(), String> {
    let info = header
        .info(name)
        .ok_or(format!("it has no tensor {name}"))?;
    if info.dtype != safetensors::Dtype::U64 || info.shape.get(1..) != Some(&[COLUMNS]) {
        return Err(format!("its tensor {name} is not a table of u64"));
    }
    for _ in 0..info.shape[0] {
        let mut row = [0u64; COLUMNS];
        let read = from.read_exact(bytemuck::cast_slice_mut(&mut row));
        read.map_err(|error| format!("cannot be read: {error}"))?;
        each(row)?;
    }
    Ok(())
}

/// Reads a tensor of the header; empty if it is not wanted. `None` if there is none of this name.
fn vector(
    from: &mut impl Read,
    header: &Metadata,
    name: &str,
    wanted: bool,
) -> Result<Option<Vec<f32>>, String> {
    let Some(TensorInfo { dtype, shape, .. }) = header.info(name) else {
        return Ok(None);
    };
    let [length] = shape[..] else {
        return Err(format!("its tensor {name} is not a vector"));
    };
    if *dtype != safetensors::Dtype::F32 {
        return Err(format!("its tensor {name} is not of f32"));
    }
    let failed = |error: io::Error| format!("cannot be read: {error}");
    if !wanted {
        return skip(from, length as u64 * 4)
            .map(|()| Some(Vec::new()))
            .map_err(failed);
    }
    let mut values = vec![0f32; length];
    from.read_exact(bytemuck::cast_slice_mut(&mut values))
        .map_err(failed)?;
    Ok(Some(values))
}

fn skip(from: &mut impl Read, bytes: u64) -> io::Result<()> {
    io::copy(&mut from.take(bytes), &mut io::sink()).map(|_| ())
}
