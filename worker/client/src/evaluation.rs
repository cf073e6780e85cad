//! What an evaluation of the servers' parameters leaves, whoever has evaluated them.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::Context;
use safetensors::SafeTensors;
use tradewind_common::record::{Evaluation, Measure};
use tradewind_common::{Layout, run_files};
use tradewind_process::whole;

use crate::saving::{Dtype, Saved, mapped};
use crate::verdict::Diverged;

/// Parameters that say nothing are no result.
///
/// # Errors
/// A measure that is not finite.
pub fn check_finite(measures: &[&Measure]) -> Result<(), Diverged> {
    match measures.iter().find(|measure| !measure.value.is_finite()) {
        None => Ok(()),
        Some(Measure { name, value, .. }) => Err(Diverged(format!("{name} is {value}"))),
    }
}

/// The tensors of a flat vector, in the order of their names.
pub fn in_name_order<'a>(layout: &'a Layout, flat: &'a [f32]) -> Vec<Saved<'a>> {
    let named = layout.tensors.iter().map(|tensor| {
        let extents = tensor.spec.shape.iter();
        Saved {
            name: &tensor.spec.name,
            dtype: Dtype::F32,
            shape: extents.map(|extent| *extent as usize).collect(),
            bytes: bytemuck::cast_slice(&flat[tensor.elements.clone()]),
        }
    });
    let mut named: Vec<Saved<'a>> = named.collect();
    named.sort_by_key(|tensor| tensor.name);
    named
}

/// BLAKE3 of all values, little-endian f32, in name order, as hex.
pub fn digest(parameters: &[Saved<'_>]) -> String {
    let mut hasher = blake3::Hasher::new();
    for tensor in parameters {
        hasher.update(tensor.bytes);
    }
    hasher.finalize().to_hex().to_string()
}

/// The [`digest`] of a model that a file has, whole, though no process does.
///
/// # Errors
/// A file that cannot be read, or that does not have all tensors of `layout`.
pub fn digest_of_file(path: &Path, layout: &Layout) -> anyhow::Result<String> {
    let read = || -> anyhow::Result<String> {
        let (length, header) = SafeTensors::read_metadata(&mapped(path)?)?;
        let mut file = File::open(path)?;
        let mut names: Vec<&str> = layout
            .tensors
            .iter()
            .map(|t| t.spec.name.as_str())
            .collect();
        names.sort_unstable();
        let mut hasher = blake3::Hasher::new();
        for name in names {
            let twin = || header.info(header.metadata().as_ref()?.get(name)?);
            let tensor = header.info(name).or_else(twin);
            let tensor = tensor.with_context(|| format!("it has no tensor {name}"))?;
            let (begin, end) = tensor.data_offsets;
            file.seek(SeekFrom::Start((size_of::<u64>() + length + begin) as u64))?;
            hasher.update_reader((&mut file).take((end - begin) as u64))?;
        }
        Ok(hasher.finalize().to_hex().to_string())
    };
    read().with_context(|| format!("cannot read {}", path.display()))
}

/// Writes what was found into the run's folder.
///
/// # Errors
/// The disk's.
pub fn write(out: &Path, evaluation: &Evaluation) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(evaluation)?;
    Ok(whole::write(&out.join(run_files::EVALUATION), text)?)
}

#[cfg(test)]
mod tests {
    use tradewind_common::{TensorKind, TensorSpec};

    use crate::saving::{Notes, save};

    use super::*;

    #[test]
    fn a_file_has_the_digest_of_its_model() {
        let spec = |name: &str, elements| TensorSpec {
            name: name.into(),
            shape: vec![elements],
            kind: TensorKind::Parameter,
        };
        let layout = Layout::new(&[spec("b", 3), spec("a", 2), spec("tied", 1)], 16).unwrap();
        let flat: Vec<f32> = (0..layout.elements()).map(|n| n as f32).collect();
        let tensors = in_name_order(&layout, &flat);
        let want = digest(&tensors);
        // The file has a tensor of nobody's, and of one another name.
        let mut stored = tensors.clone();
        stored[2].name = "twin";
        stored.push(Saved {
            name: "frozen",
            ..tensors[0].clone()
        });
        let notes = Notes::from([("tied".into(), "twin".into())]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        save(&path, &stored, notes).unwrap();
        assert_eq!(digest_of_file(&path, &layout).unwrap(), want);
        save(&path, &stored, Notes::new()).unwrap();
        let error = digest_of_file(&path, &layout).unwrap_err();
        assert!(
            format!("{error:#}").contains("it has no tensor tied"),
            "{error:#}"
        );
    }

    #[test]
    fn a_measure_that_is_not_finite_ends_the_run_for_good() {
        let measure = |name: &str, value| Measure {
            name: name.into(),
            unit: String::new(),
            value,
        };
        let accuracy = measure("test accuracy", 9.8);
        check_finite(&[&accuracy, &measure("loss", 2.3)]).unwrap();
        for value in [f64::NAN, f64::INFINITY] {
            let error = check_finite(&[&accuracy, &measure("loss", value)]).unwrap_err();
            let text = error.to_string();
            assert!(text.starts_with(&format!("loss is {value}: ")), "{text}");
            assert!(text.contains("optimizer.learning_rate"), "{text}");
        }
    }
}
