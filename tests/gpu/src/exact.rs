//! The yardstick for rounding: a task in f64 in main memory.

use tch::{Kind, Tensor};
use tradewind_worker::data::{Batch, Dataset};
use tradewind_worker::model::Task;

/// Turns all tensors of a task into f64, their values kept. Before its first forward.
pub(crate) fn double(task: &dyn Task) {
    for (_, mut tensor, _) in task.tensors() {
        let double = tch::no_grad(|| tensor.to_kind(Kind::Double));
        tensor.set_data(&double);
    }
}

/// The batch of a data set in f64.
pub(crate) fn doubled(batch: &Batch, dataset: &dyn Dataset) -> Batch {
    let fields = dataset.fields();
    let fields = fields.iter().map(|field| field.name.as_str());
    fields.fold(Batch::of(&batch.samples), |doubled, name| {
        doubled.with(name, batch[name].to_kind(Kind::Double))
    })
}

/// How far values are from exact ones, all taken as one vector: the L2 norm of the difference, relative.
pub(crate) fn distance<'a>(pairs: impl Iterator<Item = (&'a Tensor, &'a Tensor)>) -> f64 {
    let square = |tensor: &Tensor| tensor.square().sum(Kind::Double).double_value(&[]);
    let (mut apart, mut size) = (0.0, 0.0);
    for (value, exact) in pairs {
        apart += square(&(value - exact));
        size += square(exact);
    }
    (apart / size).sqrt()
}
