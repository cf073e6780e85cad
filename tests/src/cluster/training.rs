//! Tasks that are trained and nothing else, and configurations for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tch::Tensor;
use tradewind_common::TensorKind;
use tradewind_common::record::Measure;
use tradewind_config::Config;
use tradewind_worker::data::{Batch, Dataset, Split};
use tradewind_worker::model::{Report, Task, TaskError};

use super::root;

/// What training needs of a [`Task`]; the methods are those of the same names there.
pub trait Training: Send {
    /// The model's tensors.
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)>;

    /// The samples.
    fn dataset(&self) -> Arc<dyn Dataset>;

    /// The loss of a batch.
    fn loss(&self, batch: &Batch) -> Tensor;
}

/// A task that nobody evaluates.
pub(super) struct Alone<T>(pub(super) T);

impl<T: Training> Task for Alone<T> {
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        self.0.tensors()
    }

    fn dataset(&self) -> Arc<dyn Dataset> {
        self.0.dataset()
    }

    fn loss(&self, batch: &Batch) -> Tensor {
        self.0.loss(batch)
    }

    fn measure(&self, _split: Split) -> Result<Measure, TaskError> {
        unreachable!("training alone")
    }

    fn evaluate(&self) -> Result<Report, TaskError> {
        unreachable!("training alone")
    }

    fn notes(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
}

/// The configuration of a task of the test's own: `text` with data that nobody looks at. `settings`
/// are as on the command line.
///
/// # Panics
/// If it is wrong.
pub fn configured(text: &str, settings: &[&str]) -> Config {
    let data = r#"
        data.files = ["none.nc"]
        data.variable = "none"
        data.validation = [1, 2]
        data.held_out = [2, 3]
    "#;
    let settings: Vec<_> = settings.iter().map(|text| (*text).to_owned()).collect();
    let config = Config::parse(&format!("{text}{data}"), "run.toml", root(), &settings);
    config.unwrap_or_else(|error| panic!("{error}"))
}
