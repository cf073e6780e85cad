//! Evaluates the servers' parameters and saves them.

use std::path::Path;

use safetensors::tensor::{Dtype, TensorView};
use tch::Device;
use tokio::runtime::Handle;
use tradewind_client::coordinator::CoordinatorAt;
use tradewind_client::evaluation::{check_finite, digest, in_name_order};
use tradewind_client::reader::{Pulled, pull};
use tradewind_client::saving::save;
use tradewind_client::{evaluation, milestones};
use tradewind_common::record::Evaluation;
use tradewind_config::Config;
use tradewind_process::whole;
use tradewind_proto::auth::Credentials;

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
    credentials: Credentials,
    Folders { out, milestones }: Folders<'_>,
    runtime: &Handle,
) -> anyhow::Result<Evaluation> {
    let spec = run_spec(config, task);
    let reach = reach(config, credentials);
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
        curves: report.curves,
        scatters: report.scatters,
        picture: (report.picture.as_ref()).map_or(String::new(), |picture| picture.label.clone()),
    };
    let notes = task.notes().into_iter().collect();
    save(&out.join("model.safetensors"), &parameters, notes)?;
    if let Some(picture) = &report.picture {
        save_picture(picture, &out.join("forecast.safetensors"))?;
    }
    evaluation::write(out, &evaluation)?;
    if let Some(fleet) = milestones {
        let mut measure = |values: &[f32]| {
            flat.write(values)?;
            Ok(autocast(config.compute.precision, device, || {
                task.measure(Split::Validation)
            })??)
        };
        milestones::record(fleet, &config.name, &layout, out, &|_| true, &mut measure)?;
    }
    Ok(evaluation)
}

fn save_picture(picture: &Picture, path: &Path) -> anyhow::Result<()> {
    let map = vec![picture.latitude.len(), picture.longitude.len()];
    let outlines = picture.outlines.each_ref().map(|outlines| {
        let numbers = outlines.iter().flat_map(|outline| {
            let [south, north] = outline.latitude;
            let [west, east] = outline.longitude;
            [south, west, north, east, outline.class.into()]
        });
        numbers.collect::<Vec<f32>>()
    });
    let [of_truth, of_forecast] = &outlines;
    let tensors = [
        ("truth", map.clone(), &picture.truth),
        ("forecast", map, &picture.forecast),
        ("latitude", vec![picture.latitude.len()], &picture.latitude),
        (
            "longitude",
            vec![picture.longitude.len()],
            &picture.longitude,
        ),
        ("truth.outlines", vec![of_truth.len() / 5, 5], of_truth),
        (
            "forecast.outlines",
            vec![of_forecast.len() / 5, 5],
            of_forecast,
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
