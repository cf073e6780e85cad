//! Writes a shard's file of a milestone.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use tradewind_common::milestone::{SAMPLES_MAX, SAMPLES_MIN, UPDATES, WALL};

use tradewind_core::state::BlockState;
use tradewind_process::whole;

use crate::disk;

/// Writes blocks as they were at time `wall`, seconds since the Unix epoch. The file is there whole
/// or not at all. It is not synced: nothing is restored from it.
pub fn write(path: &Path, wall: f64, blocks: &[BlockState]) -> io::Result<()> {
    let samples = || blocks.iter().map(|block| block.samples_applied);
    let updates = blocks.iter().map(|block| block.version).max();
    let notes = HashMap::from([
        (WALL.to_owned(), wall.to_string()),
        (UPDATES.to_owned(), updates.unwrap_or(0).to_string()),
        (
            SAMPLES_MIN.to_owned(),
            samples().min().unwrap_or(0).to_string(),
        ),
        (
            SAMPLES_MAX.to_owned(),
            samples().max().unwrap_or(0).to_string(),
        ),
    ]);
    let views = blocks.iter().map(|block| {
        let bytes = bytemuck::cast_slice(&block.values);
        let view = TensorView::new(Dtype::F32, vec![block.values.len()], bytes);
        Ok((block.id.to_string(), view.map_err(io::Error::other)?))
    });
    let views: Vec<_> = views.collect::<io::Result<_>>()?;
    let bytes = safetensors::serialize(views, Some(notes)).map_err(io::Error::other)?;
    disk::create_folders(path.parent().unwrap_or(Path::new("/")))?;
    whole::write(path, bytes)
}
