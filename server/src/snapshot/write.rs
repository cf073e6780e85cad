//! Writes one shard's file of a snapshot.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use tradewind_common::finite::all_finite;
use tradewind_common::{Clock, RunId, ShardId};

use super::container::{Described, Hashing, header};
use super::shard_file::{BLOCK_COLUMNS, DECIDED_COLUMNS, code, slot_name, values_name};
use super::{Folder, notes};
use crate::disk::{self, Part};
use tradewind_core::order::ShardFile;
use tradewind_core::state::BlockState;

/// Most files of one shard in one snapshot: one for each time that it was begun anew.
const ATTEMPTS_MAX: u32 = 1000;

/// Writes the blocks of a shard into its file of snapshot `number`. When it returns, the file is
/// there whole and for good; after an error nothing of it is there, and nothing else was touched. A
/// file that is there already stays: its manifest may be on its way, so this one gets another name.
pub fn shard(
    folder: &Folder,
    run: &RunId,
    number: u64,
    shard: ShardId,
    blocks: &[BlockState],
) -> io::Result<ShardFile> {
    check(blocks)?;
    // In this order they are read back.
    let mut blocks: Vec<&BlockState> = blocks.iter().collect();
    blocks.sort_by_key(|block| block.id);
    let within = folder.snapshot(run, number);
    disk::create_folders(&within)?;
    let (part, target, name) = begin(&within, shard)?;
    let named = notes(run, number, shard).map(|(key, value)| (key.to_owned(), value));
    let mut to = BufWriter::with_capacity(1 << 20, Hashing::new(part.file()));
    content(&mut to, named.into(), &blocks).map_err(disk::at(part.path()))?;
    let (bytes, digest) = to.get_ref().result();
    drop(to);
    part.publish(&target)?;
    let clocks = blocks.iter().flat_map(|block| block.decided.values());
    Ok(ShardFile {
        name,
        bytes,
        digest,
        versions: range(blocks.iter().map(|block| block.version)),
        samples: range(blocks.iter().map(|block| block.samples_applied)),
        clock_next: clocks
            .map(|(_, decided)| decided.clock.tick())
            .max()
            .unwrap_or(Clock(0)),
    })
}

/// A snapshot that could not be restored must not push out those that can.
fn check(blocks: &[BlockState]) -> io::Result<()> {
    let bad = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    for block in blocks {
        if !all_finite(&block.values) {
            return bad(format!("block {} has a value that is not finite", block.id));
        }
        let lengths = block.slots.iter().map(|slot| slot.len());
        if let Some(length) = lengths.into_iter().find(|n| *n != block.values.len()) {
            let (id, values) = (block.id, block.values.len());
            return bad(format!(
                "block {id} has a slot of {length} for {values} values"
            ));
        }
    }
    Ok(())
}

/// The part to write, and the place and name it is for. Whoever has created the part of a name is
/// alone with that name, and takes it only if it is free.
fn begin(within: &Path, shard: ShardId) -> io::Result<(Part, PathBuf, String)> {
    for attempt in 0..ATTEMPTS_MAX {
        let name = match attempt {
            0 => format!("shard-{:04}.safetensors", shard.0),
            again => format!("shard-{:04}-{again}.safetensors", shard.0),
        };
        let target = within.join(&name);
        let part = match Part::create_secret(within.join(format!("{name}.part"))) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            part => part?,
        };
        if !target.try_exists().map_err(disk::at(&target))? {
            return Ok((part, target, name));
        }
    }
    let error = format!("shard {shard} was begun {ATTEMPTS_MAX} times");
    Err(disk::at(within)(io::Error::other(error)))
}

fn content(
    to: &mut impl Write,
    notes: HashMap<String, String>,
    blocks: &[&BlockState],
) -> io::Result<()> {
    let rows: Vec<[u64; BLOCK_COLUMNS]> = blocks
        .iter()
        .map(|block| [block.id.0.into(), block.version, block.samples_applied])
        .collect();
    let decided: Vec<[u64; DECIDED_COLUMNS]> =
        blocks.iter().copied().flat_map(decided_rows).collect();
    let tables = [
        (
            "blocks".to_owned(),
            Dtype::U64,
            vec![rows.len(), BLOCK_COLUMNS],
        ),
        (
            "decided".to_owned(),
            Dtype::U64,
            vec![decided.len(), DECIDED_COLUMNS],
        ),
    ];
    let tensors = blocks.iter().copied().flat_map(described);
    to.write_all(&header(notes, tables.into_iter().chain(tensors))?)?;
    to.write_all(bytemuck::cast_slice(&rows))?;
    to.write_all(bytemuck::cast_slice(&decided))?;
    for block in blocks {
        to.write_all(bytemuck::cast_slice(&block.values))?;
        for slot in &block.slots {
            to.write_all(bytemuck::cast_slice(slot))?;
        }
    }
    to.flush()
}

fn decided_rows(block: &BlockState) -> impl Iterator<Item = [u64; DECIDED_COLUMNS]> + '_ {
    block.decided.iter().map(|(group, (incarnation, decided))| {
        [
            block.id.0.into(),
            group.0.into(),
            incarnation.0,
            decided.clock.0,
            code(decided.verdict),
            decided.delay,
        ]
    })
}

fn described(block: &BlockState) -> impl Iterator<Item = Described> + '_ {
    let slots = (0..block.slots.len()).map(|slot| slot_name(block.id, slot));
    let names = std::iter::once(values_name(block.id)).chain(slots);
    names.map(|name| (name, Dtype::F32, vec![block.values.len()]))
}

fn range(numbers: impl Iterator<Item = u64> + Clone) -> (u64, u64) {
    let least = numbers.clone().min().unwrap_or(0);
    (least, numbers.max().unwrap_or(0))
}
