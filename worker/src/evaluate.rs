//! Evaluates the servers' parameters and saves them.

use std::path::Path;

use safetensors::tensor::{Dtype, TensorView};
use tch::Device;
use tokio::runtime::Handle;
use tradewind_client::coordinator::CoordinatorAt;
use tradewind_client::milestones;
use tradewind_client::reader::{Pulled, pull};
use tradewind_client::verdict::Diverged;
use tradewind_common::Layout;
use tradewind_common::record::{Evaluation, Measure};
use tradewind_config::Config;
use tradewind_process::whole;
use tradewind_proto::auth::Token;

use crate::data::Split;
use crate::flat::Flat;
use crate::member::{named, reach, run_spec};
use crate::model::{Picture, Task};
use crate::precision::{autocast, libtorch_version};

/// Where an evaluation reads and writes files.
#[derive(Clone, Copy, Debug)]
pub struct Folders<'a> {
    /// Results go here: `evaluation.json`, `model.safetensors` under the model's own names, and
    /// `forecast.safetensors` if the task has a map to show.
    pub out: &'a Path,
    /// The fleet's folder: the milestones that are there are evaluated, too, into `validation.jsonl` in
    /// `out`.
    pub milestones: Option<&'a Path>,
}

/// Pulls the parameters of a run from its servers, evaluates them with its `task` on `device`, and saves them.
pub fn evaluate(
    config: &Config,
    task: &dyn Task,
    device: Device,
    coordinator: &CoordinatorAt,
    token: Token,
    Folders { out, milestones }: Folders<'_>,
    runtime: &Handle,
) -> anyhow::Result<Evaluation> {
    let spec = run_spec(config, task);
    let reach = reach(config, token);
    let pulled = pull(&config.name, coordinator, &reach, &spec);
    let Pulled { layout, values } = runtime.block_on(pulled)?;
    let mut flat = Flat::new(&layout, &named(task), device)?;
    flat.write(&values)?;

    let report = autocast(config.compute.precision, device, || task.evaluate())??;
    check_finite(&[&report.metric, &report.validation])?;
    let parameters = in_name_order(&layout, &values);
    let evaluation = Evaluation {
        metric: report.metric,
        better: report.better,
        validation: report.validation,
        baselines: report.baselines,
        parts: report.parts,
        params_digest: digest(&parameters),
        parameters: values.len() as u64,
        libtorch: libtorch_version(),
        picture: (report.picture.as_ref()).map_or(String::new(), |picture| picture.label.clone()),
    };
    save_model(&parameters, task, &out.join("model.safetensors"))?;
    if let Some(picture) = &report.picture {
        save_picture(picture, &out.join("forecast.safetensors"))?;
    }
    let text = serde_json::to_string_pretty(&evaluation)?;
    whole::write(&out.join("evaluation.json"), text.as_bytes())?;
    if let Some(fleet) = milestones {
        let mut measure = |values: &[f32]| {
            flat.write(values)?;
            Ok(autocast(config.compute.precision, device, || {
                task.measure(Split::Validation)
            })??)
        };
        let validations = milestones::evaluate(fleet, &config.name, &layout, &mut measure)?;
        let lines = validations
            .iter()
            .map(|v| Ok(serde_json::to_string(v)? + "\n"));
        let text = lines.collect::<anyhow::Result<String>>()?;
        whole::write(&out.join("validation.jsonl"), text.as_bytes())?;
        milestones::remove(fleet, &config.name)?;
    }
    Ok(evaluation)
}

/// Parameters that say nothing are no result.
fn check_finite(measures: &[&Measure]) -> Result<(), Diverged> {
    match measures.iter().find(|measure| !measure.value.is_finite()) {
        None => Ok(()),
        Some(Measure { name, value, .. }) => Err(Diverged(format!("{name} is {value}"))),
    }
}

/// A tensor of the flat vector: name, shape, values.
type Named<'a> = (&'a str, Vec<usize>, &'a [f32]);

fn in_name_order<'a>(layout: &'a Layout, flat: &'a [f32]) -> Vec<Named<'a>> {
    let named = layout.tensors.iter().map(|tensor| {
        let shape = tensor
            .spec
            .shape
            .iter()
            .map(|extent| *extent as usize)
            .collect();
        (
            tensor.spec.name.as_str(),
            shape,
            &flat[tensor.elements.clone()],
        )
    });
    let mut named: Vec<Named<'a>> = named.collect();
    named.sort_by_key(|(name, ..)| *name);
    named
}

/// BLAKE3 of all values, little-endian f32, in name order, as hex.
pub fn digest(parameters: &[Named<'_>]) -> String {
    let mut hasher = blake3::Hasher::new();
    for (_, _, values) in parameters {
        hasher.update(bytemuck::cast_slice(values));
    }
    hasher.finalize().to_hex().to_string()
}

fn save_model(parameters: &[Named<'_>], task: &dyn Task, path: &Path) -> anyhow::Result<()> {
    let views = parameters.iter().map(|(name, shape, values)| {
        Ok((
            *name,
            TensorView::new(Dtype::F32, shape.clone(), bytemuck::cast_slice(values))?,
        ))
    });
    let views: Vec<_> = views.collect::<anyhow::Result<_>>()?;
    let notes = task.notes().into_iter().collect();
    Ok(whole::write(
        path,
        safetensors::serialize(views, Some(notes))?,
    )?)
}

fn save_picture(picture: &Picture, path: &Path) -> anyhow::Result<()> {
    let map = vec![picture.latitude.len(), picture.longitude.len()];
    let tensors = [
        ("truth", map.clone(), &picture.truth),
        ("forecast", map, &picture.forecast),
        ("latitude", vec![picture.latitude.len()], &picture.latitude),
        (
            "longitude",
            vec![picture.longitude.len()],
            &picture.longitude,
        ),
    ];
    let views = tensors.into_iter().map(|(name, shape, values)| {
        Ok((
            name,
            TensorView::new(Dtype::F32, shape, bytemuck::cast_slice(values))?,
        ))
    });
    let views: Vec<_> = views.collect::<anyhow::Result<_>>()?;
    let notes = [
        ("label", picture.label.as_str()),
        ("unit", &picture.unit),
        ("variable", &picture.variable),
    ];
    let notes = notes.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let bytes = safetensors::serialize(views, Some(notes.into_iter().collect()))?;
    Ok(whole::write(path, bytes)?)
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
