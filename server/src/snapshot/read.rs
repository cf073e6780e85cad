//! Reads blocks back from a snapshot, and believes nothing: lengths and checksums are those of the
//! manifest, numbers are those of the layout.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::IgnoredAny;
use tradewind_common::finite::all_finite;
use tradewind_common::layout::Block;
use tradewind_common::{BlockId, Layout, RunId, ShardId, TensorKind};

use super::manifest::{self, Manifest};
use super::shard_file::for_each_block;
use super::{Damaged, Folder, UNLISTED_MAX, notes};
use tradewind_core::state::BlockState;

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
        for_each_block(&at, file, &notes(run, number, *shard), wanted, |state| {
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
    /// One of those could not be read, which another try may.
    pub may_pass: bool,
}

/// There is no snapshot that could be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no snapshot can be used{}", self.damaged.iter().map(|d| format!("; {d}")).collect::<String>())]
pub struct NoneLeft {
    /// Those that there are: the file, and what is wrong with it.
    pub damaged: Vec<String>,
    /// One of them could not be read, which another try may.
    pub may_pass: bool,
}

/// The wanted blocks from the newest snapshot up to `upto` that holds them undamaged; with `only`,
/// from no other than `upto`. That one was whole: if it is gone, that is damage.
pub fn newest(
    folder: &Folder,
    run: &RunId,
    (upto, only): (u64, bool),
    wanted: &[BlockId],
    layout: &Layout,
    slots: usize,
) -> Result<Restored, NoneLeft> {
    let (mut damaged, mut may_pass) = (Vec::new(), false);
    let mut numbers = vec![upto];
    if !only {
        let listed = manifest::list(folder, run).unwrap_or_else(|error| {
            damaged.push(error.to_string());
            may_pass = true;
            Vec::new()
        });
        // On a file system of several hosts a listing may be older than what is there.
        let before = upto.saturating_sub(UNLISTED_MAX)..upto;
        let unlisted = before.filter(|number| folder.manifest(run, *number).is_file());
        numbers.extend(listed.into_iter().filter(|number| *number < upto));
        numbers.extend(unlisted);
        numbers.sort_unstable();
        numbers.dedup();
    }
    for number in numbers.into_iter().rev() {
        match blocks(folder, run, number, wanted, layout, slots) {
            Ok(states) => {
                return Ok(Restored {
                    number,
                    states,
                    damaged,
                    may_pass,
                });
            }
            Err(error) => {
                may_pass |= error.may_pass;
                damaged.push(error.to_string());
            }
        }
    }
    Err(NoneLeft { damaged, may_pass })
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
