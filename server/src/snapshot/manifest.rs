//! The manifest of a snapshot. It is written last: a folder without it is no snapshot.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tradewind_common::{RunId, ShardId};

use super::{Damaged, FORMAT, Fault, Folder, shard_file};
use crate::disk;
use tradewind_core::order::ShardFile;

/// What makes the shards' files a snapshot. `T` is what the coordinator knows of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest<T> {
    /// [`FORMAT`].
    pub format: u32,
    /// The run.
    pub run: RunId,
    /// Which snapshot of it.
    pub number: u64,
    /// Seconds since the Unix epoch.
    pub written_at: f64,
    /// The content of the fleet's config.toml.
    pub configuration: Option<String>,
    /// One a shard, in the order of their numbers.
    pub files: Vec<ShardFile>,
    /// The shard of each block, in the order of their numbers.
    pub shards: Vec<ShardId>,
    /// What the coordinator needs to go on from here.
    pub data: T,
}

impl<T> Manifest<T> {
    /// The file of a shard; `path` is this manifest's.
    pub(super) fn file(&self, path: &Path, shard: ShardId) -> Result<&ShardFile, Damaged> {
        let missing = || Damaged::new(path, format!("has no file of shard {shard}"));
        let file = self.files.get(shard.0 as usize).ok_or_else(missing)?;
        if Path::new(&file.name).file_name() == Some(file.name.as_ref()) {
            Ok(file)
        } else {
            Err(Damaged::new(
                path,
                format!("{:?} is no file name", file.name),
            ))
        }
    }
}

/// Makes the files that are there a snapshot: when this returns, it is whole and there for good. One
/// that was written before is replaced in one instant: files are never overwritten, so both are
/// whole.
pub fn write<T: Serialize>(folder: &Folder, manifest: &Manifest<T>) -> io::Result<()> {
    let path = folder.manifest(&manifest.run, manifest.number);
    let json = serde_json::to_vec_pretty(manifest).map_err(io::Error::from);
    disk::replace_secret(&path, disk::with_checksum(&json.map_err(disk::at(&path))?))?;
    // Whoever made the folders may have died before they were there for good.
    let run = folder.run(&manifest.run);
    run.ancestors().take(3).try_for_each(disk::sync_folder)
}

/// Reads the manifest of a snapshot; none of its files is looked at.
pub fn read<T: DeserializeOwned>(
    folder: &Folder,
    run: &RunId,
    number: u64,
) -> Result<Manifest<T>, Damaged> {
    #[derive(Deserialize)]
    struct Head {
        format: u32,
        run: RunId,
        number: u64,
    }
    let path = folder.manifest(run, number);
    let bad = |what: String| Damaged::new(&path, what);
    let read = fs::read(&path);
    let bytes = read.map_err(|error| Damaged::new(&path, Fault::unreadable(error)))?;
    let json = disk::check_checksum(&bytes).map_err(|what| bad(what.to_owned()))?;
    let invalid = |error: serde_json::Error| bad(format!("is not a manifest: {error}"));
    let head: Head = serde_json::from_slice(json).map_err(invalid)?;
    if head.format != FORMAT {
        let has = head.format;
        return Err(bad(format!(
            "has format {has}, this program reads {FORMAT}"
        )));
    }
    if (&head.run, head.number) != (run, number) {
        let (run, number) = (head.run, head.number);
        return Err(bad(format!("is of snapshot {number} of run {run}")));
    }
    serde_json::from_slice(json).map_err(invalid)
}

/// Numbers of the snapshots that have a manifest, in ascending order.
pub fn list(folder: &Folder, run: &RunId) -> io::Result<Vec<u64>> {
    let mut numbers = folder.numbers(run)?;
    numbers.retain(|number| folder.manifest(run, *number).is_file());
    Ok(numbers)
}

/// Reads a manifest and all the files that it names, and compares lengths and checksums.
/// `progress` is told how many bytes of how many have been read.
pub fn verify<T: DeserializeOwned>(
    folder: &Folder,
    run: &RunId,
    number: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Manifest<T>, Damaged> {
    let manifest: Manifest<T> = read(folder, run, number)?;
    let path = folder.manifest(run, number);
    let total = manifest.files.iter().map(|file| file.bytes).sum();
    let mut done = 0;
    for shard in 0..manifest.files.len() as u32 {
        let file = manifest.file(&path, ShardId(shard))?;
        let at = folder.snapshot(run, number).join(&file.name);
        let mut read = |bytes| {
            done += bytes;
            progress(done, total);
        };
        verify_file(&at, file, &mut read).map_err(|what| Damaged::new(&at, what))?;
    }
    let files = manifest.files.len();
    if let Some(stray) = manifest.shards.iter().find(|s| s.0 as usize >= files) {
        return Err(Damaged::new(&path, format!("has no file of shard {stray}")));
    }
    Ok(manifest)
}

fn verify_file(path: &Path, file: &ShardFile, read: &mut dyn FnMut(u64)) -> Result<(), Fault> {
    let mut from = shard_file::open(path, file)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = from.read(&mut buffer).map_err(Fault::unreadable)?;
        if count == 0 {
            return Ok(shard_file::agree(&from, file)?);
        }
        read(count as u64);
    }
}

/// The newest snapshot that is whole in all its files, if there is one, and what is wrong with those
/// that are newer. `progress` is told how many bytes of how many have been read of one snapshot.
pub fn newest_whole<T: DeserializeOwned>(
    folder: &Folder,
    run: &RunId,
    progress: &mut dyn FnMut(u64, u64),
) -> io::Result<(Option<Manifest<T>>, Vec<Damaged>)> {
    let mut damaged = Vec::new();
    for number in list(folder, run)?.into_iter().rev() {
        match verify(folder, run, number, progress) {
            Ok(manifest) => return Ok((Some(manifest), damaged)),
            Err(error) => damaged.push(error),
        }
    }
    Ok((None, damaged))
}

/// Deletes a snapshot, or what there is of an unfinished one. The manifest goes first and for good:
/// interrupted half-way, what is left is no snapshot, and is deleted by doing it again.
pub fn delete(folder: &Folder, run: &RunId, number: u64) -> io::Result<()> {
    let within = folder.snapshot(run, number);
    if disk::remove(&folder.manifest(run, number))? {
        disk::sync_folder(&within)?;
    }
    match fs::remove_dir_all(&within) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(disk::at(&within)(error)),
        _ => Ok(()),
    }
}

/// Deletes what is left of unfinished snapshots, such as one whose coordinator died, with a number
/// below `below`. Hand in a whole one's number: what is still being written is past it.
pub fn sweep(folder: &Folder, run: &RunId, below: u64) -> io::Result<()> {
    let numbers = folder.numbers(run)?;
    let old = numbers.into_iter().filter(|number| *number < below);
    for number in old {
        if !folder.manifest(run, number).try_exists()? {
            delete(folder, run, number)?;
        }
    }
    Ok(())
}
