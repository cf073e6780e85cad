//! What an evaluation of the servers' parameters leaves, whoever has evaluated them.

use std::path::Path;

use tradewind_common::record::{Evaluation, Measure};
use tradewind_common::{Layout, run_files};
use tradewind_process::whole;

use crate::saving::{Dtype, Saved};
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
    use super::*;

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
