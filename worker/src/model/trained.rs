//! What tests of tasks do with them.

use super::{Task, TensorKind};
use crate::data::Batch;

/// Numbers of all parameters, statistics apart.
pub(super) fn count(tensors: &[(String, tch::Tensor, TensorKind)]) -> usize {
    let parameters = tensors.iter();
    let parameters = parameters.filter(|(_, _, kind)| *kind == TensorKind::Parameter);
    parameters.map(|(_, tensor, _)| tensor.numel()).sum()
}

/// Takes so many steps of gradient descent on one batch. The losses before each.
pub(super) fn descend(task: &dyn Task, batch: &Batch, steps: usize, rate: f64) -> Vec<f64> {
    let tensors = task.tensors();
    let step = |_| {
        for (_, tensor, _) in &tensors {
            tensor.shallow_clone().zero_grad();
        }
        let loss = task.loss(batch);
        loss.backward();
        tch::no_grad(|| {
            for (_, tensor, kind) in &tensors {
                if *kind == TensorKind::Parameter {
                    let step = tensor.grad() * rate;
                    let _ = tensor.shallow_clone().f_sub_(&step).unwrap();
                }
            }
        });
        loss.double_value(&[])
    };
    (0..steps).map(step).collect()
}
