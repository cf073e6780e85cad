//! A shard's file as it is read: two tables of u64, then each block's values and slots in the order
//! of the first table.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use safetensors::Dtype;
use safetensors::tensor::Metadata;
use tradewind_common::{BlockId, Clock, GroupId, Incarnation};

use super::Fault;
use super::container::{Hashing, read_header};
use tradewind_core::decided::{Decided, Verdict};
use tradewind_core::order::ShardFile;
use tradewind_core::state::BlockState;

/// Columns of the table `blocks`: number, version, samples applied.
pub const BLOCK_COLUMNS: usize = 3;

/// Columns of the table `decided`: block, group, incarnation, clock, verdict, delay.
pub const DECIDED_COLUMNS: usize = 6;

const BUFFER: usize = 1 << 20;

/// The name of the tensor with a block's values.
pub fn values_name(block: BlockId) -> String {
    format!("block.{block}.values")
}

/// The name of the tensor with one of a block's optimizer slots.
pub fn slot_name(block: BlockId, slot: usize) -> String {
    format!("block.{block}.slot.{slot}")
}

/// A verdict as it is written.
pub fn code(verdict: Verdict) -> u64 {
    match verdict {
        Verdict::Applied => 0,
        Verdict::Dropped => 1,
        Verdict::Skipped => 2,
    }
}

fn verdict(code: u64) -> Result<Verdict, String> {
    match code {
        0 => Ok(Verdict::Applied),
        1 => Ok(Verdict::Dropped),
        2 => Ok(Verdict::Skipped),
        _ => Err(format!("it has an unknown verdict {code}")),
    }
}

/// Opens a file that the manifest names, if it is as long as the manifest says.
pub fn open(path: &Path, file: &ShardFile) -> Result<Hashing<File>, Fault> {
    let opened = File::open(path).map_err(Fault::unreadable)?;
    let length = opened.metadata().map_err(Fault::unreadable)?.len();
    if length == file.bytes {
        Ok(Hashing::new(opened))
    } else {
        let wants = file.bytes;
        Err(format!("it has {length} bytes where {wants} belong").into())
    }
}

/// Whether all that was read is what the manifest says.
pub fn agree(read: &Hashing<File>, file: &ShardFile) -> Result<(), String> {
    if read.result() == (file.bytes, file.digest.clone()) {
        Ok(())
    } else {
        Err("its bytes do not have the checksum of the manifest".to_owned())
    }
}

/// Reads a shard's file from front to back, once, and hands out its wanted blocks. They count only
/// when it has returned without an error: the checksum is known at the end.
pub fn for_each_block(
    path: &Path,
    file: &ShardFile,
    notes: &[(&str, String)],
    wanted: &BTreeSet<BlockId>,
    mut each: impl FnMut(BlockState) -> Result<(), String>,
) -> Result<(), Fault> {
    let mut from = BufReader::with_capacity(BUFFER, open(path, file)?);
    let header = read_header(&mut from, file.bytes)?;
    check(&header, notes)?;
    let mut tensors = Tensors {
        from,
        header,
        position: 0,
    };
    let blocks = blocks(&mut tensors)?;
    let mut decided = decided(&mut tensors, wanted)?;
    for (id, (version, samples_applied)) in blocks {
        let wants = wanted.contains(&id);
        let values = tensors.vector(&values_name(id), wants)?;
        let values = values.ok_or_else(|| format!("block {id} has no values"))?;
        let mut slots = Vec::new();
        while let Some(slot) = tensors.vector(&slot_name(id, slots.len()), wants)? {
            slots.push(Arc::new(slot));
        }
        if wants {
            each(BlockState {
                id,
                values: Arc::new(values),
                slots,
                version,
                samples_applied,
                decided: decided.remove(&id).unwrap_or_default(),
            })?;
        }
    }
    skip(&mut tensors.from, u64::MAX)?;
    Ok(agree(tensors.from.get_ref(), file)?)
}

fn check(header: &Metadata, notes: &[(&str, String)]) -> Result<(), String> {
    for (key, want) in notes {
        let has = header.metadata().as_ref().and_then(|notes| notes.get(*key));
        if has != Some(want) {
            let has = has.map_or("missing", |has| has);
            return Err(format!("its {key} is {has}, not {want}"));
        }
    }
    Ok(())
}

/// Versions and samples applied.
fn blocks(tensors: &mut Tensors) -> Result<BTreeMap<BlockId, (u64, u64)>, Fault> {
    let mut blocks = BTreeMap::new();
    let mut last = None;
    tensors.rows("blocks", |row: [u64; BLOCK_COLUMNS]| {
        let id = BlockId(number(row[0])?);
        // The values follow in this order.
        if last.replace(id) >= Some(id) {
            return Err(format!("block {id} is out of order in its table"));
        }
        blocks.insert(id, (row[1], row[2]));
        Ok(())
    })?;
    Ok(blocks)
}

type OfGroups = BTreeMap<GroupId, (Incarnation, Decided)>;

/// What was decided last of the wanted blocks.
fn decided(
    tensors: &mut Tensors,
    wanted: &BTreeSet<BlockId>,
) -> Result<BTreeMap<BlockId, OfGroups>, Fault> {
    let mut decided: BTreeMap<BlockId, OfGroups> = BTreeMap::new();
    tensors.rows("decided", |row: [u64; DECIDED_COLUMNS]| {
        let (id, group) = (BlockId(number(row[0])?), GroupId(number(row[1])?));
        let one = Decided {
            clock: Clock(row[3]),
            verdict: verdict(row[4])?,
            delay: row[5],
        };
        if wanted.contains(&id) {
            let of = decided.entry(id).or_default();
            of.insert(group, (Incarnation(row[2]), one));
        }
        Ok(())
    })?;
    Ok(decided)
}

fn number(number: u64) -> Result<u32, String> {
    let large = |_| format!("it numbers something {number}");
    u32::try_from(number).map_err(large)
}

/// The tensors of a file, one after the other.
struct Tensors {
    from: BufReader<Hashing<File>>,
    header: Metadata,
    /// Where the next one begins, as the header counts.
    position: usize,
}

impl Tensors {
    /// The extents of the tensor that begins here; `None` if there is none of this name.
    fn next(&mut self, name: &str, dtype: Dtype) -> Result<Option<Vec<usize>>, String> {
        let Some(info) = self.header.info(name) else {
            return Ok(None);
        };
        if info.dtype != dtype || info.data_offsets.0 != self.position {
            return Err(format!("its tensor {name} is of another type or place"));
        }
        self.position = info.data_offsets.1;
        Ok(Some(info.shape.clone()))
    }

    /// Reads a table row by row: of a large one little may be wanted.
    fn rows<const COLUMNS: usize>(
        &mut self,
        name: &str,
        mut each: impl FnMut([u64; COLUMNS]) -> Result<(), String>,
    ) -> Result<(), Fault> {
        let shape = self.next(name, Dtype::U64)?;
        let rows = match shape.as_deref() {
            Some([rows, columns]) if *columns == COLUMNS => *rows,
            _ => return Err(format!("it has no table {name} of {COLUMNS} columns").into()),
        };
        for _ in 0..rows {
            let mut row = [0u64; COLUMNS];
            let read = self.from.read_exact(bytemuck::cast_slice_mut(&mut row));
            read.map_err(Fault::unreadable)?;
            each(row)?;
        }
        Ok(())
    }

    /// Reads a vector; empty if it is not wanted. `None` if there is none of this name.
    fn vector(&mut self, name: &str, wanted: bool) -> Result<Option<Vec<f32>>, Fault> {
        let length = match self.next(name, Dtype::F32)?.as_deref() {
            None => return Ok(None),
            Some([length]) => *length,
            Some(_) => return Err(format!("its tensor {name} is not a vector").into()),
        };
        if !wanted {
            skip(&mut self.from, length as u64 * 4)?;
            return Ok(Some(Vec::new()));
        }
        // The file is long enough for it: the header was compared with its length.
        let mut values = vec![0f32; length];
        let bytes = bytemuck::cast_slice_mut(&mut values);
        self.from.read_exact(bytes).map_err(Fault::unreadable)?;
        Ok(Some(values))
    }
}

/// Reads on without keeping anything.
fn skip(from: &mut impl Read, bytes: u64) -> Result<(), Fault> {
    let skipped = io::copy(&mut from.take(bytes), &mut io::sink());
    skipped.map(|_| ()).map_err(Fault::unreadable)
}
