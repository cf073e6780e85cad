//! Models as files that other tools read: safetensors, as one file, or as shards with an index.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::Path;

use anyhow::Context;
use memmap2::Mmap;
pub use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::json;
use tradewind_process::whole;

/// A tensor as a file has it.
#[derive(Clone, Debug)]
pub struct Saved<'a> {
    /// Under which name.
    pub name: &'a str,
    /// Of its elements.
    pub dtype: Dtype,
    /// Extents, slowest first.
    pub shape: Vec<usize>,
    /// Its elements, little-endian, in C order.
    pub bytes: &'a [u8],
}

/// What a file says besides its tensors.
pub type Notes = HashMap<String, String>;

/// Name of the index of a sharded model, as Hugging Face's tools look for it.
pub const INDEX: &str = "model.safetensors.index.json";

/// Writes all tensors into one file, which readers see whole or not at all.
///
/// # Errors
/// A size that does not fit a shape, or the disk's.
pub fn save(path: &Path, tensors: &[Saved<'_>], notes: Notes) -> anyhow::Result<()> {
    write(path, tensors, notes).with_context(|| format!("cannot save {}", path.display()))
}

/// The bytes of a file, of which only those that are looked at become memory.
///
/// # Errors
/// The disk's.
pub fn mapped(path: &Path) -> io::Result<Mmap> {
    let file = fs::File::open(path)?;
    // SAFETY: the file is whole before it has its name, and nobody changes it in place.
    unsafe { Mmap::map(&file) }
}

/// Writes tensors into `model-00001-of-0000N.safetensors` and so on in a folder, which is created if its parent
/// is there, and then an index. A shard has `shard_bytes_max` of tensors at most, or one tensor. Meanwhile the
/// folder has no index, so that nobody takes shards of two models for one; shards that the index does not name
/// are deleted last.
///
/// # Errors
/// A size that does not fit a shape, or the disk's.
pub fn save_sharded(
    folder: &Path,
    tensors: &[Saved<'_>],
    notes: &Notes,
    shard_bytes_max: u64,
) -> anyhow::Result<()> {
    let cannot = || format!("cannot save into {}", folder.display());
    if let Err(error) = fs::create_dir(folder)
        && !folder.is_dir()
    {
        return Err(error).with_context(cannot);
    }
    absent(fs::remove_file(folder.join(INDEX))).with_context(cannot)?;
    let shards = cut(tensors, shard_bytes_max);
    let count = shards.len();
    let name = |shard: usize| format!("model-{:05}-of-{count:05}.safetensors", shard + 1);
    let mut places = BTreeMap::new();
    for (number, shard) in shards.iter().enumerate() {
        save(&folder.join(name(number)), shard, notes.clone())?;
        places.extend(shard.iter().map(|tensor| (tensor.name, name(number))));
    }
    let total: usize = tensors.iter().map(|tensor| tensor.bytes.len()).sum();
    let mut metadata: BTreeMap<&str, serde_json::Value> = notes
        .iter()
        .map(|(key, value)| (key.as_str(), json!(value)))
        .collect();
    metadata.insert("total_size", json!(total));
    let index = json!({ "metadata": metadata, "weight_map": places });
    let index = serde_json::to_string_pretty(&index)?;
    whole::write(&folder.join(INDEX), index).with_context(cannot)?;
    let named: Vec<String> = (0..count).map(name).collect();
    for entry in fs::read_dir(folder).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        let other = entry.file_name().into_string().unwrap_or_default();
        if is_shard(&other) && !named.contains(&other) {
            absent(fs::remove_file(entry.path())).with_context(cannot)?;
        }
    }
    Ok(())
}

/// In their order, as many to a shard as fit.
fn cut<'a, 'b>(tensors: &'a [Saved<'b>], shard_bytes_max: u64) -> Vec<&'a [Saved<'b>]> {
    let (mut shards, mut begin, mut bytes) = (Vec::new(), 0, 0);
    for (at, tensor) in tensors.iter().enumerate() {
        let own = tensor.bytes.len() as u64;
        if at > begin && bytes + own > shard_bytes_max {
            shards.push(&tensors[begin..at]);
            (begin, bytes) = (at, 0);
        }
        bytes += own;
    }
    shards.push(&tensors[begin..]);
    shards
}

/// Whether a file's name is a shard's: `model-00001-of-00002.safetensors`.
fn is_shard(name: &str) -> bool {
    let numbers = name.strip_prefix("model-");
    let numbers = numbers.and_then(|rest| rest.strip_suffix(".safetensors"));
    let pair = numbers.and_then(|numbers| numbers.split_once("-of-"));
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    pair.is_some_and(|(number, count)| is_number(number) && is_number(count))
}

fn absent(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn write(path: &Path, tensors: &[Saved<'_>], notes: Notes) -> anyhow::Result<()> {
    let mut views = Vec::new();
    for tensor in tensors {
        let view = TensorView::new(tensor.dtype, tensor.shape.clone(), tensor.bytes);
        let view = view.with_context(|| format!("tensor {}", tensor.name))?;
        views.push((tensor.name, view));
    }
    Ok(whole::write(
        path,
        safetensors::serialize(views, Some(notes))?,
    )?)
}

#[cfg(test)]
mod tests {
    use safetensors::SafeTensors;

    use super::*;

    fn tensors(lengths: &[usize]) -> Vec<(String, Vec<f32>)> {
        let named = lengths.iter().enumerate();
        named
            .map(|(number, length)| (format!("t{number}"), vec![number as f32; *length]))
            .collect()
    }

    fn saved(tensors: &[(String, Vec<f32>)]) -> Vec<Saved<'_>> {
        let saved = tensors.iter().map(|(name, values)| Saved {
            name,
            dtype: Dtype::F32,
            shape: vec![values.len()],
            bytes: bytemuck::cast_slice(values),
        });
        saved.collect()
    }

    #[test]
    fn shards_have_all_tensors_and_the_index_says_where() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("model");
        let sharded = |lengths: &[usize], most: u64| {
            let tensors = tensors(lengths);
            save_sharded(&out, &saved(&tensors), &Notes::new(), most).unwrap();
            let index = fs::read_to_string(out.join(INDEX)).unwrap();
            let index: serde_json::Value = serde_json::from_str(&index).unwrap();
            for (name, values) in &tensors {
                let file = index["weight_map"][name].as_str().unwrap();
                let bytes = fs::read(out.join(file)).unwrap();
                let all = SafeTensors::deserialize(&bytes).unwrap();
                let found = all.tensor(name).unwrap();
                assert_eq!(found.data(), bytemuck::cast_slice::<f32, u8>(values));
            }
            let total: usize = lengths.iter().map(|length| 4 * length).sum();
            assert_eq!(index["metadata"]["total_size"], total);
            let names = fs::read_dir(&out).unwrap();
            let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = names.collect();
            names.sort();
            names
        };
        let want = [
            "model-00001-of-00003.safetensors",
            "model-00002-of-00003.safetensors",
            "model-00003-of-00003.safetensors",
            INDEX,
        ];
        // The second is longer than a shard may be; the last two fit one.
        assert_eq!(sharded(&[3, 9, 2, 2], 16), want);
        // What is a person's own stays, and shards of the former model go.
        fs::write(out.join("model-card.safetensors"), "").unwrap();
        let want = [
            "model-00001-of-00001.safetensors",
            "model-card.safetensors",
            INDEX,
        ];
        assert_eq!(sharded(&[3, 1], 16), want);
    }

    #[test]
    fn what_cannot_be_saved_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let tensors = tensors(&[2]);
        let mut saved = saved(&tensors);
        let check = |path: &Path, saved: &[Saved<'_>], want: &str| {
            let error = format!("{:#}", save(path, saved, Notes::new()).unwrap_err());
            assert!(error.contains(want), "{error}");
        };
        let path = folder.path().join("model.safetensors");
        check(&folder.path().join("no/m"), &saved, "cannot save ");
        saved[0].shape = vec![3];
        check(&path, &saved, "tensor t0");
        assert!(!path.exists());
    }
}
